//! Whatever a tenant has the node keep is counted, and has a limit with a name.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use weft::job::State;
use weft::model::{Dtype, Meta, TensorInfo, write};
use weft_tests::components::{self, component};
use weft_tests::held::Held;
use weft_tests::http::Client;
use weft_tests::node::{Node, Options, eventually};

use super::data::upload;
use super::hostile::ProcessHeld;
use super::jobs::{lenet, prepare};

/// Longer than any of this takes on a busy machine.
const LONG: Duration = Duration::from_secs(120);

#[test]
fn an_error_text_of_megabytes_is_cut() -> Result<()> {
    let node = Options::default().start()?;
    let tenant = node.tenant("one", json!({}))?;
    tenant.must_deploy("hostile", &components::hostile()?)?;
    let answer = tenant.invoke("hostile", b"complain:10000000")?;
    ensure!(answer.status == 422 && answer.body.len() < 8 << 10, "{} bytes", answer.body.len());
    let detail = answer.problem()?.detail;
    ensure!(detail.starts_with("xxx") && detail.contains("more bytes)"), "{detail}");
    Ok(())
}

#[test]
fn a_content_type_of_megabytes_is_not_sent() -> Result<()> {
    let node = Options::default().start()?;
    let tenant = node.tenant("one", json!({}))?;
    tenant.must_deploy("hostile", &components::hostile()?)?;
    for (bytes, expected) in [("5000000", "application/octet-stream"), ("5", "xxxxx")] {
        let answer = tenant.invoke("hostile", format!("type:{bytes}").as_bytes())?;
        ensure!(answer.status == 200 && answer.text() == "typed", "{answer:?}");
        ensure!(answer.header("content-type") == Some(expected), "{answer:?}");
    }
    Ok(())
}

#[test]
fn a_history_that_outgrows_its_limit_fails_the_job_and_names_the_limit() -> Result<()> {
    let node = Options::default().start()?;
    let tenant = node.tenant("one", json!({ "job_bytes": 64 << 10 }))?;
    prepare(&tenant)?;
    let endless = lenet(json!({ "name": "endless", "epochs": 100_000, "batch": 512 }));
    tenant.must_submit(&endless)?;
    let ended = tenant.job_until("endless", LONG, |detail| detail.job.state.is_over())?;
    ensure!(ended.job.state == State::Failed && ended.job.reason.contains("`job_bytes`"), "{:?}", ended.job);
    ensure!(ended.job.epoch > 5, "{:?}", ended.job);
    let refused = tenant.submit(&lenet(json!({ "name": "another" })))?;
    ensure!(refused.problem_kind()? == ("quota-exceeded".to_owned(), Some("job_bytes".to_owned())), "{refused:?}");
    // The node counts it too, also after it was started again, until the job is gone.
    let node = node.kill_and_restart()?;
    ensure!(node.view()?.job_bytes > 32 << 10, "{:?}", node.view()?);
    let tenant = weft_tests::http::Client::new(node.url(), tenant.key());
    let deleted = tenant.send("DELETE", "/v1/jobs/endless", &[], b"")?;
    ensure!(deleted.status == 204, "{deleted:?}");
    eventually(LONG, || Ok(node.view()?.job_bytes == 0))?;
    tenant.must_train(&lenet(json!({ "name": "short", "epochs": 2 })), LONG)?;
    Ok(())
}

/// Devices, instances and all else share one account: what a job's workers have is nobody else's.
#[test]
fn leases_instances_and_code_come_from_one_account() -> Result<()> {
    let node = Options::default().set("devices", "cpu").set("max-memory", "1GiB").start()?;
    let tenant = node.tenant("one", json!({}))?;
    prepare(&tenant)?;
    let loaded = node.view()?;
    ensure!(loaded.loaded_bytes > 0 && loaded.memory >= loaded.loaded_bytes, "{loaded:?}");
    // A job cannot have more than the account, whatever the machine has.
    let vast = tenant.submit(&lenet(json!({ "name": "vast", "memory": 2_u64 << 30 })))?;
    ensure!(vast.status == 422 && vast.text().contains("memory"), "{vast:?}");
    tenant.must_submit(&lenet(json!({ "name": "large", "memory": 512 << 20, "epochs": 100_000 })))?;
    tenant.job_until("large", LONG, |detail| detail.job.epoch > 0)?;
    ensure!(node.view()?.memory > 448 << 20, "{:?}", node.view()?);
    // What is left is not enough for another: it waits, and does not fail.
    tenant.must_submit(&lenet(json!({ "name": "next", "memory": 512 << 20, "epochs": 1 })))?;
    std::thread::sleep(Duration::from_millis(300));
    ensure!(tenant.job("next")?.job.state == State::Queued, "{:?}", tenant.job("next")?.job);
    tenant.order("large", "stop")?;
    tenant.must_finish("next", LONG)?;
    node.idle(LONG)
}

/// Code is in memory once however many calls it has, and those who keep it there pay for it.
#[test]
fn code_counts_for_those_whose_calls_keep_it_loaded() -> Result<()> {
    let node = Options::default().start()?;
    let (one, other) = (node.tenant("one", json!({}))?, node.tenant("other", json!({}))?);
    let code = components::hostile()?;
    one.must_deploy("hostile", &code)?;
    other.must_deploy("hostile", &code)?;
    let versions = one.get("/v1/functions/hostile/versions")?.json()?;
    let native = versions["versions"][0]["native_bytes"].as_u64().context("no size")?;
    let of = |tenant: &weft_tests::http::Client| Ok::<_, anyhow::Error>(tenant.usage()?.now.memory);
    let running = |count: u32| eventually(LONG, || Ok(node.view()?.instances == count));
    let stop = || Held::invoke(&one, "hostile", "stop");
    let first = stop()?;
    running(1)?;
    // Nothing more is allocated once it sleeps.
    let settled = || -> Result<u64> {
        let mut before = 0;
        eventually(LONG, || {
            let now = of(&one)?;
            Ok(std::mem::replace(&mut before, now) == now)
        })?;
        Ok(before)
    };
    let with_one = settled()?;
    let second = stop()?;
    running(2)?;
    let with_two = settled()?;
    // What comes with the second call is its own memory; the first had the code too.
    let code_of_one = (2 * with_one).saturating_sub(with_two);
    ensure!(code_of_one >= native, "{code_of_one} bytes for {native} of code: {with_one} and {with_two}");
    ensure!(of(&other)? == 0, "{}", of(&other)?);
    drop((first, second));
    eventually(LONG, || Ok(of(&one)? == 0))?;
    // A tenant that never has room for the code is told so, and not to try again.
    let small = json!({ "memory": native - 1 });
    node.operator()?.send("PATCH", "/v1/tenants/other/quota", &[], &serde_json::to_vec(&small)?)?.json()?;
    let refused = other.invoke("hostile", b"state")?;
    ensure!(refused.problem_kind()? == ("quota-exceeded".to_owned(), Some("memory".to_owned())), "{refused:?}");
    Ok(())
}

/// A page of a history has a thousand epochs at most, whatever is asked for.
#[test]
fn a_history_comes_a_thousand_epochs_at_a_time() -> Result<()> {
    let node = Options::default().start()?;
    let tenant = node.tenant("one", json!({}))?;
    tenant.must_deploy("regression", &component("functions/logistic-regression")?)?;
    let made = json!({ "synthetic": { "kind": "binary20", "train": 32, "test": 0, "seed": 1 } });
    tenant.send("PUT", "/v1/datasets/few", &[], &serde_json::to_vec(&made)?)?.json()?;
    tenant.must_submit(&json!({
        "function": "regression", "dataset": "few", "name": "long", "batch": 32, "epochs": 1_020, "memory": 64 << 20,
        "params": { "features": 20 },
    }))?;
    tenant.must_finish("long", LONG)?;
    let page = |query: &str| tenant.get(&format!("/v1/jobs/long/history?{query}"))?.json();
    let first = page("limit=10000")?;
    let epochs = first["epochs"].as_array().context("no epochs")?;
    ensure!(epochs.len() == 1_000 && first["next"] == 1_000, "{} epochs", epochs.len());
    let rest = page("limit=10000&after=1000")?;
    ensure!(rest["epochs"].as_array().map(Vec::len) == Some(20) && rest["next"].is_null(), "{rest}");
    Ok(())
}

/// A client need not read what it asked for. Answers that grow with what a tenant has are counted until it has.
#[test]
fn large_answers_are_counted_and_small_ones_always_come() -> Result<()> {
    let node = Options::default().start()?;
    let tenant = node.tenant("one", json!({}))?;
    for number in 0..700 {
        let path = format!("/v1/params/{}{number}", "a-long-name-".repeat(15));
        let set = tenant.send("PUT", &path, &[], b"1")?;
        ensure!(set.status < 300, "{set:?}");
    }
    let before = node.view()?.memory;
    let list = |limit: u32| tenant.get(&format!("/v1/params?limit={limit}"));
    let all = list(1_000)?;
    ensure!(all.status == 200 && all.body.len() > 128 << 10, "{} bytes", all.body.len());
    eventually(LONG, || Ok(node.view()?.memory == before))?;
    node.operator()?.send("PATCH", "/v1/tenants/one/quota", &[], br#"{"memory": 1}"#)?.json()?;
    let refused = list(1_000)?;
    ensure!(refused.status == 403, "{} with {} bytes", refused.status, refused.body.len());
    ensure!(refused.problem_kind()? == ("quota-exceeded".to_owned(), Some("memory".to_owned())), "{refused:?}");
    ensure!(list(100)?.status == 200, "what is small is not counted");
    eventually(LONG, || Ok(node.view()?.memory == before))
}

/// Whoever fetches a model may read as slowly as it likes; what is in memory for that is the tenant's.
#[test]
fn models_that_nobody_reads_on_are_counted() -> Result<()> {
    const SLOW: usize = 3;
    let node = Options::default().start()?;
    // Room for the pieces of three readers, of four mebibytes and a little more each.
    let tenant = node.tenant("one", json!({ "memory": 15 << 20 }))?;
    let tensors = [TensorInfo { name: "w".to_owned(), dtype: Dtype::F32, shape: vec![4 << 20] }];
    let mut file = Vec::new();
    write(&tensors, [Ok(vec![0; 16 << 20])], &Meta::default(), &mut file)?;
    let digest = upload(&tenant, &file)?;
    let kept = tenant.send("PUT", "/v1/models/it", &[], &serde_json::to_vec(&json!({ "upload": digest }))?)?;
    ensure!(kept.status == 201, "{kept:?}");
    let before = node.view()?.memory;
    let slow: Vec<Held> = (0..SLOW).map(|_| Held::get(&tenant, "/v1/models/it/file")).collect::<Result<_>>()?;
    eventually(LONG, || Ok(node.view()?.memory >= before + SLOW as u64 * (4 << 20)))?;
    let refused = tenant.get("/v1/models/it/file")?;
    ensure!(refused.problem_kind()? == ("busy".to_owned(), Some("memory".to_owned())), "{} bytes", refused.body.len());
    drop(slow);
    eventually(LONG, || Ok(node.view()?.memory == before))?;
    ensure!(tenant.get("/v1/models/it/file")?.body == file);
    Ok(())
}

/// The most that may be left of bursts that each move a gigabyte, for allocators and caches.
const SLACK: u64 = 128 << 20;

fn burst(node: &Node) -> Result<()> {
    let tenant = node.tenant("burst", json!({ "instances": 64 }))?;
    tenant.must_deploy("hostile", &components::hostile()?)?;
    // Answers of 8 MB that nobody reads, of many sizes so that they leave holes.
    for size in (0..4).map(|step| 8_000_000 - step * 1_500_000) {
        let held = Held::invoke_all(&tenant, "hostile", &format!("huge:{size}"), 40)?;
        eventually(LONG, || Ok(node.view()?.instances == 0))?;
        drop(held);
    }
    let deleted = node.operator()?.send("DELETE", "/v1/tenants/burst", &[], b"")?;
    ensure!(deleted.status == 204, "{deleted:?}");
    Ok(())
}

#[test]
fn memory_of_a_burst_goes_back_to_the_system() -> Result<()> {
    let node = Options::default().start()?;
    let tenant = node.tenant("one", json!({}))?;
    tenant.must_deploy("echo", &component("functions/echo")?)?;
    tenant.must_invoke("echo", "hello")?;
    // Pools get their size.
    burst(&node)?;
    node.idle(LONG)?;
    std::thread::sleep(Duration::from_secs(5));
    let before = ProcessHeld::now(&node)?;
    for _ in 0..3 {
        burst(&node)?;
    }
    // On a busy machine it takes its time to notice that nobody reads any more, and gives memory back after that.
    node.idle(LONG)?;
    let after = ProcessHeld::back_to(before, SLACK, &node).context("resident memory stays")?;
    after.is_no_more_than(before, SLACK)
}

/// Of a perceptron's layers: much to copy, and little to compute.
const WIDTH: u64 = 2_000;
/// Memory of each function, and the most that is linear.
const WORKER_MEMORY: u64 = 256 << 20;
const LINEAR: u64 = 64 << 20;
const WORKERS: u64 = 4;

/// By how much the host's resident memory grew for copies of the model, and how much was leased for them, both at most.
fn host_memory_of(node: &Node, tenant: &Client, name: &str, sync: &Value) -> Result<(u64, u64)> {
    let spec = json!({
        "name": name, "function": "mlp", "dataset": "bits", "workers": WORKERS, "epochs": 6, "batch": 8, "lr": 0.001,
        "seed": 1, "memory": WORKER_MEMORY, "params": { "layers": 2, "width": WIDTH }, "sync": sync,
    });
    node.idle(LONG)?;
    let (before, before_leased) = (ProcessHeld::now(node)?.resident, node.view()?.memory);
    tenant.must_submit(&spec)?;
    let is_over = AtomicBool::new(false);
    let (ended, resident, leased) = std::thread::scope(|scope| {
        // Peaks are short.
        let peaks = scope.spawn(|| {
            let (mut resident, mut leased) = (0, 0);
            while !is_over.load(Relaxed) {
                resident = resident.max(ProcessHeld::now(node).map_or(0, |held| held.resident));
                leased = leased.max(node.view().map_or(0, |view| view.memory));
                std::thread::sleep(Duration::from_millis(1));
            }
            (resident, leased)
        });
        let ended = tenant.job_until(name, LONG, |detail| detail.job.state.is_over());
        is_over.store(true, Relaxed);
        let (resident, leased) = peaks.join().unwrap_or_default();
        (ended, resident, leased)
    });
    let detail = ended?;
    ensure!(detail.job.state == State::Done, "{:?}", detail.job);
    // What workers held of their devices, and what they had leased of these.
    let held = detail.history.iter().map(|epoch| epoch.memory).max().context("no epochs")?;
    let of_devices = WORKERS * (WORKER_MEMORY - LINEAR);
    Ok(((resident - before).saturating_sub(WORKERS * held), leased - before_leased - of_devices))
}

#[test]
fn copies_of_a_large_model_take_no_more_of_the_host_than_was_leased_for_them() -> Result<()> {
    for (name, sync) in [
        ("scatter", json!({ "rule": "gradient-average", "topology": "scatter" })),
        ("peers", json!({ "rule": "gradient-average", "topology": "peers" })),
        ("quorum", json!({ "pace": "quorum:2" })),
        ("differences", json!({ "k": 4, "topology": "scatter", "codec": "f16" })),
    ] {
        // On a node of its own: memory that another job has given back may still be the process's.
        let node = Options::default().start()?;
        let tenant = node.tenant("one", json!({ "worker_memory": 8_u64 << 30 }))?;
        tenant.must_deploy("mlp", &component("functions/mlp")?)?;
        let bits = json!({ "synthetic": { "kind": "binary20", "train": 256, "test": 16, "seed": 1 } });
        let made = tenant.send("PUT", "/v1/datasets/bits", &[], &serde_json::to_vec(&bits)?)?;
        ensure!(made.status == 201, "{made:?}");
        let (resident, leased) = host_memory_of(&node, &tenant, name, &sync)?;
        println!("{name}: {} of {} MiB", resident >> 20, leased >> 20);
        // The model alone has 15 MiB, so that a measurement of nothing would show.
        ensure!(resident > 32 << 20, "{name}: {resident} bytes are not what it takes");
        ensure!(resident <= leased + leased / 5, "{name}: {resident} bytes where {leased} were leased");
    }
    Ok(())
}
