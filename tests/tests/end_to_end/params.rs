//! The parameter store over HTTP, by the command line, and from functions.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use weft_tests::command::User;
use weft_tests::components;
use weft_tests::http::{Answer, Client};
use weft_tests::node::{Node, Options, eventually};
use weft_tests::redis::RedisServer;

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn put(client: &Client, path: &str, form: &str, body: &[u8]) -> Result<Answer> {
    client.send("PUT", &format!("/v1/params/{path}"), &[("weft-form", form)], body)
}

fn must_put(client: &Client, path: &str, form: &str, body: &[u8]) -> Result<u64> {
    let answer = put(client, path, form, body)?;
    ensure!(answer.status == 200, "{answer:?}");
    answer.json()?["version"].as_u64().context("no version")
}

fn with_store(options: Options, device: &str, quota: serde_json::Value) -> Result<(Node, Client)> {
    let node = options.set("devices", device).start()?;
    let tenant = node.tenant("one", quota)?;
    tenant.must_deploy("store", &components::component("tests/guests/store")?)?;
    Ok((node, tenant))
}

/// What the function says to each line.
fn tell(tenant: &Client, lines: &[&str]) -> Result<Vec<String>> {
    let said = tenant.must_invoke("store", &lines.join("\n"))?;
    Ok(said.lines().map(str::to_owned).collect())
}

fn refused(tenant: &Client, line: &str) -> Result<(String, String)> {
    let problem = tenant.invoke("store", line.as_bytes())?.problem()?;
    Ok((problem.function_error.unwrap_or_default(), problem.detail))
}

#[test]
fn values_are_set_fetched_listed_and_deleted() -> Result<()> {
    let node = Options::default().dev().set("devices", "none").start()?;
    let client = node.anybody();
    let first = must_put(&client, "layer/weight", "f32 [2, 1]", &floats(&[1.5, -2.0]))?;
    let got = client.get("/v1/params/layer/weight")?;
    ensure!(got.status == 200 && got.body == floats(&[1.5, -2.0]), "{got:?}");
    ensure!(got.header("weft-form") == Some("f32 [2, 1]"));
    ensure!(got.header("weft-param-version") == Some(first.to_string().as_str()));
    ensure!(client.get("/v1/params/layer/weight?start=4&end=8")?.body == floats(&[-2.0]));
    ensure!(client.get(&format!("/v1/params/layer/weight?newer_than={first}"))?.status == 204);
    let second = must_put(&client, &format!("layer/weight?expected={first}"), "bytes", b"new")?;
    let conflict = put(&client, &format!("layer/weight?expected={first}"), "bytes", b"late")?;
    ensure!(conflict.status == 409 && conflict.problem()?.detail.contains(&second.to_string()), "{conflict:?}");
    ensure!(put(&client, "layer/weight?expected=0", "bytes", b"late")?.status == 409);
    must_put(&client, "a", "counter", &7_i64.to_le_bytes())?;
    must_put(&client, "b?job=train-1", "bytes", b"of a job")?;
    let list = client.get("/v1/params?limit=1")?.json()?;
    ensure!(
        list["params"][0]["name"] == "a" && list["params"][0]["form"] == "counter" && list["next"] == "a",
        "{list}"
    );
    ensure!(list["jobs"] == json!(["train-1"]), "{list}");
    let rest = client.get("/v1/params?after=a")?.json()?;
    ensure!(rest["params"][0]["name"] == "layer/weight" && rest["params"][0]["version"] == second, "{rest}");
    ensure!(client.get("/v1/params?job=train-1")?.json()?["params"][0]["bytes"] == 8);
    ensure!(client.send("DELETE", "/v1/params/a", &[], b"")?.status == 204);
    ensure!(client.send("DELETE", "/v1/params/a", &[], b"")?.status == 404);
    ensure!(client.get("/v1/params/a")?.status == 404);
    ensure!(client.send("DELETE", "/v1/params", &[], b"")?.json()?["deleted"] == 2);
    ensure!(client.get("/v1/params")?.json()?["params"] == json!([]));
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused_with_the_reason() -> Result<()> {
    let node = Options::default().dev().set("devices", "none").start()?;
    let client = node.anybody();
    for (path, form, body, reason) in [
        ("a", "f32 [2]", &b"123"[..], "8 bytes"),
        ("a", "f33 [2]", b"12345678", "weft-form"),
        ("a", "u8 [1, 1, 1, 1, 1, 1, 1, 1, 1]", b"1", "weft-form"),
        ("a", "counter", b"1", "8 bytes"),
        ("a%20b", "bytes", b"", "not the name"),
        ("~c/r/0", "bytes", b"", "not the name"),
        ("a//b", "bytes", b"", "not the name"),
        ("..%2Fother", "bytes", b"", "not the name"),
        ("a?job=No", "bytes", b"", "not a name"),
        ("a?durabel=true", "bytes", b"", "durabel"),
    ] {
        let answer = put(&client, path, form, body)?;
        ensure!(answer.status == 400 && answer.problem()?.detail.contains(reason), "{path}, {form}: {answer:?}");
    }
    must_put(&client, "a", "bytes", b"0123")?;
    ensure!(client.get("/v1/params/a?start=3&end=5")?.problem()?.detail.contains("which has 4"));
    ensure!(client.get("/v1/params?job=x/y")?.status == 400);
    Ok(())
}

#[test]
fn a_request_can_wait_for_what_is_newer() -> Result<()> {
    let node = Options::default().dev().set("devices", "none").start()?;
    let client = node.anybody();
    let start = Instant::now();
    ensure!(client.get("/v1/params/a?wait_ms=100")?.status == 204 && start.elapsed() >= Duration::from_millis(100));
    let waiting = {
        let client = node.anybody();
        std::thread::spawn(move || client.get("/v1/params/a?wait_ms=30000"))
    };
    must_put(&client, "a", "bytes", b"here")?;
    let got = waiting.join().expect("no panic")?;
    ensure!(got.status == 200 && got.body == b"here", "{got:?}");
    Ok(())
}

#[test]
fn a_tenant_pays_for_its_own_and_sees_no_other() -> Result<()> {
    let node = Options::default().set("devices", "none").start()?;
    let [one, two] =
        [("one", json!({ "params_bytes": 10_000 })), ("two", json!({}))].map(|(name, quota)| node.tenant(name, quota));
    let (one, two) = (one?, two?);
    must_put(&one, "secret", "bytes", b"of the first")?;
    ensure!(two.get("/v1/params/secret")?.status == 404 && two.get("/v1/params")?.json()?["params"] == json!([]));
    let over = put(&one, "large", "bytes", &[0; 10_000])?;
    let problem = over.problem()?;
    ensure!(over.status == 403 && problem.limit.as_deref() == Some("params_bytes"), "{over:?}");
    must_put(&two, "large", "bytes", &[0; 10_000])?;
    let usage = one.usage()?.usage;
    ensure!(usage.params_operations >= 1 && usage.params_moved_bytes >= 12, "{usage:?}");
    // Nobody of the same name finds what it had.
    ensure!(node.operator()?.send("DELETE", "/v1/tenants/one", &[], b"")?.status == 204);
    let again = node.tenant("one", json!({}))?;
    ensure!(again.get("/v1/params/secret")?.status == 404);
    Ok(())
}

#[test]
fn durable_values_survive_kill_9_and_all_of_them_an_orderly_stop() -> Result<()> {
    let node = Options::default().dev().set("devices", "none").start()?;
    let client = node.anybody();
    let version = must_put(&client, "kept?durable=true", "f32 [1]", &floats(&[1.0]))?;
    let node = node.kill_and_restart()?;
    let client = node.anybody();
    let kept = client.get("/v1/params/kept")?;
    ensure!(kept.status == 200 && kept.header("weft-param-version") == Some(version.to_string().as_str()), "{kept:?}");
    must_put(&client, "passing", "bytes", b"x")?;
    let node = Options::default().dev().set("devices", "none").start_in(node.stop()?)?;
    let client = node.anybody();
    ensure!(client.get("/v1/params/kept")?.status == 200 && client.get("/v1/params/passing")?.body == b"x");
    ensure!(must_put(&client, "kept", "bytes", b"")? > version);
    Ok(())
}

#[test]
fn a_backup_has_the_parameters_too() -> Result<()> {
    let node = Options::default().dev().set("devices", "none").start()?;
    must_put(&node.anybody(), "w", "f32 [1]", &floats(&[1.0]))?;
    let user = User::of(&node.anybody())?;
    let archive = user.home().join("backup.tar");
    let archive = archive.to_str().context("a path")?;
    user.must(&["backup", archive])?;
    let folder = std::sync::Arc::new(tempfile::tempdir()?);
    let data = folder.path().join("data");
    User::new()?.must(&["restore", archive, "--data-dir", data.to_str().context("a path")?])?;
    let again = Options::default().dev().set("devices", "none").start_in(folder)?;
    ensure!(again.anybody().get("/v1/params/w")?.body == floats(&[1.0]));
    Ok(())
}

#[test]
fn the_command_line_lists_gets_sets_and_deletes() -> Result<()> {
    let node = Options::default().dev().set("devices", "none").start()?;
    let user = User::of(&node.anybody())?;
    ensure!(user.must(&["params", "list"])?.lines().count() == 1);
    let file = user.file("w.bin", floats(&[1.5, 2.5]))?;
    let file = file.to_str().context("a path")?;
    user.must(&["params", "set", "model/w", file, "--form", "f32 [2]", "--durable"])?;
    user.must(&["params", "set", "note", file, "--job", "train-1"])?;
    ensure!(user.must(&["params", "get", "model/w"])? == "1.5\n2.5\n");
    let listed = user.must(&["params", "list", "model/"])?;
    ensure!(listed.contains("model/w") && listed.contains("f32 [2]") && listed.contains("train-1"), "{listed}");
    ensure!(user.json(&["params", "list", "--job", "train-1"])?["params"][0]["name"] == "note");
    let saved = user.home().join("saved");
    user.must(&["params", "get", "note", "--job", "train-1", "-o", saved.to_str().context("a path")?])?;
    ensure!(std::fs::read(&saved)? == floats(&[1.5, 2.5]));
    let refused = user.weft(&["params", "delete", "model/w"])?;
    ensure!(refused.code == Some(2), "nobody was asked: {refused:?}");
    user.must(&["params", "delete", "model/w", "--yes"])?;
    ensure!(user.weft(&["params", "get", "model/w"])?.code == Some(1));
    user.must(&["params", "delete", "--all", "--yes"])?;
    ensure!(user.json(&["params", "list", "--job", "train-1"])?["params"] == json!([]));
    Ok(())
}

fn a_function_uses_the_store(device: &str) -> Result<()> {
    let (_node, tenant) = with_store(Options::default(), device, json!({}))?;
    let said = tell(
        &tenant,
        &[
            "set w 1.5 2",
            "get w",
            "newer w 0",
            "take w",
            "get w",
            "cas w 0 3",
            "get w",
            "count n 5",
            "count n -7",
            "bytes b hello",
            "text b",
            "list w",
            "delete b",
            "delete b",
            "publish g 1 4",
            "publish g 0 5",
            "latest g",
            "job other",
            "get w",
        ],
    )?;
    let expected = [
        "1.5,2", "1.5,2", "1.5,2", "nothing", "", "3", "5", "-2", "", "hello", "w", "true", "false", "", "", "0:5 1:4",
        "", "nothing",
    ];
    for (index, expected) in expected.iter().enumerate() {
        let found = &said[index + 1];
        // Versions are whatever they are.
        ensure!(expected.is_empty() || found == expected, "line {}: `{found}`, not `{expected}`", index + 1);
    }
    // What a function leaves is there for others.
    ensure!(tenant.get("/v1/params/w")?.body == floats(&[3.0]));
    must_put(&tenant, "given?job=train-1", "f32 [2]", &floats(&[8.0, 9.0]))?;
    ensure!(tell(&tenant, &["job train-1", "get given"])?[1] == "8,9");
    Ok(())
}

#[test]
fn a_function_on_the_cores_uses_the_store() -> Result<()> {
    a_function_uses_the_store("cpu")
}

#[test]
fn a_function_on_a_gpu_uses_the_store() -> Result<()> {
    a_function_uses_the_store("gpu:0")
}

#[test]
fn what_a_function_cannot_take_stays() -> Result<()> {
    let (_node, tenant) = with_store(Options::default(), "cpu", json!({}))?;
    tell(&tenant, &["bytes b hello"])?;
    let (case, detail) = refused(&tenant, "take b")?;
    ensure!(case == "bad-shape" && detail.contains("a tensor was wanted"), "{case}: {detail}");
    ensure!(tell(&tenant, &["text b"])? == ["hello"]);
    Ok(())
}

#[test]
fn functions_meet_in_rounds_and_at_barriers() -> Result<()> {
    let (_node, tenant) = with_store(Options::default(), "cpu", json!({}))?;
    let workers: Vec<_> = (0..4)
        .map(|worker| {
            let tenant = tenant.with_key(tenant.key());
            std::thread::spawn(move || {
                let lines = [
                    format!("contribute round/1 {worker} {}.5 1", worker),
                    format!("contribute round/1 {worker} 100 100"),
                    "merged round/1 4".to_owned(),
                    format!("barrier gate {worker} 4"),
                    format!("claim worker/{worker}"),
                ];
                tell(&tenant, &lines.each_ref().map(String::as_str))
            })
        })
        .collect();
    for worker in workers {
        let said = worker.join().expect("no panic")?;
        ensure!(said[..4] == ["true", "false", "8,4", "here"] && said[4].parse::<u64>()? > 0, "{said:?}");
    }
    Ok(())
}

#[test]
fn a_function_that_waits_is_ended_at_its_deadline() -> Result<()> {
    let (node, tenant) = with_store(Options::default(), "cpu", json!({ "wall_ms": 500 }))?;
    // For a value that nobody sets, for others who never come, and for what they would have contributed.
    for wait in ["wait never 0", "barrier alone 0 2", "contribute round 0 1\nmerged round 2"] {
        let start = Instant::now();
        let answer = tenant.invoke("store", wait.as_bytes())?;
        ensure!(answer.status == 504, "{wait}: {answer:?}");
        let ended = ("deadline-exceeded".to_owned(), Some("wall_ms".to_owned()));
        ensure!(answer.problem_kind()? == ended, "{wait}: {answer:?}");
        ensure!(start.elapsed() < Duration::from_secs(10), "{wait}: {:?}", start.elapsed());
    }
    // Whoever came, and what was contributed, is kept.
    ensure!(tenant.send("DELETE", "/v1/params", &[], b"")?.status == 200);
    node.idle(Duration::from_secs(10))
}

#[test]
fn a_function_cannot_leave_its_names_or_flood_the_store() -> Result<()> {
    let quota = json!({ "params_bytes": 1_000_000 });
    let (node, tenant) = with_store(Options::default(), "cpu", quota)?;
    for name in ["../two/w", "/w", "~c/r/00000000", "a//b", "a/./b"] {
        for line in
            [format!("get {name}"), format!("set {name} 1"), format!("delete {name}"), format!("count {name} 1")]
        {
            let (case, detail) = refused(&tenant, &line)?;
            ensure!(case == "bad-input" && detail.contains("not the name of a value"), "{line}: {case}: {detail}");
        }
    }
    let (case, detail) = refused(&tenant, "job ../two")?;
    ensure!(case == "bad-input", "{case}: {detail}");
    let (case, detail) = refused(&tenant, "flood 1000000 0")?;
    ensure!(case == "quota" && detail.contains("params_bytes"), "{case}: {detail}");
    let (case, detail) = refused(&tenant, "flood 100 500000")?;
    ensure!(case == "quota" && detail.contains("params_bytes"), "{case}: {detail}");
    let (case, detail) = refused(&tenant, "large w 1000000")?;
    ensure!(case == "quota" && detail.contains("params_bytes"), "{case}: {detail}");
    // As many as there are, a page at a time and no more.
    let listed = tell(&tenant, &["list flood/"])?;
    ensure!(listed[0].split(' ').count() == 1_000, "{}", listed[0].split(' ').count());
    let other = node.tenant("two", json!({}))?;
    ensure!(other.get("/v1/params")?.json()?["params"] == json!([]));
    ensure!(tenant.send("DELETE", "/v1/params", &[], b"")?.status == 200);
    tell(&tenant, &["set w 1"]).map(drop)
}

#[test]
fn a_deleted_job_takes_its_values_along() -> Result<()> {
    let node = Options::default().dev().set("devices", "cpu").start()?;
    let client = node.anybody();
    super::jobs::prepare(&client)?;
    let spec = super::jobs::lenet(json!({ "name": "brief", "epochs": 1 }));
    client.must_submit(&spec)?;
    client.must_finish("brief", Duration::from_secs(120))?;
    must_put(&client, "w?job=brief", "bytes", b"x")?;
    ensure!(client.send("DELETE", "/v1/jobs/brief", &[], b"")?.status == 204);
    ensure!(client.get("/v1/params/w?job=brief")?.status == 404);
    Ok(())
}

/// If its values stayed, a later job of its name would find them.
#[test]
fn a_job_whose_values_cannot_be_deleted_stays() -> Result<()> {
    let mut server = RedisServer::start()?;
    let options = Options::default().dev().set("devices", "cpu").set("params-store", server.address());
    let node = options.start()?;
    let client = node.anybody();
    super::jobs::prepare(&client)?;
    client.must_submit(&super::jobs::lenet(json!({ "name": "brief", "epochs": 1 })))?;
    client.must_finish("brief", Duration::from_secs(120))?;
    must_put(&client, "w?job=brief", "bytes", b"x")?;
    // It keeps nothing: from now on the store says that what it had is lost, until that is accepted.
    server.restart()?;
    let refused = client.send("DELETE", "/v1/jobs/brief", &[], b"")?;
    ensure!(refused.status == 409 && refused.problem()?.detail.contains("lost"), "{refused:?}");
    ensure!(client.get("/v1/jobs/brief")?.status == 200, "it is gone");
    ensure!(client.send("DELETE", "/v1/params", &[], b"")?.status == 200);
    ensure!(client.send("DELETE", "/v1/jobs/brief", &[], b"")?.status == 204);
    ensure!(client.get("/v1/jobs/brief")?.status == 404);
    Ok(())
}

#[test]
fn nodes_share_a_redis() -> Result<()> {
    let server = RedisServer::with(&["--save", "", "--requirepass", "sesame"])?;
    let address = format!("redis://:sesame@127.0.0.1:{}", server.port());
    let options = || Options::default().set("devices", "cpu").set("params-store", &address);
    let (one, two) = (options().start()?, options().start()?);
    let (first, stranger) = (one.tenant("ada", json!({}))?, two.tenant("ada", json!({}))?);
    // A name is nothing that is shared; what the operator gives to both is.
    let store = one.operator()?.get("/v1/tenants/ada")?.json()?["store"].clone();
    let shared = json!({ "name": "ada-too", "store": store });
    let created = two.operator()?.post("/v1/tenants", &shared)?.json()?;
    let second = stranger.with_key(created["key"].as_str());
    let version = must_put(&first, "w", "f32 [2]", &floats(&[1.0, 2.0]))?;
    ensure!(stranger.get("/v1/params/w")?.status == 404);
    let got = second.get("/v1/params/w")?;
    ensure!(got.body == floats(&[1.0, 2.0]) && got.header("weft-param-version") == Some(version.to_string().as_str()));
    second.must_deploy("store", &components::component("tests/guests/store")?)?;
    let said = tell(&second, &["get w", "contribute r 0 1", "contribute r 1 2", "merged r 2", "count n 3"])?;
    ensure!(said == ["1,2", "true", "true", "3", "3"], "{said:?}");
    ensure!(first.get("/v1/params/r")?.body == floats(&[3.0]));
    ensure!(two.operator()?.send("POST", "/v1/tenants", &[], shared.to_string().as_bytes())?.status == 409);
    ensure!(!one.log()?.contains("sesame") && !two.log()?.contains("sesame"), "the password is in the log");
    Ok(())
}

#[test]
fn an_emptied_redis_is_told_and_can_be_accepted() -> Result<()> {
    let mut server = RedisServer::start()?;
    let node = Options::default().dev().set("devices", "none").set("params-store", server.address()).start()?;
    let client = node.anybody();
    must_put(&client, "w", "bytes", b"x")?;
    server.restart()?;
    let lost = client.get("/v1/params/w")?;
    ensure!(lost.status == 409 && lost.problem()?.detail.contains("lost"), "{lost:?}");
    ensure!(!lost.problem()?.detail.contains("127.0.0.1"), "where the store is, is nobody's business: {lost:?}");
    ensure!(client.send("DELETE", "/v1/params", &[], b"")?.status == 200);
    ensure!(client.get("/v1/params/w")?.status == 404);
    must_put(&client, "w", "bytes", b"y").map(drop)
}

#[test]
fn a_password_is_not_shown() -> Result<()> {
    let user = User::new()?.with("WEFT_PARAMS_STORE", "redis://me:sesame@127.0.0.1:1");
    let shown = user.must(&["config", "show"])?;
    ensure!(shown.contains("redis://127.0.0.1:1") && !shown.contains("sesame"), "{shown}");
    let help = user.must(&["serve", "--help"])?;
    ensure!(help.contains("WEFT_PARAMS_STORE") && !help.contains("sesame"), "{help}");
    ensure!(User::new()?.with("WEFT_PARAMS_STORE", "http://host").weft(&["config", "show"])?.code == Some(2));
    Ok(())
}

/// A tenant is deleted while its calls and requests are under way, and another gets its name.
fn a_later_tenant_of_the_name_is_a_stranger(options: Options) -> Result<()> {
    let (node, old) = with_store(options, "cpu", json!({}))?;
    must_put(&old, "old-secret", "bytes", b"of the old one")?;
    let call = |line: &'static str| {
        let client = old.with_key(old.key());
        std::thread::spawn(move || client.invoke("store", line.as_bytes()))
    };
    let mut under_way = vec![call("wait new-secret 0"), call("flood 100000000 0")];
    let client = old.with_key(old.key());
    under_way.push(std::thread::spawn(move || client.get("/v1/params/new-secret?wait_ms=60000")));
    eventually(Duration::from_secs(30), || Ok(node.view()?.instances == 2))?;
    let start = Instant::now();
    ensure!(node.operator()?.send("DELETE", "/v1/tenants/one", &[], b"")?.status == 204);
    let new = node.tenant("one", json!({}))?;
    must_put(&new, "new-secret", "bytes", b"of the new one")?;
    for ended in under_way {
        let answer = ended.join().map_err(|_| anyhow::anyhow!("the caller panicked"))??;
        ensure!(answer.status == 401, "{answer:?}");
    }
    ensure!(start.elapsed() < Duration::from_secs(15), "they went on for {:?}", start.elapsed());
    eventually(Duration::from_secs(15), || Ok(node.view()?.instances == 0))?;
    let names = new.get("/v1/params?limit=10")?.json()?;
    ensure!(names["params"].as_array().is_some_and(|names| names.len() == 1), "{names}");
    ensure!(names["params"][0]["name"] == "new-secret", "{names}");
    ensure!(new.get("/v1/params/old-secret")?.status == 404);
    Ok(())
}

#[test]
fn nothing_of_a_deleted_tenant_reaches_a_later_one_of_its_name() -> Result<()> {
    a_later_tenant_of_the_name_is_a_stranger(Options::default())
}

#[test]
fn nothing_of_a_deleted_tenant_reaches_a_later_one_in_redis() -> Result<()> {
    let server = RedisServer::start()?;
    a_later_tenant_of_the_name_is_a_stranger(Options::default().set("params-store", server.address()))
}

#[test]
fn a_deletion_that_waits_for_redis_keeps_nobody_waiting() -> Result<()> {
    let server = RedisServer::start()?;
    let node = Options::default().set("devices", "cpu").set("params-store", server.address()).start()?;
    let (one, two) = (node.tenant("one", json!({}))?, node.tenant("two", json!({}))?);
    must_put(&one, "w", "bytes", b"x")?;
    server.pause()?;
    let operator = node.operator()?;
    let deleting = std::thread::spawn(move || operator.send("DELETE", "/v1/tenants/one", &[], b""));
    eventually(Duration::from_secs(20), || Ok(one.get("/v1/functions")?.status == 401))?;
    two.must_deploy("echo", &components::echo()?)?;
    let waited = !deleting.is_finished();
    server.go_on()?;
    let deleted = deleting.join().map_err(|_| anyhow::anyhow!("the operator panicked"))??;
    ensure!(waited, "the deploy had to wait for the deletion: {deleted:?}");
    ensure!(deleted.status == 204, "{deleted:?}");
    Ok(())
}

#[test]
fn a_crash_after_the_deletion_brings_nothing_back() -> Result<()> {
    let options = || Options::default().set("devices", "none");
    let node = options().start()?;
    let key = node.operator_key().context("no key")?.to_owned();
    must_put(&node.tenant("one", json!({}))?, "secret", "bytes", b"in the snapshot")?;
    // An orderly stop saves everything.
    let node = options().start_in(node.stop()?)?;
    let deleted = Client::new(node.url(), Some(&key)).send("DELETE", "/v1/tenants/one", &[], b"")?;
    ensure!(deleted.status == 204, "{deleted:?}");
    let node = node.kill_and_restart()?;
    let created = Client::new(node.url(), Some(&key)).post("/v1/tenants", &json!({ "name": "one" }))?.json()?;
    let new = Client::new(node.url(), created["key"].as_str());
    ensure!(new.get("/v1/params/secret")?.status == 404);
    ensure!(new.get("/v1/params")?.json()?["params"] == json!([]));
    Ok(())
}

#[test]
fn requests_that_wait_have_a_limit() -> Result<()> {
    let node = Options::default().set("devices", "none").set("max-connections", "16").start()?;
    let (one, two) = (node.tenant("one", json!({}))?, node.tenant("two", json!({}))?);
    let waiting: Vec<_> = (0..8)
        .map(|_| {
            let client = one.with_key(one.key());
            std::thread::spawn(move || client.get("/v1/params/a?wait_ms=4000"))
        })
        .collect();
    let answers: Vec<Answer> =
        waiting.into_iter().map(|waiting| waiting.join().expect("no panic")).collect::<Result<_>>()?;
    let refused: Vec<&Answer> = answers.iter().filter(|answer| answer.status == 429).collect();
    ensure!(refused.len() >= 4 && refused.len() < 8, "{answers:?}");
    ensure!(refused[0].problem()?.limit.as_deref() == Some("max_param_waits"), "{:?}", refused[0]);
    ensure!(answers.iter().all(|answer| matches!(answer.status, 204 | 429)), "{answers:?}");
    ensure!(two.get("/v1/params/a?wait_ms=10")?.status == 204);
    Ok(())
}
