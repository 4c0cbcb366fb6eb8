//! Who may do what, and what nobody gets to see.
//!
//! Driven by the routes that the node itself describes: an operation that [`MAY`] does not decide on fails a test.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::{Value, json};
use weft::digest::Digest;
use weft_tests::components;
use weft_tests::http::{Answer, Client};
use weft_tests::node::{Node, Options, eventually};

/// Who an operation is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum For {
    Anybody,
    Tenants,
    Operator,
}

const MAY: &[(&str, For)] = &[
    ("append_dataset", For::Tenants),
    ("ask_tune", For::Tenants),
    ("backup", For::Operator),
    ("begin_tune", For::Tenants),
    ("begin_upload", For::Tenants),
    ("create_dataset", For::Tenants),
    ("create_model", For::Tenants),
    ("create_tenant", For::Operator),
    ("delete_dataset", For::Tenants),
    ("delete_function", For::Tenants),
    ("delete_job", For::Tenants),
    ("delete_model", For::Tenants),
    ("delete_param", For::Tenants),
    ("delete_params", For::Tenants),
    ("delete_tenant", For::Operator),
    ("delete_tune", For::Tenants),
    ("delete_upload", For::Tenants),
    ("delete_version", For::Tenants),
    ("deploy", For::Tenants),
    ("describe_function", For::Tenants),
    ("fetch_block", For::Tenants),
    ("fetch_manifest", For::Tenants),
    ("fetch_model", For::Tenants),
    ("get_param", For::Tenants),
    ("give_order", For::Tenants),
    ("infer_job", For::Tenants),
    ("invoke", For::Tenants),
    ("job_events", For::Tenants),
    ("job_history", For::Tenants),
    ("job_logs", For::Tenants),
    ("job_plan", For::Tenants),
    ("kill_worker", For::Tenants),
    ("list_datasets", For::Tenants),
    ("list_devices", For::Operator),
    ("list_functions", For::Tenants),
    ("list_jobs", For::Tenants),
    ("list_models", For::Tenants),
    ("list_orders", For::Tenants),
    ("list_params", For::Tenants),
    ("list_tenants", For::Operator),
    ("list_trials", For::Tenants),
    ("list_tunes", For::Tenants),
    ("list_versions", For::Tenants),
    ("livez", For::Anybody),
    ("logs", For::Tenants),
    ("metrics", For::Operator),
    ("node", For::Operator),
    ("prices", For::Tenants),
    ("prune_jobs", For::Tenants),
    ("readyz", For::Anybody),
    ("reset_device", For::Operator),
    ("resume_job", For::Tenants),
    ("resume_tune", For::Tenants),
    ("rollback", For::Tenants),
    ("rotate_key", For::Operator),
    ("scale_job", For::Tenants),
    ("send_part", For::Tenants),
    ("set_param", For::Tenants),
    ("set_quota", For::Operator),
    ("show_dataset", For::Tenants),
    ("show_function", For::Tenants),
    ("show_job", For::Tenants),
    ("show_model", For::Tenants),
    ("show_order", For::Tenants),
    ("show_tenant", For::Operator),
    ("show_tune", For::Tenants),
    ("show_upload", For::Tenants),
    ("stop_job", For::Tenants),
    ("stop_tune", For::Tenants),
    ("submit_job", For::Tenants),
    ("take_order_back", For::Tenants),
    ("tell_tune", For::Tenants),
    ("tune_events", For::Tenants),
    ("usage", For::Tenants),
];

/// What makes a thing that the caller names; every other operation needs it to be there.
const MAKES: &[&str] = &["create_dataset", "create_model", "deploy", "set_param"];
/// The operations on functions, data sets, models, uploads, jobs, parameters and studies that need them to be there.
const ON_A_THING: usize = 8 + 8 + 3 + 3 + 11 + 2 + 8;

/// What an upload of another tenant holds.
const THEIR_FILE: &[u8] = b"1,2,0\n3,4,1\n";

struct Operation {
    id: String,
    method: String,
    /// With `{name}`, `{digest}`, `{index}`, `{version}` and `{tenant}` in it.
    path: String,
}

impl Operation {
    /// Every operation that the node describes.
    fn all(node: &Node) -> Result<Vec<Self>> {
        let description = node.anybody().get("/openapi.json")?.json()?;
        let mut operations = Vec::new();
        for (path, methods) in description["paths"].as_object().context("no paths")? {
            for (method, operation) in methods.as_object().context("no methods")? {
                let id = operation["operationId"].as_str().with_context(|| format!("{method} {path} has no id"))?;
                operations.push(Self { id: id.to_owned(), method: method.to_uppercase(), path: path.clone() });
            }
        }
        Ok(operations)
    }

    fn is_for(&self) -> Result<For> {
        let decided = MAY.iter().find(|(id, _)| *id == self.id);
        decided.map(|(_, who)| *who).with_context(|| format!("nobody has decided who may `{}`", self.id))
    }

    fn on_a_thing(&self) -> bool {
        ["{name}", "{digest}"].iter().any(|named| self.path.contains(named)) && !MAKES.contains(&self.id.as_str())
    }

    /// Asks for it with things that do not exist, so that nothing is changed.
    fn ask(&self, client: &Client) -> Result<Answer> {
        self.ask_of(client, "absent")
    }

    /// Asks for it of what has this name, or is an upload whose content has this name.
    fn ask_of(&self, client: &Client, name: &str) -> Result<Answer> {
        let path = self.path.replace("{name}", name).replace("{digest}", &digest_of(name)).replace("{index}", "0");
        let path = path
            .replace("{version}", "abc")
            .replace("{tenant}", "absent")
            .replace("{worker}", "0")
            .replace("{device}", "absent");
        client.send(&self.method, &path, &[], b"")
    }
}

/// The digest of the upload that tests call by this name.
fn digest_of(name: &str) -> String {
    Digest::of(if name == "theirs" { THEIR_FILE } else { name.as_bytes() }).to_string()
}

/// Asks for everything that is for `who` and wants the given answer.
fn all_are(node: &Node, client: &Client, who: &[For], status: u16, kind: &str) -> Result<()> {
    for operation in Operation::all(node)? {
        if !who.contains(&operation.is_for()?) {
            continue;
        }
        let answer = operation.ask(client)?;
        ensure!(answer.status == status && answer.problem_kind()?.0 == kind, "`{}`: {answer:?}", operation.id);
    }
    Ok(())
}

/// Asks for everything that is for `who` and wants to be let in.
fn none_is_refused(node: &Node, client: &Client, who: For) -> Result<()> {
    for operation in Operation::all(node)? {
        if operation.is_for()? == who {
            let answer = operation.ask(client)?;
            ensure!(![401, 403].contains(&answer.status), "`{}`: {answer:?}", operation.id);
        }
    }
    Ok(())
}

/// Every file below a folder.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() { found.extend(files(&path)?) } else { found.push(path) }
    }
    Ok(found)
}

fn stored_files(node: &Node) -> Result<Vec<PathBuf>> {
    let below = |name| files(&node.data_dir().join(name));
    Ok([below("blobs")?, below("artifacts")?, below("staging")?].concat())
}

fn key(client: &Client) -> Result<&str> {
    client.key().context("no key")
}

#[test]
fn every_route_has_a_decision_and_every_decision_a_route() -> Result<()> {
    let node = Options::default().start()?;
    let mut described: Vec<String> = Operation::all(&node)?.into_iter().map(|operation| operation.id).collect();
    described.sort();
    ensure!(described == MAY.iter().map(|(id, _)| *id).collect::<Vec<_>>(), "{described:?}");
    Ok(())
}

#[test]
fn without_a_key_there_is_only_health() -> Result<()> {
    let node = Options::default().start()?;
    all_are(&node, &node.anybody(), &[For::Tenants, For::Operator], 401, "unauthenticated")?;
    none_is_refused(&node, &node.anybody(), For::Anybody)
}

#[test]
fn a_key_that_is_not_one_opens_nothing() -> Result<()> {
    let node = Options::default().start()?;
    let real = node.operator_key().context("no key")?.to_owned();
    let (id, proof) = (&real[..21], &real[21..]);
    let other_digit = if proof.ends_with('0') { "1" } else { "0" };
    let nearly = format!("{id}{}{other_digit}", &proof[..63]);
    let other_proof = format!("{id}{}", "0".repeat(64));
    let unknown = format!("weft_{}", "0".repeat(80));
    for wrong in [nearly.as_str(), &other_proof, &unknown, &real[..84], "weft_", "secret"] {
        all_are(&node, &Client::new(node.url(), Some(wrong)), &[For::Tenants, For::Operator], 401, "unauthenticated")?;
    }
    Ok(())
}

#[test]
fn a_key_counts_only_as_a_bearer() -> Result<()> {
    let node = Options::default().start()?;
    let key = node.operator_key().context("no key")?;
    for authorization in [format!("Basic {key}"), key.to_owned(), "Bearer".to_owned(), "Bearer ".to_owned()] {
        let answer = node.anybody().send("GET", "/v1/node", &[("authorization", &authorization)], b"")?;
        ensure!(answer.status == 401 && answer.header("www-authenticate") == Some("Bearer"), "{answer:?}");
    }
    Ok(())
}

#[test]
fn a_tenant_may_use_every_route_of_tenants() -> Result<()> {
    let node = Options::default().start()?;
    none_is_refused(&node, &node.tenant("one", json!({}))?, For::Tenants)
}

#[test]
fn a_tenant_may_use_no_route_of_the_operator() -> Result<()> {
    let node = Options::default().start()?;
    all_are(&node, &node.tenant("one", json!({}))?, &[For::Operator], 403, "forbidden")
}

#[test]
fn the_operator_may_use_every_route_of_the_operator() -> Result<()> {
    let node = Options::default().start()?;
    none_is_refused(&node, &node.operator()?, For::Operator)
}

#[test]
fn the_operator_may_use_no_route_of_tenants() -> Result<()> {
    let node = Options::default().start()?;
    all_are(&node, &node.operator()?, &[For::Tenants], 403, "forbidden")
}

#[test]
fn what_another_tenant_has_looks_like_what_does_not_exist() -> Result<()> {
    let node = Options::default().start()?;
    let owner = node.tenant("one", json!({}))?;
    owner.must_deploy("theirs", &components::echo()?)?;
    furnish(&owner)?;
    let stranger = node.tenant("two", json!({}))?;
    // Without what changes from one moment to the next, and without the name.
    let seen = |operation: &Operation, name: &str| -> Result<_> {
        let answer = operation.ask_of(&stranger, name)?;
        ensure!(answer.status == 404, "`{}`: {answer:?}", operation.id);
        let headers: BTreeMap<String, String> =
            answer.headers.iter().map(|(name, value)| (name.to_string(), format!("{value:?}"))).collect();
        let headers: Vec<_> = headers.into_iter().filter(|(name, _)| name != "date").collect();
        Ok((headers, answer.text().replace(name, "NAME").replace(&digest_of(name), "DIGEST")))
    };
    let operations: Vec<Operation> = Operation::all(&node)?.into_iter().filter(Operation::on_a_thing).collect();
    ensure!(operations.len() == ON_A_THING);
    for operation in operations {
        let (theirs, absent) = (seen(&operation, "theirs")?, seen(&operation, "absent")?);
        ensure!(theirs == absent, "`{}`: {theirs:?} or {absent:?}", operation.id);
    }
    Ok(())
}

/// A data set, a model and a parameter called `theirs`, and an upload that is not used yet.
fn furnish(client: &Client) -> Result<()> {
    let put = |path: &str, wish: &Value| client.send("PUT", path, &[], &serde_json::to_vec(wish)?)?.json();
    let upload = |bytes: &[u8]| -> Result<String> {
        let digest = Digest::of(bytes).to_string();
        client.post("/v1/uploads", &json!({ "digest": digest, "size": bytes.len() }))?.json()?;
        client.send("PUT", &format!("/v1/uploads/{digest}/parts/0"), &[], bytes)?.json()?;
        Ok(digest)
    };
    put("/v1/datasets/theirs", &json!({ "synthetic": { "kind": "binary20", "train": 5 } }))?;
    // The smallest file of safetensors: no tensors at all.
    put("/v1/models/theirs", &json!({ "upload": upload(b"\x02\0\0\0\0\0\0\0{}")? }))?;
    upload(THEIR_FILE)?;
    client.send("PUT", "/v1/params/theirs", &[], b"theirs")?.json()?;
    Ok(())
}

#[test]
fn nothing_is_made_of_another_tenants_upload() -> Result<()> {
    let node = Options::default().start()?;
    furnish(&node.tenant("one", json!({}))?)?;
    let stranger = node.tenant("two", json!({}))?;
    let digest = digest_of("theirs");
    let dataset = json!({ "train": [{ "features": { "upload": digest, "name": "theirs.csv" } }] });
    for (path, wish) in [("/v1/datasets/mine", &dataset), ("/v1/models/mine", &json!({ "upload": digest }))] {
        let answer = stranger.send("PUT", path, &[], &serde_json::to_vec(wish)?)?;
        ensure!(answer.problem_kind()?.0 == "not-found", "{answer:?}");
    }
    // To begin the same upload tells nothing of what somebody else has sent of it.
    let begun = stranger.post("/v1/uploads", &json!({ "digest": digest, "size": THEIR_FILE.len() }))?.json()?;
    ensure!(begun["missing"] == json!([0]), "{begun}");
    Ok(())
}

#[test]
fn a_name_that_another_tenant_has_is_free() -> Result<()> {
    let node = Options::default().start()?;
    let (one, two) = (node.tenant("one", json!({}))?, node.tenant("two", json!({}))?);
    let echo = components::echo()?;
    one.must_deploy("same", &echo)?;
    let answer = two.deploy("same", &components::marked(&echo, 1))?;
    ensure!(answer.status == 201, "{answer:?}");
    let versions = [&one, &two].map(|tenant| tenant.get("/v1/functions/same").and_then(|answer| answer.json()));
    let [one, two] = versions;
    ensure!(one?["version"] != two?["version"]);
    Ok(())
}

#[test]
fn a_list_holds_only_what_the_caller_has() -> Result<()> {
    let node = Options::default().start()?;
    let owner = node.tenant("one", json!({}))?;
    owner.must_deploy("theirs", &components::echo()?)?;
    furnish(&owner)?;
    let stranger = node.tenant("two", json!({}))?;
    for things in ["functions", "datasets", "models", "params"] {
        let list = |client: &Client| client.get(&format!("/v1/{things}"))?.json();
        ensure!(list(&owner)?[things].as_array().is_some_and(|owned| owned.len() == 1));
        ensure!(list(&stranger)?[things] == json!([]), "{}", list(&stranger)?);
    }
    Ok(())
}

fn rotated(node: &Node, name: &str) -> Result<Client> {
    let answer = node.operator()?.send("POST", &format!("/v1/tenants/{name}/rotate-key"), &[], b"")?.json()?;
    Ok(Client::new(node.url(), Some(answer["key"].as_str().context("no key")?)))
}

#[test]
fn a_rotated_key_stops_working_at_once() -> Result<()> {
    let node = Options::default().start()?;
    let old = node.tenant("one", json!({}))?;
    rotated(&node, "one")?;
    ensure!(old.get("/v1/usage")?.problem_kind()?.0 == "unauthenticated");
    Ok(())
}

#[test]
fn a_new_key_opens_what_the_old_one_did() -> Result<()> {
    let node = Options::default().start()?;
    node.tenant("one", json!({}))?.must_deploy("echo", &components::echo()?)?;
    ensure!(rotated(&node, "one")?.must_invoke("echo", "still here")? == "still here");
    Ok(())
}

/// A tenant with a function, a log and some usage, deleted.
fn deleted() -> Result<(Node, Client)> {
    let node = Options::default().start()?;
    let tenant = node.tenant("one", json!({}))?;
    tenant.must_deploy("it", &components::stored()?)?;
    tenant.must_invoke("it", "log")?;
    let answer = node.operator()?.send("DELETE", "/v1/tenants/one", &[], b"")?;
    ensure!(answer.status == 204, "{answer:?}");
    Ok((node, tenant))
}

#[test]
fn a_deleted_tenants_key_stops_working() -> Result<()> {
    let (_node, tenant) = deleted()?;
    ensure!(tenant.get("/v1/functions")?.problem_kind()?.0 == "unauthenticated");
    Ok(())
}

#[test]
fn a_deleted_tenants_files_are_gone() -> Result<()> {
    let (node, _) = deleted()?;
    ensure!(stored_files(&node)?.is_empty(), "{:?}", stored_files(&node)?);
    Ok(())
}

#[test]
fn a_deleted_tenant_stays_deleted_after_a_restart() -> Result<()> {
    let (node, tenant) = deleted()?;
    let node = node.kill_and_restart()?;
    let tenants = node.operator()?.get("/v1/tenants")?.json()?;
    ensure!(tenants["tenants"] == json!([]), "{tenants}");
    let tenant = Client::new(node.url(), tenant.key());
    ensure!(tenant.get("/v1/functions")?.problem_kind()?.0 == "unauthenticated");
    Ok(())
}

#[test]
fn a_component_that_another_tenant_uses_too_outlives_a_deleted_one() -> Result<()> {
    let node = Options::default().start()?;
    let (one, two) = (node.tenant("one", json!({}))?, node.tenant("two", json!({}))?);
    for tenant in [&one, &two] {
        tenant.must_deploy("echo", &components::echo()?)?;
    }
    node.operator()?.send("DELETE", "/v1/tenants/one", &[], b"")?;
    let node = node.kill_and_restart()?;
    ensure!(Client::new(node.url(), two.key()).must_invoke("echo", "mine")? == "mine");
    Ok(())
}

#[test]
fn a_new_tenant_of_an_old_name_inherits_nothing() -> Result<()> {
    let (node, _) = deleted()?;
    let tenant = node.tenant("one", json!({}))?;
    ensure!(tenant.get("/v1/functions")?.json()?["functions"] == json!([]));
    let usage = tenant.get("/v1/usage")?.json()?["usage"].clone();
    ensure!(usage.as_object().context("no usage")?.values().all(|value| *value == 0), "{usage}");
    tenant.must_deploy("it", &components::stored()?)?;
    let log = tenant.get("/v1/functions/it/logs")?.json()?;
    ensure!(log["lines"] == json!([]), "{log}");
    Ok(())
}

#[test]
fn a_deploy_that_its_tenants_end_overtakes_leaves_nothing() -> Result<()> {
    let node = Options::default().start()?;
    let tenant = node.tenant("one", json!({}))?;
    let echo = components::echo()?;
    let deploy = thread::spawn(move || tenant.deploy("echo", &echo));
    // The upload has a file, and its compiler's output another.
    eventually(Duration::from_secs(10), || Ok(files(&node.data_dir().join("staging"))?.len() == 2))?;
    node.operator()?.send("DELETE", "/v1/tenants/one", &[], b"")?;
    let answer = deploy.join().map_err(|_| anyhow!("the client panicked"))??;
    ensure!(answer.status >= 400, "{answer:?}");
    let node = node.kill_and_restart()?;
    ensure!(node.operator()?.get("/v1/node")?.json()?["functions"] == 0);
    ensure!(stored_files(&node)?.is_empty(), "{:?}", stored_files(&node)?);
    Ok(())
}

/// The part of a key that proves it, as it is written and as the bytes that it stands for.
fn secrets(key: &str) -> [Vec<u8>; 2] {
    let proof = &key[key.len() - 64..];
    let bytes = proof.as_bytes().chunks(2).filter_map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok());
    [proof.as_bytes().to_vec(), bytes.collect()]
}

fn holds(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// A node that logs all it can, with a tenant that has done something, and every key there ever was.
fn with_keys() -> Result<(Node, Client, Vec<String>)> {
    let node = Options::default().set("log-level", "trace").start()?;
    let mut keys = vec![node.operator_key().context("no key")?.to_owned()];
    keys.push(key(&node.tenant("tenant-name", json!({}))?)?.to_owned());
    let tenant = rotated(&node, "tenant-name")?;
    keys.push(key(&tenant)?.to_owned());
    tenant.must_deploy("function-name", &components::stored()?)?;
    for body in ["log", "hello", "panic", "error:other"] {
        tenant.invoke("function-name", body.as_bytes())?;
    }
    // One that works no longer.
    node.anybody().with_key(Some(&keys[1])).get("/v1/usage")?;
    Ok((node, tenant, keys))
}

#[test]
fn keys_are_neither_in_the_log_nor_on_disk() -> Result<()> {
    let (node, _, keys) = with_keys()?;
    let folder = node.stop()?;
    for file in files(folder.path())? {
        let bytes = fs::read(&file)?;
        for key in &keys {
            ensure!(!secrets(key).iter().any(|secret| holds(&bytes, secret)), "a key is in `{}`", file.display());
        }
    }
    Ok(())
}

#[test]
fn keys_are_in_no_answer_but_the_first() -> Result<()> {
    let (node, tenant, keys) = with_keys()?;
    for operation in Operation::all(&node)?.into_iter().filter(|operation| operation.method == "GET") {
        for client in [&tenant, &node.operator()?] {
            let answer = operation.ask_of(client, "function-name")?;
            for key in &keys {
                ensure!(!secrets(key).iter().any(|secret| holds(&answer.body, secret)), "`{}`", operation.id);
            }
        }
    }
    Ok(())
}

#[test]
fn metrics_name_nobody() -> Result<()> {
    let (node, tenant, _) = with_keys()?;
    tenant.get("/v1/functions/unknown-name")?;
    let metrics = node.operator()?.get("/metrics")?.text();
    for name in ["tenant-name", "function-name", "unknown-name"] {
        ensure!(!metrics.contains(name), "`{name}` is in {metrics}");
    }
    Ok(())
}

#[test]
fn a_tenant_does_not_see_another_in_its_usage() -> Result<()> {
    let node = Options::default().start()?;
    let (one, two) = (node.tenant("one", json!({}))?, node.tenant("two", json!({}))?);
    one.must_deploy("echo", &components::echo()?)?;
    one.must_invoke("echo", "hello")?;
    let usage: Value = two.get("/v1/usage")?.json()?;
    ensure!(usage["name"] == "two" && usage["usage"]["invocations"] == 0 && usage["now"]["functions"] == 0, "{usage}");
    Ok(())
}
