//! Who gets what when there is not enough: queues, rates and shares.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use serde_json::json;
use weft_tests::held::Held;
use weft_tests::http::{Answer, Client};
use weft_tests::node::{Node, Options, eventually};
use weft_tests::wire::Wire;
use weft_tests::{components, guests};

const SOON: Duration = Duration::from_secs(20);

/// A tenant with `sleep`, which takes no CPU time, and `hostile`, which takes as much as it is told to.
fn tenant(node: &Node, name: &str, quota: serde_json::Value) -> Result<Client> {
    let tenant = node.tenant(name, quota)?;
    tenant.must_deploy("sleep", &guests::wat("wasi-sleep")?)?;
    tenant.must_deploy("hostile", &components::hostile()?)?;
    Ok(tenant)
}

/// Waits until that many invocations run and wait.
fn until(node: &Node, running: u32, waiting: u32) -> Result<()> {
    let reached = eventually(SOON, || node.view().map(|view| (view.instances, view.waiting) == (running, waiting)));
    reached.map_err(|error| anyhow!("{running} running and {waiting} waiting: {error}; now {:?}", node.view()))
}

#[test]
fn a_tenant_never_runs_more_at_once_than_its_quota() -> Result<()> {
    let node = Options::default().start()?;
    let tenant = tenant(&node, "tenant", json!({ "instances": 2 }))?;
    let done = AtomicBool::new(false);
    let most = thread::scope(|scope| {
        let watching = scope.spawn(|| -> Result<u32> {
            let mut most = 0;
            while !done.load(Relaxed) {
                most = most.max(node.view()?.instances);
            }
            Ok(most)
        });
        let invoke = || tenant.must_invoke("hostile", "sleep-busy:60");
        let callers: Vec<_> = (0..10).map(|_| scope.spawn(invoke)).collect();
        let answers = callers.into_iter().map(|caller| caller.join().map_err(|_| anyhow!("a caller panicked"))?);
        let answers: Result<Vec<String>> = answers.collect();
        done.store(true, Relaxed);
        answers?;
        watching.join().map_err(|_| anyhow!("the watcher panicked"))?
    })?;
    ensure!(most == 2, "{most} instances ran at once");
    Ok(())
}

#[test]
fn what_is_over_the_quota_waits() -> Result<()> {
    let node = Options::default().start()?;
    let tenant = tenant(&node, "tenant", json!({ "instances": 2 }))?;
    let _held = Held::invoke_all(&tenant, "sleep", "", 7)?;
    until(&node, 2, 5)
}

#[test]
fn past_the_end_of_its_queue_a_tenant_is_told_to_come_back() -> Result<()> {
    let node = Options::default().set("max-waiting-per-tenant", 2).start()?;
    let tenant = tenant(&node, "tenant", json!({ "instances": 1 }))?;
    let _held = Held::invoke_all(&tenant, "sleep", "", 3)?;
    until(&node, 1, 2)?;
    let answer = tenant.invoke("sleep", b"1")?;
    ensure!(answer.status == 429, "{answer:?}");
    ensure!(answer.problem_kind()? == ("busy".to_owned(), Some("max_waiting".to_owned())), "{answer:?}");
    ensure!(answer.header("retry-after").is_some_and(|after| after.parse::<u64>().is_ok()), "{answer:?}");
    Ok(())
}

#[test]
fn a_tenant_with_a_full_queue_leaves_room_for_another() -> Result<()> {
    let node = Options::default().set("max-waiting-per-tenant", 2).start()?;
    let greedy = tenant(&node, "greedy", json!({ "instances": 1 }))?;
    let modest = tenant(&node, "modest", json!({ "instances": 1 }))?;
    let _held = Held::invoke_all(&greedy, "sleep", "", 3)?;
    until(&node, 1, 2)?;
    ensure!(modest.must_invoke("hostile", "state")? == "1");
    Ok(())
}

#[test]
fn waiting_has_an_end() -> Result<()> {
    let node = Options::default().set("queue-timeout", "200ms").start()?;
    let tenant = tenant(&node, "tenant", json!({ "instances": 1 }))?;
    let _held = Held::invoke(&tenant, "sleep", "")?;
    until(&node, 1, 0)?;
    let answer = tenant.invoke("sleep", b"1")?;
    ensure!(answer.problem_kind()? == ("busy".to_owned(), Some("queue_timeout".to_owned())), "{answer:?}");
    ensure!(answer.status == 429 && answer.header("retry-after").is_some(), "{answer:?}");
    Ok(())
}

/// What is told to whoever has waited for too long.
fn waited_too_long(answer: &Answer) -> Result<()> {
    ensure!(answer.status == 429 && answer.header("retry-after").is_some(), "{answer:?}");
    ensure!(answer.problem_kind()? == ("busy".to_owned(), Some("queue_timeout".to_owned())), "{answer:?}");
    Ok(())
}

#[test]
fn waiting_to_deploy_has_an_end() -> Result<()> {
    let node = Options::default().set("queue-timeout", "200ms").start()?;
    let tenant = node.tenant("tenant", json!({}))?;
    let echo = components::echo()?;
    let other = node.tenant("other", json!({}))?;
    // As many uploads as a tenant may have on their way, none of which goes on.
    let mut begun = Vec::new();
    for number in 0..4 {
        let mut wire = Wire::connect(&tenant)?;
        wire.head("PUT", &format!("/v1/functions/slow-{number}"), &["content-length: 100"])?;
        wire.send("\r\n")?;
        begun.push(wire);
    }
    eventually(SOON, || Ok(tenant.deploy("echo", &echo)?.status == 429))?;
    waited_too_long(&tenant.deploy("echo", &echo)?)?;
    other.must_deploy("echo", &echo)?;
    drop(begun);
    eventually(SOON, || Ok(tenant.deploy("echo", &echo)?.status < 300))
}

#[test]
fn waiting_to_build_has_an_end() -> Result<()> {
    let node = Options::default().set("queue-timeout", "100ms").start()?;
    let tenant = node.tenant("tenant", json!({}))?;
    let build = |train: u64| json!({ "synthetic": { "kind": "binary20", "train": train, "seed": 1 } }).to_string();
    // As many as are built for a tenant at once, for some seconds each.
    let mut begun = Vec::new();
    for number in 0..2 {
        let mut wire = Wire::connect(&tenant)?;
        let path = format!("/v1/datasets/large-{number}");
        wire.request("PUT", &path, &["content-type: application/json"], build(2_000_000).as_bytes())?;
        begun.push(wire);
    }
    let mut refused = None;
    eventually(SOON, || {
        let answer = tenant.send("PUT", "/v1/datasets/small", &[], build(10).as_bytes())?;
        if answer.status == 201 {
            tenant.send("DELETE", "/v1/datasets/small", &[], b"")?;
            return Ok(false);
        }
        refused = Some(answer);
        Ok(true)
    })?;
    waited_too_long(refused.as_ref().ok_or_else(|| anyhow!("nothing was refused"))?)
}

#[test]
fn a_call_that_waits_for_the_compiler_is_told_to_come_back() -> Result<()> {
    let node = Options::default().start()?;
    let (operator, tenant) = (node.operator()?, node.tenant("tenant", json!({}))?);
    tenant.must_deploy("echo", &components::echo()?)?;
    let folder = node.stop()?;
    // As after an upgrade: everything has to be compiled again.
    std::fs::remove_dir_all(folder.path().join("data/artifacts"))?;
    let node = Options::default().set("queue-timeout", "200ms").set("compile-timeout", "6s").start_in(folder)?;
    let again = |client: &Client| Client::new(node.url(), client.key());
    let (operator, tenant) = (again(&operator), again(&tenant));
    let bomber = operator.post("/v1/tenants", &json!({ "name": "bomber" }))?.json()?;
    let bomber = Client::new(node.url(), bomber["key"].as_str());
    let bomb = guests::compile_bomb()?;
    thread::scope(|scope| {
        let deploying = scope.spawn(|| bomber.deploy("bomb", &bomb));
        let compiling = || Ok(std::fs::read_dir(node.data_dir().join("staging"))?.count() >= 2);
        eventually(SOON, compiling)?;
        let start = Instant::now();
        waited_too_long(&tenant.invoke("echo", b"hello")?)?;
        ensure!(start.elapsed() < Duration::from_secs(4), "it waited for {:?}", start.elapsed());
        let bombed = deploying.join().map_err(|_| anyhow!("the client panicked"))??;
        ensure!(bombed.status == 422, "{bombed:?}");
        ensure!(tenant.must_invoke("echo", "hello")? == "hello");
        Ok(())
    })
}

#[test]
fn a_deadline_counts_while_a_call_waits_for_its_first_turn() -> Result<()> {
    const LOOPS: u32 = 200;
    let node = Options::default().set("cores", 1).start()?;
    let patient = json!({ "cpu_ms": 600_000, "wall_ms": 600_000, "instances": 400 });
    let tenant = tenant(&node, "tenant", patient)?;
    tenant.must_invoke("hostile", "state")?;
    let _loops = Held::invoke_all(&tenant, "hostile", "loop", LOOPS as usize)?;
    until(&node, LOOPS, 0)?;
    // Calls that run keep the deadline that they began with.
    let quota = serde_json::to_vec(&json!({ "wall_ms": 50 }))?;
    node.operator()?.send("PATCH", "/v1/tenants/tenant/quota", &[], &quota)?.json()?;
    let answer = tenant.invoke("hostile", b"state")?;
    ensure!(answer.status == 504, "{answer:?}");
    ensure!(answer.problem_kind()? == ("deadline-exceeded".to_owned(), Some("wall_ms".to_owned())), "{answer:?}");
    Ok(())
}

#[test]
fn a_full_node_is_shared_in_turn() -> Result<()> {
    let node = Options::default().set("max-instances", 4).start()?;
    let greedy = tenant(&node, "greedy", json!({}))?;
    let modest = tenant(&node, "modest", json!({}))?;
    // Three rounds of one second, of which the second is already waiting.
    let _held = Held::invoke_all(&greedy, "sleep", "1", 12)?;
    until(&node, 4, 8)?;
    modest.must_invoke("hostile", "state")?;
    let waiting = node.view()?.waiting;
    ensure!(waiting > 0, "the tenant that came last was served after everybody who came before");
    Ok(())
}

#[test]
fn requests_over_the_rate_are_turned_away_for_a_while() -> Result<()> {
    let node = Options::default().start()?;
    let quick = node.tenant("quick", json!({ "requests_per_second": 5 }))?;
    let answers = (0..50).map(|_| quick.get("/v1/functions")).collect::<Result<Vec<_>>>()?;
    let refused: Vec<_> = answers.iter().filter(|answer| answer.status != 200).collect();
    ensure!(refused.len() >= 30 && refused.len() <= 45, "{} of 50 were refused", refused.len());
    for answer in refused {
        let kind = ("rate-limited".to_owned(), Some("requests_per_second".to_owned()));
        ensure!(answer.status == 429 && answer.problem_kind()? == kind, "{answer:?}");
        ensure!(answer.header("retry-after").is_some_and(|after| after.parse::<u64>().is_ok()), "{answer:?}");
    }
    Ok(())
}

#[test]
fn the_rate_of_one_tenant_is_not_that_of_another() -> Result<()> {
    let node = Options::default().start()?;
    let quick = node.tenant("quick", json!({ "requests_per_second": 1 }))?;
    let other = node.tenant("other", json!({ "requests_per_second": 1 }))?;
    eventually(SOON, || Ok(quick.get("/v1/functions")?.status == 429))?;
    ensure!(other.get("/v1/functions")?.status == 200);
    Ok(())
}

#[test]
fn forty_endless_loops_weigh_as_much_as_one() -> Result<()> {
    // One core, so that shares are what they are on any machine.
    let node = Options::default().set("cores", 1).start()?;
    let patient = json!({ "cpu_ms": 600_000, "wall_ms": 600_000 });
    let one = tenant(&node, "one", patient.clone())?;
    let many = tenant(&node, "many", patient)?;
    let spin = || -> Result<Duration> {
        let start = Instant::now();
        one.must_invoke("hostile", "spin:200000000")?;
        Ok(start.elapsed())
    };
    let quickest = |times: usize| -> Result<Duration> {
        let times = (0..times).map(|_| spin()).collect::<Result<Vec<_>>>()?;
        times.into_iter().min().ok_or_else(|| anyhow!("nothing was measured"))
    };
    let alone = quickest(3)?;
    let _loops = Held::invoke_all(&many, "hostile", "loop", 40)?;
    until(&node, 40, 0)?;
    let beside = quickest(3)?;
    println!("alone {alone:?}, beside forty loops {beside:?}");
    // Two is fair, forty-one is not; the rest is for a machine that has other work as well.
    ensure!(beside < alone * 10, "alone it took {alone:?}, beside forty loops {beside:?}");
    Ok(())
}
