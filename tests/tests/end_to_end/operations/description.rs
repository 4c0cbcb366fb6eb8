//! The description of the API.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use weft::digest::Digest;
use weft_tests::components;
use weft_tests::http::{Answer, Client};
use weft_tests::node::{Node, Options};
use weft_tests::python;

fn description(node: &Node) -> Result<Value> {
    node.anybody().get("/openapi.json")?.json()
}

fn snapshot() -> PathBuf {
    components::repository().join("tests/snapshots/openapi.json")
}

#[test]
fn the_description_is_the_stored_one() -> Result<()> {
    let node = Options::default().start()?;
    let now = serde_json::to_string_pretty(&description(&node)?)? + "\n";
    if std::env::var_os("WEFT_UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(snapshot(), &now)?;
    }
    let stored = std::fs::read_to_string(snapshot()).unwrap_or_default();
    let differs = stored.lines().zip(now.lines()).find(|(stored, now)| stored != now);
    ensure!(
        stored == now,
        "the API is no longer what `tests/snapshots/openapi.json` says, first here: {differs:?}; if that is meant, run \
         this again with WEFT_UPDATE_SNAPSHOTS=1 and look at the difference"
    );
    Ok(())
}

#[test]
fn the_description_is_openapi_3_1() -> Result<()> {
    let node = Options::default().start()?;
    let version = description(&node)?["openapi"].clone();
    ensure!(version.as_str().is_some_and(|version| version.starts_with("3.1.")), "{version}");
    Ok(())
}

#[test]
fn what_the_description_refers_to_is_in_it() -> Result<()> {
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
                fields.values().for_each(|field| references(field, found));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }
    let node = Options::default().start()?;
    let description = description(&node)?;
    let mut found = Vec::new();
    references(&description, &mut found);
    ensure!(!found.is_empty());
    for reference in found {
        let pointer = reference.strip_prefix('#').context("a reference to elsewhere")?;
        ensure!(description.pointer(pointer).is_some(), "there is no `{reference}`");
    }
    Ok(())
}

/// What an operation says of a status.
fn declared<'a>(description: &'a Value, method: &str, path: &str, status: u16) -> Option<&'a Value> {
    let response = description["paths"][path][method.to_lowercase()]["responses"].get(status.to_string())?;
    match response["$ref"].as_str() {
        Some(reference) => description.pointer(reference.strip_prefix('#')?),
        None => Some(response),
    }
}

#[test]
fn a_validator_finds_nothing_wrong_with_the_description() -> Result<()> {
    let node = Options::default().start()?;
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("openapi.json"), description(&node)?.to_string())?;
    python::run(
        "import json, openapi_spec_validator; openapi_spec_validator.validate(json.load(open('openapi.json')))",
        folder.path(),
    )?;
    Ok(())
}

#[test]
fn no_operation_describes_a_whole_class_of_statuses() -> Result<()> {
    let node = Options::default().start()?;
    let description = description(&node)?;
    for (path, operations) in description["paths"].as_object().context("no paths")? {
        for (method, operation) in operations.as_object().context("no operations")? {
            let statuses = operation["responses"].as_object().context("no answers")?;
            let odd: Vec<_> = statuses.keys().filter(|status| status.parse::<u16>().is_err()).collect();
            ensure!(odd.is_empty(), "{method} {path} describes {odd:?}");
        }
    }
    Ok(())
}

#[test]
fn what_a_pattern_excludes_is_refused_and_what_it_admits_is_understood() -> Result<()> {
    let node = Options::default().start()?;
    let tenant = node.tenant("one", json!({}))?;
    let digest = Digest::of(b"");
    let status = |path: &str| -> Result<u16> { Ok(tenant.get(path)?.status) };
    for path in ["/v1/functions?limit=0", "/v1/jobs?limit=0", "/v1/params?limit=0", "/v1/jobs?state=lost"] {
        ensure!(status(path)? == 400, "{path}");
    }
    for path in
        ["/v1/functions?after=", "/v1/jobs?after=", "/v1/datasets?after=", "/v1/models?after=", "/v1/params?prefix="]
    {
        let of = |length: usize| format!("{path}{}", "x".repeat(length));
        ensure!((status(&of(1_024))?, status(&of(1_025))?) == (200, 400), "{path}");
    }
    let last = u64::MAX;
    ensure!(status(&format!("/v1/params/absent?newer_than={last}"))? != 400);
    ensure!(status(&format!("/v1/params/absent?newer_than={last}0"))? == 400);
    ensure!(status(&format!("/v1/uploads/{digest}"))? == 404);
    ensure!(status("/v1/uploads/sha256:0")? == 400);
    Ok(())
}

#[test]
fn methods_that_are_allowed_are_those_that_are_described() -> Result<()> {
    let node = Options::default().start()?;
    let tenant = node.tenant("one", json!({}))?;
    for (method, path, allowed) in [
        ("PUT", "/v1/jobs/absent", "GET,HEAD,DELETE"),
        ("POST", "/v1/jobs/absent", "GET,HEAD,DELETE"),
        ("OPTIONS", "/v1/jobs/absent", "GET,HEAD,DELETE"),
        ("PUT", "/v1/jobs", "POST,GET,HEAD"),
        ("PATCH", "/v1/functions/it", "PUT,GET,HEAD,DELETE"),
    ] {
        let answer = tenant.send(method, path, &[], b"")?;
        ensure!(answer.status == 405, "{method} {path}: {answer:?}");
        ensure!(answer.header("allow") == Some(allowed), "{method} {path}: {answer:?}");
    }
    Ok(())
}

#[test]
fn every_text_in_a_query_says_what_it_may_be() -> Result<()> {
    let node = Options::default().start()?;
    let description = description(&node)?;
    let mut seen = 0;
    for (path, operations) in description["paths"].as_object().context("no paths")? {
        let operations = operations.as_object().context("no operations")?;
        for parameter in operations.values().filter_map(|operation| operation["parameters"].as_array()).flatten() {
            let schema = &parameter["schema"];
            if parameter["in"] == "query" && schema["type"] == "string" {
                let is_bounded = ["pattern", "maxLength", "enum"].iter().any(|word| schema.get(word).is_some());
                ensure!(is_bounded, "{path}: `{}` may be anything: {schema}", parameter["name"]);
                seen += 1;
            }
        }
    }
    ensure!(seen > 5, "only {seen} texts in queries");
    Ok(())
}

/// That an answer is one of those that its operation describes, of a content type that is described.
fn is_declared(description: &Value, method: &str, path: &str, answer: &Answer) -> Result<()> {
    let declared = declared(description, method, path, answer.status)
        .with_context(|| format!("{method} {path} does not describe {}: {}", answer.status, answer.text()))?;
    let Some(kinds) = declared["content"].as_object() else {
        ensure!(answer.body.is_empty(), "{method} {path} describes no body: {answer:?}");
        return Ok(());
    };
    let kind = answer.header("content-type").unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default();
    ensure!(kinds.contains_key(kind), "{method} {path} {} is `{kind}`, not {kinds:?}", answer.status);
    Ok(())
}

#[test]
fn every_route_answers_as_it_is_described() -> Result<()> {
    let node = Options::default().start()?;
    let description = description(&node)?;
    let (nobody, operator) = (node.anybody(), node.operator()?);
    let tenant = node.tenant("one", json!({}))?;
    let echo = components::echo()?;
    let marked = components::marked(&echo, 1);
    let old = tenant.must_deploy("it", &components::hostile()?)?["function"]["version"].clone();
    let new_tenant = json!({ "name": "two" }).to_string();
    type Ask<'a> = (&'a str, &'a str, &'a str, &'a [u8], &'a [&'a Client]);
    let (anybody, all) = (&[&nobody][..], &[&nobody, &operator, &tenant][..]);
    let version = format!("/v1/functions/it/versions/{}", old.as_str().context("no version")?);
    let file = b"label,x\n0,1\n1,2\n";
    let upload = format!("/v1/uploads/{}", Digest::of(file));
    let (part, absent) = (format!("{upload}/parts/0"), format!("/v1/uploads/{}", Digest::of(b"absent")));
    let block = format!("/v1/datasets/set/blocks/{}", Digest::of(b"absent"));
    let begin = json!({ "digest": Digest::of(file), "size": file.len() }).to_string();
    let of_file =
        json!({ "train": [{ "features": { "upload": Digest::of(file), "name": "x.csv" } }], "label": "label" })
            .to_string();
    let header = br#"{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
    let weights = [&(header.len() as u64).to_le_bytes()[..], header, &[0; 4]].concat();
    let begin_weights = json!({ "digest": Digest::of(&weights), "size": weights.len() }).to_string();
    let weights_part = format!("/v1/uploads/{}/parts/0", Digest::of(&weights));
    let model = json!({ "upload": Digest::of(&weights) }).to_string();
    let no_model = json!({ "upload": Digest::of(file) }).to_string();
    let study =
        json!({ "name": "outside", "search": ["x=0..1"], "goal": "loss", "epochs": 3, "parallel": 0 }).to_string();
    let asks: &[Ask<'_>] = &[
        ("POST", "/v1/uploads", "/v1/uploads", begin.as_bytes(), all),
        ("POST", "/v1/uploads", "/v1/uploads", b"{}", all),
        ("GET", &upload, "/v1/uploads/{digest}", b"", all),
        ("GET", &absent, "/v1/uploads/{digest}", b"", all),
        ("PUT", &part, "/v1/uploads/{digest}/parts/{index}", b"short", all),
        ("PUT", &part, "/v1/uploads/{digest}/parts/{index}", file, all),
        ("PUT", "/v1/datasets/set", "/v1/datasets/{name}", of_file.as_bytes(), all),
        ("PUT", "/v1/datasets/set", "/v1/datasets/{name}", b"{}", all),
        ("PUT", "/v1/datasets/Set", "/v1/datasets/{name}", of_file.as_bytes(), all),
        ("POST", "/v1/datasets/set/append", "/v1/datasets/{name}/append", of_file.as_bytes(), all),
        ("POST", "/v1/datasets/absent/append", "/v1/datasets/{name}/append", of_file.as_bytes(), all),
        ("PUT", "/v1/datasets/set/on-append", "/v1/datasets/{name}/on-append", br#"{"function":"absent"}"#, all),
        ("PUT", "/v1/datasets/absent/on-append", "/v1/datasets/{name}/on-append", br#"{"function":"it"}"#, all),
        ("GET", "/v1/datasets/set/on-append", "/v1/datasets/{name}/on-append", b"", all),
        ("DELETE", "/v1/datasets/set/on-append", "/v1/datasets/{name}/on-append", b"", all),
        ("GET", "/v1/on-append", "/v1/on-append", b"", all),
        ("GET", "/v1/on-append?limit=x", "/v1/on-append", b"", all),
        ("GET", "/v1/prices", "/v1/prices", b"", all),
        ("GET", "/v1/datasets", "/v1/datasets", b"", all),
        ("GET", "/v1/datasets/set", "/v1/datasets/{name}", b"", all),
        ("GET", "/v1/datasets/absent", "/v1/datasets/{name}", b"", all),
        ("GET", "/v1/datasets/set/manifest", "/v1/datasets/{name}/manifest", b"", all),
        ("GET", "/v1/datasets/absent/manifest", "/v1/datasets/{name}/manifest", b"", all),
        ("GET", &block, "/v1/datasets/{name}/blocks/{digest}", b"", all),
        ("DELETE", "/v1/datasets/set", "/v1/datasets/{name}", b"", all),
        ("DELETE", "/v1/datasets/set", "/v1/datasets/{name}", b"", all),
        ("POST", "/v1/uploads", "/v1/uploads", begin_weights.as_bytes(), all),
        ("PUT", &weights_part, "/v1/uploads/{digest}/parts/{index}", &weights, all),
        ("PUT", "/v1/models/mine", "/v1/models/{name}", model.as_bytes(), all),
        ("PUT", "/v1/models/mine", "/v1/models/{name}", no_model.as_bytes(), all),
        ("PUT", "/v1/models/mine", "/v1/models/{name}", b"not json", all),
        ("DELETE", &upload, "/v1/uploads/{digest}", b"", all),
        ("DELETE", &absent, "/v1/uploads/{digest}", b"", all),
        ("GET", "/v1/models", "/v1/models", b"", all),
        ("GET", "/v1/models/mine", "/v1/models/{name}", b"", all),
        ("GET", "/v1/models/absent", "/v1/models/{name}", b"", all),
        ("GET", "/v1/models/mine/file", "/v1/models/{name}/file", b"", all),
        ("GET", "/v1/models/mine/file?format=soup", "/v1/models/{name}/file", b"", all),
        ("GET", "/v1/models/absent/file", "/v1/models/{name}/file", b"", all),
        ("DELETE", "/v1/models/mine", "/v1/models/{name}", b"", all),
        ("DELETE", "/v1/models/mine", "/v1/models/{name}", b"", all),
        ("POST", "/v1/jobs", "/v1/jobs", br#"{"function":"absent"}"#, all),
        ("POST", "/v1/jobs", "/v1/jobs", br#"{"function":"it","k":0}"#, all),
        ("POST", "/v1/jobs", "/v1/jobs", b"{}", all),
        ("GET", "/v1/jobs", "/v1/jobs", b"", all),
        ("GET", "/v1/jobs?state=running&limit=1", "/v1/jobs", b"", all),
        ("GET", "/v1/jobs?state=lost", "/v1/jobs", b"", all),
        ("GET", "/v1/jobs/absent", "/v1/jobs/{name}", b"", all),
        ("GET", "/v1/jobs/absent/history", "/v1/jobs/{name}/history", b"", all),
        ("GET", "/v1/jobs/absent/plan", "/v1/jobs/{name}/plan", b"", all),
        ("GET", "/v1/jobs/absent/events", "/v1/jobs/{name}/events", b"", all),
        ("GET", "/v1/jobs/absent/logs", "/v1/jobs/{name}/logs", b"", all),
        ("POST", "/v1/jobs/absent/stop", "/v1/jobs/{name}/stop", b"", all),
        ("POST", "/v1/jobs/absent/resume", "/v1/jobs/{name}/resume", b"", all),
        ("POST", "/v1/jobs/absent/scale", "/v1/jobs/{name}/scale", br#"{"workers":2}"#, all),
        ("POST", "/v1/jobs/absent/scale", "/v1/jobs/{name}/scale", br#"{"wokers":2}"#, all),
        ("POST", "/v1/jobs/absent/workers/0/kill", "/v1/jobs/{name}/workers/{worker}/kill", b"", all),
        ("POST", "/v1/jobs/absent/workers/one/kill", "/v1/jobs/{name}/workers/{worker}/kill", b"", all),
        ("POST", "/v1/jobs/absent/infer", "/v1/jobs/{name}/infer", br#"{"samples":[[1]]}"#, all),
        ("DELETE", "/v1/jobs/absent", "/v1/jobs/{name}", b"", all),
        ("POST", "/v1/jobs/prune", "/v1/jobs/prune", b"", all),
        ("GET", "/v1/functions/absent/description", "/v1/functions/{name}/description", b"", all),
        ("GET", "/v1/functions/it/description", "/v1/functions/{name}/description", b"", all),
        ("POST", "/v1/tunes", "/v1/tunes", study.as_bytes(), all),
        ("POST", "/v1/tunes", "/v1/tunes", study.as_bytes(), all),
        ("POST", "/v1/tunes", "/v1/tunes", br#"{"job":{"function":"absent"},"search":["lr=0..1"]}"#, all),
        ("POST", "/v1/tunes", "/v1/tunes", b"{}", all),
        ("GET", "/v1/tunes", "/v1/tunes", b"", all),
        ("GET", "/v1/tunes?state=running&limit=1", "/v1/tunes", b"", all),
        ("GET", "/v1/tunes?state=lost", "/v1/tunes", b"", all),
        ("POST", "/v1/tunes/outside/ask", "/v1/tunes/{name}/ask", b"", all),
        ("POST", "/v1/tunes/absent/ask", "/v1/tunes/{name}/ask", b"", all),
        ("POST", "/v1/tunes/outside/tell", "/v1/tunes/{name}/tell", br#"{"trial":0,"epoch":1,"value":1}"#, all),
        ("POST", "/v1/tunes/outside/tell", "/v1/tunes/{name}/tell", br#"{"trial":0,"epoch":1,"value":1}"#, all),
        ("POST", "/v1/tunes/outside/tell", "/v1/tunes/{name}/tell", br#"{"trial":9}"#, all),
        ("POST", "/v1/tunes/outside/tell", "/v1/tunes/{name}/tell", b"{}", all),
        ("GET", "/v1/tunes/outside", "/v1/tunes/{name}", b"", all),
        ("GET", "/v1/tunes/absent", "/v1/tunes/{name}", b"", all),
        ("GET", "/v1/tunes/outside/trials?limit=1", "/v1/tunes/{name}/trials", b"", all),
        ("GET", "/v1/tunes/outside/trials?after=x", "/v1/tunes/{name}/trials", b"", all),
        ("GET", "/v1/tunes/outside/events", "/v1/tunes/{name}/events", b"", all),
        ("GET", "/v1/tunes/absent/events", "/v1/tunes/{name}/events", b"", all),
        ("POST", "/v1/tunes/outside/resume", "/v1/tunes/{name}/resume", b"", all),
        ("POST", "/v1/tunes/outside/stop", "/v1/tunes/{name}/stop", b"", all),
        ("DELETE", "/v1/tunes/outside", "/v1/tunes/{name}", b"", all),
        ("DELETE", "/v1/tunes/outside", "/v1/tunes/{name}", b"", all),
        ("PUT", "/v1/params/w", "/v1/params/{name}", b"x", all),
        ("PUT", "/v1/params/w?expected=7", "/v1/params/{name}", b"x", all),
        ("PUT", "/v1/params/~w", "/v1/params/{name}", b"x", all),
        ("GET", "/v1/params", "/v1/params", b"", all),
        ("GET", "/v1/params?after=~", "/v1/params", b"", all),
        ("GET", "/v1/params/w", "/v1/params/{name}", b"", all),
        ("GET", "/v1/params/w?newer_than=1000000", "/v1/params/{name}", b"", all),
        ("GET", "/v1/params/absent", "/v1/params/{name}", b"", all),
        ("DELETE", "/v1/params/w", "/v1/params/{name}", b"", all),
        ("DELETE", "/v1/params/w", "/v1/params/{name}", b"", all),
        ("DELETE", "/v1/params", "/v1/params", b"", all),
        ("GET", "/livez", "/livez", b"", anybody),
        ("GET", "/readyz", "/readyz", b"", anybody),
        ("GET", "/metrics", "/metrics", b"", all),
        ("GET", "/v1/node", "/v1/node", b"", all),
        ("GET", "/v1/devices", "/v1/devices", b"", all),
        ("POST", "/v1/devices/cpu/reset", "/v1/devices/{device}/reset", b"", all),
        ("POST", "/v1/devices/absent/reset", "/v1/devices/{device}/reset", b"", all),
        ("GET", "/v1/backup", "/v1/backup", b"", all),
        ("GET", "/v1/usage", "/v1/usage", b"", all),
        ("POST", "/v1/tenants", "/v1/tenants", new_tenant.as_bytes(), all),
        ("POST", "/v1/tenants", "/v1/tenants", new_tenant.as_bytes(), all),
        ("POST", "/v1/tenants", "/v1/tenants", b"not json", all),
        ("GET", "/v1/tenants", "/v1/tenants", b"", all),
        ("GET", "/v1/tenants?limit=x", "/v1/tenants", b"", all),
        ("GET", "/v1/tenants/two", "/v1/tenants/{tenant}", b"", all),
        ("GET", "/v1/tenants/absent", "/v1/tenants/{tenant}", b"", all),
        ("PATCH", "/v1/tenants/two/quota", "/v1/tenants/{tenant}/quota", b"{}", all),
        ("PATCH", "/v1/tenants/two/quota", "/v1/tenants/{tenant}/quota", b"x", all),
        ("PATCH", "/v1/tenants/absent/quota", "/v1/tenants/{tenant}/quota", b"{}", all),
        ("POST", "/v1/tenants/two/rotate-key", "/v1/tenants/{tenant}/rotate-key", b"", all),
        ("POST", "/v1/tenants/absent/rotate-key", "/v1/tenants/{tenant}/rotate-key", b"", all),
        ("DELETE", "/v1/tenants/two", "/v1/tenants/{tenant}", b"", all),
        ("DELETE", "/v1/tenants/two", "/v1/tenants/{tenant}", b"", all),
        ("PUT", "/v1/functions/echo", "/v1/functions/{name}", &echo, all),
        ("PUT", "/v1/functions/it", "/v1/functions/{name}", &echo, all),
        ("PUT", "/v1/functions/it", "/v1/functions/{name}", &marked, all),
        ("PUT", "/v1/functions/it", "/v1/functions/{name}", b"not wasm", all),
        ("GET", "/v1/functions", "/v1/functions", b"", all),
        ("GET", "/v1/functions?limit=x", "/v1/functions", b"", all),
        ("GET", "/v1/functions/it", "/v1/functions/{name}", b"", all),
        ("GET", "/v1/functions/absent", "/v1/functions/{name}", b"", all),
        ("GET", "/v1/functions/it/versions", "/v1/functions/{name}/versions", b"", all),
        ("GET", "/v1/functions/absent/versions", "/v1/functions/{name}/versions", b"", all),
        ("GET", "/v1/functions/it/logs", "/v1/functions/{name}/logs", b"", all),
        ("GET", "/v1/functions/it/logs?tail=x", "/v1/functions/{name}/logs", b"", all),
        ("GET", "/v1/functions/absent/logs", "/v1/functions/{name}/logs", b"", all),
        ("POST", "/v1/functions/it/rollback", "/v1/functions/{name}/rollback", b"", all),
        ("POST", "/v1/functions/echo/rollback", "/v1/functions/{name}/rollback", b"", all),
        ("POST", "/v1/functions/it/rollback", "/v1/functions/{name}/rollback", b"x", all),
        ("DELETE", &version, "/v1/functions/{name}/versions/{version}", b"", all),
        ("DELETE", &version, "/v1/functions/{name}/versions/{version}", b"", all),
        ("POST", "/v1/functions/it/invoke", "/v1/functions/{name}/invoke", b"x", all),
        ("POST", "/v1/functions/absent/invoke", "/v1/functions/{name}/invoke", b"x", all),
        ("DELETE", "/v1/functions/it", "/v1/functions/{name}", b"", all),
        ("DELETE", "/v1/functions/it", "/v1/functions/{name}", b"", all),
    ];
    let mut seen = Vec::new();
    for (method, path, template, body, clients) in asks {
        for client in *clients {
            let kind = match template.ends_with("/invoke") {
                true => "application/octet-stream",
                false => "application/json",
            };
            let headers = &[("content-type", kind)];
            let answer = client.send(method, path, headers, body)?;
            is_declared(&description, method, template, &answer)?;
            seen.push((method.to_lowercase(), template.to_string()));
        }
    }
    for (path, methods) in description["paths"].as_object().context("no paths")? {
        for method in methods.as_object().context("no methods")?.keys() {
            ensure!(seen.contains(&(method.clone(), path.clone())), "{method} {path} was not asked for");
        }
    }
    Ok(())
}

#[test]
fn a_functions_own_failures_are_described() -> Result<()> {
    let node = Options::default().start()?;
    let description = description(&node)?;
    let tenant = node.tenant("one", json!({ "cpu_ms": 50 }))?;
    tenant.must_deploy("it", &components::hostile()?)?;
    for body in ["error:other", "trap", "loop", "alloc:1000000000"] {
        let answer = tenant.invoke("it", body.as_bytes())?;
        ensure!(answer.status >= 400, "{answer:?}");
        is_declared(&description, "POST", "/v1/functions/{name}/invoke", &answer)?;
    }
    Ok(())
}

#[test]
fn streams_of_events_are_described() -> Result<()> {
    let node = Options::default().start()?;
    let description = description(&node)?;
    for path in
        ["/v1/functions/{name}/logs", "/v1/jobs/{name}/logs", "/v1/jobs/{name}/events", "/v1/tunes/{name}/events"]
    {
        let stream = declared(&description, "GET", path, 200).with_context(|| format!("{path} is not described"))?;
        ensure!(stream["content"].get("text/event-stream").is_some(), "{path}: {stream}");
    }
    Ok(())
}
