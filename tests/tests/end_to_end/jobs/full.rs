//! A node that is full, dies, or has no room on its disk: jobs and calls wait, and none is lost.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use weft::api::types::DeviceList;
use weft::job::{JobEvent, State};
use weft_tests::components::component;
use weft_tests::guests;
use weft_tests::held::Held;
use weft_tests::http::Client;
use weft_tests::node::{Node, Options, eventually};

use super::{LONG, lenet, prepare, weights};

/// Bytes of the only device.
fn device_memory(client: &Client) -> Result<u64> {
    let list: DeviceList = serde_json::from_value(client.get("/v1/devices")?.json()?)?;
    Ok(list.devices.first().context("no device")?.memory)
}

/// A node that computes on its cores only, and how many bytes those have.
fn node() -> Result<(Node, u64)> {
    let node = Options::default().set("devices", "cpu").start()?;
    let memory = device_memory(&node.operator()?)?;
    Ok((node, memory))
}

/// A job that takes most of what jobs may have of the device, for as long as it is let.
fn hog(memory: u64) -> Value {
    lenet(json!({ "name": "hog", "epochs": 1_000_000, "memory": memory / 4 * 3 }))
}

fn again(node: &Node, client: &Client) -> Client {
    Client::new(node.url(), client.key())
}

#[test]
fn what_finds_no_room_is_queued_and_outlives_its_node() -> Result<()> {
    let (node, memory) = node()?;
    let greedy = node.tenant("greedy", json!({ "worker_memory": memory }))?;
    let modest = node.tenant("modest", json!({ "worker_memory": memory }))?;
    prepare(&greedy)?;
    prepare(&modest)?;
    greedy.must_submit(&hog(memory))?;
    greedy.job_in("hog", State::Running, LONG)?;
    // More than is free now, so that it cannot even be tried out.
    let large = |name: &str, more: Value| {
        let mut spec = lenet(json!({ "name": name, "epochs": 1, "memory": memory / 3 }));
        if let (Some(spec), Some(more)) = (spec.as_object_mut(), more.as_object()) {
            spec.extend(more.clone());
        }
        spec
    };
    for number in 0..3 {
        let name = modest.must_submit(&large(&format!("waits-{number}"), json!({})))?;
        ensure!(modest.job(&name)?.job.state == State::Queued);
    }
    modest.must_submit(&large("unfit", json!({ "params": { "classes": "9" } })))?;
    // What is small enough passes them all.
    modest.must_train(&lenet(json!({ "name": "small", "epochs": 1 })), LONG)?;
    let node = node.kill_and_restart()?;
    let (greedy, modest) = (again(&node, &greedy), again(&node, &modest));
    // The first of those that fit takes the room, whichever it is.
    greedy.order("hog", "stop")?.json()?;
    for number in 0..3 {
        modest.must_finish(&format!("waits-{number}"), LONG)?;
    }
    eventually(LONG, || Ok(modest.job("unfit")?.job.state.is_over()))?;
    let unfit = modest.job("unfit")?.job;
    ensure!(unfit.state == State::Failed && unfit.reason.contains("10 classes"), "{unfit:?}");
    Ok(())
}

#[test]
fn a_job_that_its_own_tenant_keeps_from_fitting_stops_nobody_else() -> Result<()> {
    let (node, memory) = node()?;
    let greedy = node.tenant("greedy", json!({ "worker_memory": 2 * memory }))?;
    let modest = node.tenant("modest", json!({}))?;
    prepare(&greedy)?;
    prepare(&modest)?;
    greedy.must_submit(&lenet(json!({ "name": "long", "epochs": 1_000_000, "memory": memory / 4 })))?;
    greedy.job_in("long", State::Running, LONG)?;
    greedy.must_submit(&lenet(json!({ "name": "parked", "memory": memory / 4 * 3 })))?;
    // More of them than may start past a job that waits for others.
    for number in 0..10 {
        modest.must_train(&lenet(json!({ "name": format!("small-{number}"), "epochs": 1 })), LONG)?;
    }
    ensure!(greedy.job("parked")?.job.state == State::Queued);
    greedy.order("long", "stop")?.json()?;
    greedy.must_finish("parked", LONG)?;
    Ok(())
}

#[test]
fn jobs_leave_room_for_calls_and_calls_wait_for_each_other() -> Result<()> {
    let (node, memory) = node()?;
    let operator = node.operator()?;
    let greedy = node.tenant("greedy", json!({ "worker_memory": 2 * memory }))?;
    let modest = node.tenant("modest", json!({ "device_memory": memory / 10 }))?;
    // A call of this one's has nearly all of the device, for a while.
    let brief = node.tenant("brief", json!({ "device_memory": memory - (memory >> 6), "wall_ms": 3_000 }))?;
    let guest = component("tests/guests/hostcall")?;
    modest.must_deploy("task", &guest)?;
    brief.must_deploy("task", &guest)?;
    prepare(&greedy)?;
    let half = |name: &str| lenet(json!({ "name": name, "epochs": 1_000_000, "memory": memory / 100 * 48 }));
    greedy.must_submit(&half("one"))?;
    greedy.job_in("one", State::Running, LONG)?;
    greedy.must_submit(&half("two"))?;
    ensure!(modest.invoke("task", b"add 1")?.status == 200, "jobs have taken all of the device");
    for job in ["two", "one"] {
        greedy.order(job, "stop")?.json()?;
        eventually(LONG, || Ok(greedy.job(job)?.job.state == State::Stopped))?;
    }
    let holder = std::thread::spawn(move || brief.invoke("task", b"add 1000000000000"));
    let reserved = || -> Result<u64> {
        let list: DeviceList = serde_json::from_value(operator.get("/v1/devices")?.json()?)?;
        Ok(list.devices.first().context("no device")?.reserved)
    };
    eventually(LONG, || Ok(reserved()? > memory / 2))?;
    let answer = modest.invoke("task", b"add 1")?;
    ensure!(answer.status == 200, "it did not wait its turn: {answer:?}");
    holder.join().ok().context("the client panicked")??;
    Ok(())
}

#[test]
fn a_call_that_waits_too_long_for_a_device_is_told_to_come_back() -> Result<()> {
    let node = Options::default().set("devices", "cpu").set("queue-timeout", "300ms").start()?;
    let memory = device_memory(&node.operator()?)?;
    let holder = node.tenant("holder", json!({ "device_memory": memory - (memory >> 6), "wall_ms": 600_000 }))?;
    let modest = node.tenant("modest", json!({ "device_memory": memory / 10 }))?;
    let guest = component("tests/guests/hostcall")?;
    holder.must_deploy("task", &guest)?;
    modest.must_deploy("task", &guest)?;
    ensure!(modest.invoke("task", b"add 1")?.status == 200);
    let _held = Held::invoke(&holder, "task", "add 1000000000000")?;
    eventually(LONG, || Ok(modest.invoke("task", b"add 1")?.status != 200))?;
    let answer = modest.invoke("task", b"add 1")?;
    ensure!(answer.status == 429 && answer.header("retry-after").is_some(), "{answer:?}");
    ensure!(answer.problem_kind()? == ("busy".to_owned(), Some("queue_timeout".to_owned())), "{answer:?}");
    Ok(())
}

/// What `queue_timeout` is unless somebody sets it: the longest that a call waits for its place.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(10);

/// Nobody has another quota than the node's own, and two have taken all that they can of its only device.
#[test]
fn with_default_quotas_a_full_device_is_a_queue_for_jobs_and_none_for_calls() -> Result<()> {
    let node = Options::default().set("devices", "cpu").set("max-memory", "6GiB").start()?;
    let memory = device_memory(&node.operator()?)?;
    let tenant = |name| -> Result<Client> {
        let tenant = node.tenant(name, json!({}))?;
        prepare(&tenant)?;
        tenant.must_deploy("task", &component("tests/guests/hostcall")?)?;
        Ok(tenant)
    };
    let (a, b, c) = (tenant("a")?, tenant("b")?, tenant("c")?);
    // Forty workers have all of the device that jobs may have, but for less than another needs. A quarter of what a worker
    // has is not for its device.
    let each = (memory / 8 * 7 / 40 - (1 << 20)) / 3 * 4;
    for (client, workers) in [(&a, 32), (&b, 8)] {
        let spec = json!({ "name": "many", "workers": workers, "k": 4, "epochs": 1_000_000, "memory": each });
        client.must_submit(&lenet(spec))?;
        client.job_in("many", State::Running, LONG)?;
    }
    // And as many calls of one of them as there may be, for as long as they may take.
    let _calls = Held::invoke_all(&a, "task", "add 1000000000000", 8)?;
    eventually(LONG, || Ok(node.view()?.instances >= 1))?;
    let waits = lenet(json!({ "name": "waits", "epochs": 1, "memory": 512 << 20 }));
    c.must_submit(&waits)?;
    ensure!(c.job("waits")?.job.state == State::Queued, "{:?}", c.job("waits")?.job);
    for _ in 0..3 {
        let start = Instant::now();
        let answer = c.invoke("task", b"add 1")?;
        ensure!(answer.status == 200, "after {:?}: {answer:?}", start.elapsed());
        // The call itself takes a moment.
        ensure!(start.elapsed() < QUEUE_TIMEOUT + Duration::from_secs(5), "it took {:?}", start.elapsed());
    }
    ensure!(c.job("waits")?.job.state == State::Queued, "there was room for it: {:?}", c.job("waits")?.job);
    a.order("many", "stop")?.json()?;
    c.must_finish("waits", LONG)?;
    Ok(())
}

#[test]
fn with_default_quotas_a_tenant_whose_calls_sleep_leaves_places_to_others() -> Result<()> {
    let node = Options::default().set("max-instances", 64).start()?;
    let (sleepy, other) = (node.tenant("sleepy", json!({}))?, node.tenant("other", json!({}))?);
    sleepy.must_deploy("sleep", &guests::wat("wasi-sleep")?)?;
    other.must_deploy("echo", &component("functions/echo")?)?;
    // More than there are places, and as many as a tenant may have at once.
    let _held = Held::invoke_all(&sleepy, "sleep", "", 80)?;
    eventually(LONG, || node.view().map(|view| view.instances + view.waiting == 80 && view.instances >= 32))?;
    for _ in 0..20 {
        let start = Instant::now();
        other.must_invoke("echo", "hello")?;
        ensure!(start.elapsed() < QUEUE_TIMEOUT, "it took {:?}", start.elapsed());
    }
    let view = node.view()?;
    ensure!(view.instances < 64 && view.waiting > 0, "one tenant has all places: {view:?}");
    Ok(())
}

/// Places for instances are for all functions. Whoever waits for a device holds none of them meanwhile.
#[test]
fn calls_that_wait_for_a_device_keep_no_others_waiting() -> Result<()> {
    let patience = Duration::from_secs(60);
    let options = Options::default().set("devices", "cpu").set("max-instances", 4);
    let node = options.set("queue-timeout", format!("{}s", patience.as_secs())).start()?;
    let memory = device_memory(&node.operator()?)?;
    let holder = node.tenant("holder", json!({ "device_memory": memory - (memory >> 6), "wall_ms": 600_000 }))?;
    let modest = node.tenant("modest", json!({ "device_memory": memory / 10 }))?;
    let other = node.tenant("other", json!({}))?;
    let guest = component("tests/guests/hostcall")?;
    holder.must_deploy("task", &guest)?;
    modest.must_deploy("task", &guest)?;
    other.must_deploy("echo", &component("functions/echo")?)?;
    other.must_invoke("echo", "hello")?;
    let _holds = Held::invoke(&holder, "task", "add 1000000000000")?;
    eventually(LONG, || Ok(node.view()?.memory > memory / 2))?;
    let _wait = Held::invoke_all(&modest, "task", "add 1", 12)?;
    let start = Instant::now();
    for _ in 0..50 {
        other.must_invoke("echo", "hello")?;
    }
    ensure!(start.elapsed() < patience / 2, "50 calls that need no device took {:?}", start.elapsed());
    ensure!(node.view()?.instances == 1, "{:?}", node.view()?);
    Ok(())
}

#[test]
fn a_job_under_which_the_node_dies_again_and_again_is_held_back() -> Result<()> {
    let mut node = Options::default().start()?;
    let mut client = node.tenant("unlucky", json!({}))?;
    client.must_deploy("harm", &component("tests/guests/hostile-trainer")?)?;
    let made = json!({ "synthetic": { "kind": "binary20", "train": 320, "test": 80, "seed": 1 } });
    let made = client.send("PUT", "/v1/datasets/teacher", &[], &serde_json::to_vec(&made)?)?;
    ensure!(made.status == 201, "{made:?}");
    // Its second epoch never ends.
    client.must_submit(&json!({
        "function": "harm", "dataset": "teacher", "name": "deadly", "workers": 2, "batch": 16, "epochs": 3,
        "params": { "harm": "straggle" }, "memory": 64 << 20,
    }))?;
    client.job_until("deadly", LONG, |detail| detail.job.epoch >= 1)?;
    for death in 0..3 {
        // Started again since the last time, and not only found as it was.
        client.job_until("deadly", LONG, |detail| detail.starts >= death && detail.job.state == State::Running)?;
        node = node.kill_and_restart()?;
        client = again(&node, &client);
    }
    eventually(LONG, || Ok(client.job("deadly")?.job.state.is_over()))?;
    let held = client.job("deadly")?.job;
    ensure!(held.state == State::Stopped && held.reason.contains("died 3 times in a row"), "{held:?}");
    client.order("deadly", "resume")?.json()?;
    client.job_in("deadly", State::Running, LONG)?;
    client.order("deadly", "stop")?.json()?;
    Ok(())
}

/// A small file system of its own; gone when dropped.
struct Mounted(std::path::PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        Command::new("umount").arg("-l").arg(&self.0).status().ok();
    }
}

#[test]
fn a_full_disk_pauses_jobs_and_changes_no_bit() -> Result<()> {
    let folder = Arc::new(tempfile::tempdir()?);
    let data = folder.path().join("data");
    std::fs::create_dir(&data)?;
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=256m,mode=700", "tmpfs"]).arg(&data).status();
    if !mounted.is_ok_and(|status| status.success()) {
        println!("skipped: a file system can be mounted by root only");
        return Ok(());
    }
    let _mounted = Mounted(data.clone());
    let node = Options::default().dev().start_in(folder)?;
    let client = node.anybody();
    prepare(&client)?;
    let spec = |name: &str| lenet(json!({ "name": name, "epochs": 30, "workers": 2 }));
    client.must_train(&spec("calm"), LONG)?;
    client.must_submit(&spec("disturbed"))?;
    client.job_until("disturbed", LONG, |detail| detail.job.epoch >= 2)?;
    let filler = data.join("filler");
    fill(&filler)?;
    let detail = client.job_until("disturbed", LONG, |detail| detail.job.reason.starts_with("waits: "))?;
    ensure!(!detail.job.state.is_over(), "{:?}", detail.job);
    std::fs::remove_file(&filler)?;
    client.must_finish("disturbed", LONG)?;
    let told = client.events("disturbed")?;
    let waits = |event: &JobEvent| matches!(event, JobEvent::State { reason, .. } if reason.starts_with("waits: "));
    ensure!(told.iter().any(|view| waits(&view.event)), "nobody was told");
    ensure!(weights(&client, "calm")? == weights(&client, "disturbed")?);
    node.stop()?;
    Ok(())
}

/// Takes all that is left on a file system.
fn fill(path: &std::path::Path) -> Result<()> {
    use std::io::Write;
    let mut file = std::fs::File::create(path)?;
    for size in [1 << 20, 4 << 10, 1] {
        let piece = vec![1; size];
        while file.write_all(&piece).is_ok() {}
    }
    Ok(())
}

#[test]
fn a_model_that_somebody_else_has_put_in_place_of_a_jobs_stays() -> Result<()> {
    let (_node, client) = super::node()?;
    client.must_submit(&lenet(json!({ "name": "kept", "keep": 1, "epochs": 100_000 })))?;
    client.job_until("kept", LONG, |detail| detail.job.epoch >= 2)?;
    client.order("kept", "stop")?.json()?;
    eventually(LONG, || Ok(client.job("kept")?.job.state == State::Stopped))?;
    let epoch = client.job("kept")?.job.epoch;
    let mine = format!("kept-e{epoch}");
    // The user deletes what the job left after its last epoch, and keeps something else under that name.
    let file = client.model_file("kept")?;
    ensure!(client.send("DELETE", &format!("/v1/models/{mine}"), &[], b"")?.status == 204);
    let digest = weft::digest::Digest::of(&file).to_string();
    client.post("/v1/uploads", &json!({ "digest": digest, "size": file.len() }))?.json()?;
    client.send("PUT", &format!("/v1/uploads/{digest}/parts/0"), &[], &file)?.json()?;
    let put = json!({ "upload": digest });
    let put = client.send("PUT", &format!("/v1/models/{mine}"), &[], &serde_json::to_vec(&put)?)?;
    ensure!(put.status == 201, "{put:?}");
    client.order("kept", "resume")?.json()?;
    client.job_until("kept", LONG, |detail| detail.job.epoch >= epoch + 2)?;
    client.order("kept", "stop")?.json()?;
    ensure!(client.model_file(&mine)? == file, "the job has deleted or replaced what is not its own");
    Ok(())
}

#[test]
fn an_order_is_obeyed_while_a_job_waits() -> Result<()> {
    let (node, memory) = node()?;
    let client = node.tenant("one", json!({ "worker_memory": 2 * memory }))?;
    prepare(&client)?;
    client.must_submit(&hog(memory))?;
    client.job_in("hog", State::Running, LONG)?;
    client.must_submit(&lenet(json!({ "name": "next", "memory": memory / 3 })))?;
    client.order("next", "stop")?.json()?;
    eventually(Duration::from_secs(20), || Ok(client.job("next")?.job.state == State::Stopped))?;
    client.order("next", "resume")?.json()?;
    ensure!(client.job("next")?.job.state == State::Queued);
    client.order("hog", "stop")?.json()?;
    client.must_finish("next", LONG)?;
    Ok(())
}
