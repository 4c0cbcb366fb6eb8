//! A node that is abused in every way at once or in turn, and must be as it was afterwards: hogs of every operation, floods,
//! tenants who go in the middle, restarts, backups.
//!
//! In `make test` each is done a few times; `WEFT_SOAK=n` does more, with all operations and with more jobs than fit.

use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::{Value, json};
use weft::job::State;
use weft_tests::command::User;
use weft_tests::components::{self, component};
use weft_tests::guests;
use weft_tests::held::Held;
use weft_tests::http::Client;
use weft_tests::jobs::is_unfinished;
use weft_tests::node::{Node, Options, eventually};

use super::super::hostile::ProcessHeld;

mod hogs;

/// Longer than anything here takes on a busy machine.
const LONG: Duration = Duration::from_secs(180);
/// How long a node may take to have everything back.
const SETTLE: Duration = Duration::from_secs(30);
/// The longest that somebody who does nothing wrong may wait for a function of microseconds, whatever others do. Far more
/// than it should be: `make bench BENCH=fair` says what it is; here it must not stand still.
const STANDSTILL: Duration = Duration::from_secs(10);
/// The same of 99 in a hundred calls in the long form, where nothing else is tested beside it.
const HARDLY: Duration = Duration::from_millis(20);
/// By how much resident memory may differ afterwards, for allocators and caches.
const RESIDENT_SLACK: u64 = 256 << 20;

/// How often everything is done, and whether everything is: from `WEFT_SOAK`.
struct Scale {
    rounds: usize,
    is_long: bool,
}

fn scale() -> Scale {
    let soak = std::env::var("WEFT_SOAK").ok().and_then(|text| text.parse::<usize>().ok());
    Scale { rounds: soak.map_or(1, |times| times.div_ceil(100)), is_long: soak.is_some() }
}

/// How long each call of a bystander's took, the shortest first.
struct Took(Vec<Duration>);

impl Took {
    fn longest(&self) -> Duration {
        self.0.last().copied().unwrap_or_default()
    }

    /// No more than one in a hundred took longer.
    fn p99(&self) -> Duration {
        self.0.get(self.0.len() * 99 / 100).copied().unwrap_or_default()
    }

    /// The bystander never stood still; and in the long form, it noticed hardly anything of kernels.
    fn is_short(&self, at_most: Duration) -> Result<()> {
        ensure!(self.longest() < at_most, "the bystander waited: {self}");
        ensure!(!scale().is_long || self.p99() < HARDLY, "the bystander waited more than {HARDLY:?}: {self}");
        Ok(())
    }
}

impl std::fmt::Display for Took {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let calls = self.0.len();
        write!(formatter, "{calls} calls, p99 {:?}, the longest {:?}", self.p99(), self.longest())
    }
}

/// Runs something beside a tenant who calls a small function all the time, and says how long these calls took.
fn beside_bystander<R>(node: &Node, run: impl FnOnce() -> Result<R>) -> Result<(R, Took)> {
    let bystander = node.tenant("bystander", json!({ "requests_per_second": u32::MAX })).context("no bystander")?;
    bystander.must_deploy("echo", &components::echo()?)?;
    // The first call loads it.
    bystander.must_invoke("echo", "hello")?;
    let stop = AtomicBool::new(false);
    let call = || -> Result<Vec<Duration>> {
        let mut took = Vec::new();
        while !stop.load(Relaxed) {
            let start = Instant::now();
            ensure!(bystander.must_invoke("echo", "hello")? == "hello", "echo does not");
            took.push(start.elapsed());
        }
        Ok(took)
    };
    thread::scope(|scope| {
        let calling = scope.spawn(call);
        let result = run();
        stop.store(true, Relaxed);
        let mut took = calling.join().map_err(|_| anyhow!("the bystander panicked"))?.context("the bystander")?;
        took.sort();
        Ok((result?, Took(took)))
    })
}

fn delete_tenant(node: &Node, name: &str) -> Result<()> {
    let deleted = node.operator()?.send("DELETE", &format!("/v1/tenants/{name}"), &[], b"")?;
    ensure!(deleted.status == 204, "{deleted:?}");
    Ok(())
}

fn digits(client: &Client) -> Result<()> {
    let made = client.send("PUT", "/v1/datasets/digits", &[], &serde_json::to_vec(&json!({ "shipped": "digits" }))?)?;
    ensure!(made.status == 201, "{made:?}");
    client.must_deploy("lenet", &component("functions/lenet")?)?;
    Ok(())
}

fn job(name: &str, epochs: u64, memory: u64) -> Value {
    json!({
        "function": "lenet", "dataset": "digits", "name": name, "epochs": epochs, "batch": 16, "lr": 0.02, "seed": 7,
        "memory": memory, "checkpoint_every": 1,
    })
}

/// Nothing goes on, and memory and descriptors are back.
fn is_as_it_was(node: &Node, before: ProcessHeld) -> Result<()> {
    node.idle(SETTLE)?;
    let after = ProcessHeld::back_to(before, RESIDENT_SLACK, node)?;
    println!("{before:?} -> {after:?}");
    after.is_no_more_than(before, RESIDENT_SLACK)
}

/// Processes that compute for ever, until dropped.
struct Busy(Vec<Child>);

impl Busy {
    fn start(count: usize) -> Result<Self> {
        let start = || Command::new("sh").args(["-c", "while :; do :; done"]).spawn();
        Ok(Self((0..count).map(|_| start()).collect::<std::io::Result<_>>()?))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for process in &mut self.0 {
            // One that has gone by itself needs no killing.
            process.kill().ok();
            process.wait().ok();
        }
    }
}

/// Turns become overdue all the time where others compute too: no job is forgotten because of that.
#[test]
fn jobs_of_four_workers_end_in_time_on_a_busy_machine() -> Result<()> {
    // In the short form others are tested beside it.
    let (jobs, busy) = if scale().is_long { (500, 8) } else { (6, 4) };
    let node = Options::default().start()?;
    let tenant = node.tenant("steady", json!({}))?;
    digits(&tenant)?;
    let _busy = Busy::start(busy)?;
    let mut took = Vec::new();
    for number in 0..jobs {
        let start = Instant::now();
        let spec = json!({
            "function": "lenet", "dataset": "digits", "name": format!("job-{number}"), "workers": 4, "k": 8, "epochs": 5,
            "memory": 64 << 20, "seed": number,
        });
        tenant.must_train(&spec, LONG)?;
        took.push(start.elapsed());
        tenant.post("/v1/jobs/prune", &json!({}))?;
    }
    took.sort();
    let (median, longest) = (took[jobs / 2], took[jobs - 1]);
    println!("{jobs} jobs beside busy processes: median {median:?}, longest {longest:?}");
    ensure!(longest < median * 10, "median {median:?}, longest {longest:?}");
    Ok(())
}

/// Requests of one tenant at once, more than it may have, from many connections, most of which are not waited for.
#[test]
fn floods_leave_nothing_behind() -> Result<()> {
    let scale = scale();
    let node = Options::default().start()?;
    let flood = node.tenant("flood", json!({ "requests_per_second": u32::MAX, "instances": 8, "wall_ms": 1_000 }))?;
    flood.must_deploy("hostile", &components::hostile()?)?;
    flood.must_deploy("sleep", &guests::wat("wasi-sleep")?)?;
    let wave = || -> Result<()> {
        let mut held = Held::invoke_all(&flood, "sleep", "", 24)?;
        for body in ["huge:1000000", "flood:100", "alloc:20000000", "error:quota", "trap"] {
            held.extend(Held::invoke_all(&flood, "hostile", body, 8)?);
            let answer = flood.invoke("hostile", body.as_bytes())?;
            ensure!(answer.status != 500, "{body}: {answer:?}");
        }
        drop(held);
        node.idle(SETTLE)
    };
    // Pools and caches get their size.
    wave()?;
    let before = ProcessHeld::now(&node)?;
    let ((), took) = beside_bystander(&node, || (0..3 * scale.rounds).try_for_each(|_| wave()))?;
    println!("beside floods the bystander had {took}");
    ensure!(took.longest() < STANDSTILL, "the bystander waited: {took}");
    is_as_it_was(&node, before)
}

/// What a tenant has, as it sees it itself: nothing, for one who is new.
fn nothing_is_there(client: &Client) -> Result<()> {
    for (path, list) in [
        ("/v1/functions", "functions"),
        ("/v1/datasets", "datasets"),
        ("/v1/models", "models"),
        ("/v1/jobs", "jobs"),
        ("/v1/params", "params"),
    ] {
        let answer = client.get(path)?.json()?;
        ensure!(answer[list].as_array().is_some_and(Vec::is_empty), "{path} of somebody new: {answer}");
    }
    Ok(())
}

#[test]
fn tenants_are_deleted_under_load_and_their_names_taken_again() -> Result<()> {
    let scale = scale();
    let node = Options::default().start()?;
    let round = || -> Result<()> {
        let tenant = node.tenant("brief", json!({ "wall_ms": 2_000 }))?;
        nothing_is_there(&tenant)?;
        digits(&tenant)?;
        tenant.must_deploy("hog", &component("tests/guests/hog")?)?;
        tenant.must_deploy("sleep", &guests::wat("wasi-sleep")?)?;
        let set = tenant.send("PUT", "/v1/params/left", &[], b"behind")?;
        ensure!((200..300).contains(&set.status), "{set:?}");
        let running = tenant.must_submit(&job("running", 1_000, 64 << 20))?;
        tenant.job_until(&running, LONG, |detail| detail.job.state == State::Running)?;
        let _calls = (Held::invoke_all(&tenant, "hog", "softmax", 2)?, Held::invoke_all(&tenant, "sleep", "1", 4)?);
        eventually(SETTLE, || Ok(node.view()?.instances >= 4))?;
        delete_tenant(&node, "brief")
    };
    // Pools and caches get their size.
    round()?;
    node.idle(SETTLE)?;
    let before = ProcessHeld::now(&node)?;
    let ((), took) = beside_bystander(&node, || (0..2 * scale.rounds).try_for_each(|_| round()))?;
    println!("beside tenants who came and went the bystander had {took}");
    ensure!(took.longest() < STANDSTILL, "the bystander waited: {took}");
    is_as_it_was(&node, before)
}

/// Jobs on a node that is killed again and again come to the same models as jobs that nobody disturbs.
#[test]
fn a_busy_node_is_killed_and_started_again() -> Result<()> {
    let scale = scale();
    let mut node = Options::default().start()?;
    let tenant = node.tenant("steady", json!({ "worker_memory": 1_u64 << 40, "queued_jobs": 100 }))?;
    digits(&tenant)?;
    let (jobs, kills) = if scale.is_long { (8, 3 * scale.rounds) } else { (3, 2) };
    // With all of the device in thirds, most jobs wait; in the short form all have room.
    let memory = if scale.is_long { device_memory(&tenant)? / 3 } else { 64 << 20 };
    tenant.must_train(&job("twin", 30, 64 << 20), LONG)?;
    let twin = weights(&tenant, "twin")?;
    let names = (0..jobs).map(|number| tenant.must_submit(&job(&format!("job-{number}"), 30, memory)));
    let names: Vec<String> = names.collect::<Result<_>>()?;
    let key = tenant.key().context("no key")?.to_owned();
    for _ in 0..kills {
        let client = Client::new(node.url(), Some(&key));
        // Some way into a job, wherever that is.
        let is_under_way = |name: &String| -> Result<bool> {
            let job = client.job(name)?.job;
            Ok(job.state == State::Running && job.epoch > 0)
        };
        eventually(LONG, || {
            let states = names.iter().map(|name| Ok(client.job(name)?.job.state)).collect::<Result<Vec<_>>>()?;
            Ok(states.iter().all(|state| state.is_over())
                || names.iter().map(is_under_way).any(|it| it.unwrap_or(false)))
        })?;
        node = node.kill_and_restart()?;
    }
    let client = Client::new(node.url(), Some(&key));
    for name in &names {
        client.must_finish(name, LONG)?;
        ensure!(weights(&client, name)? == twin, "`{name}` has come to another model");
    }
    Ok(())
}

/// All that the node's cores have for jobs.
fn device_memory(client: &Client) -> Result<u64> {
    let answer = client.get("/v1/devices")?.json()?;
    let devices = answer["devices"].as_array().context("no devices")?;
    let cpu = devices.iter().find(|device| device["device"] == "cpu").context("no CPU")?;
    cpu["memory"].as_u64().with_context(|| format!("no memory in {cpu}"))
}

/// The numbers of a job's model, without what its file says about when it was made.
fn weights(client: &Client, job: &str) -> Result<Vec<(String, Vec<u8>)>> {
    let mut model = weft::model::Model::open(std::io::Cursor::new(client.model_file(job)?))?;
    let names: Vec<String> = model.tensors().map(|tensor| tensor.name.clone()).collect();
    names.into_iter().map(|name| Ok((name.clone(), model.tensor(&name)?))).collect()
}

/// Backups that are taken while jobs write checkpoints can be restored; in the long form each of them, with its jobs.
#[test]
fn backups_are_taken_while_jobs_run() -> Result<()> {
    let scale = scale();
    let node = Options::default().start()?;
    let tenant = node.tenant("steady", json!({}))?;
    digits(&tenant)?;
    let epochs = if scale.is_long { 300 } else { 40 };
    tenant.must_submit(&job("long", epochs, 64 << 20))?;
    tenant.job_until("long", LONG, |detail| detail.job.epoch > 0)?;
    let (user, operator) = (User::new()?, User::of(&node.operator()?)?);
    let (mut restored, mut unfinished) = (Vec::new(), 0);
    for number in 0..2 * scale.rounds {
        let file = user.home().join(format!("backup-{number}.tar")).display().to_string();
        operator.must(&["backup", &file])?;
        let folder = std::sync::Arc::new(tempfile::tempdir()?);
        let data = folder.path().join("data");
        user.must(&["restore", &file, "--data-dir", &data.display().to_string()])?;
        std::fs::remove_file(&file)?;
        unfinished += usize::from(is_unfinished(&data, "long")?);
        restored.push(folder);
    }
    // Or there is nothing to go on with after any of them.
    let least = if scale.is_long { restored.len() / 2 } else { 1 };
    ensure!(unfinished >= least, "the job was not over in {unfinished} of {} backups", restored.len());
    tenant.must_finish("long", LONG)?;
    let expected = weights(&tenant, "long")?;
    let key = tenant.key().context("no key")?.to_owned();
    node.stop()?;
    let looked_at = if scale.is_long { restored.len() } else { 1 };
    for folder in restored.into_iter().take(looked_at) {
        let node = Options::default().start_in(folder)?;
        let tenant = Client::new(node.url(), Some(&key));
        tenant.must_finish("long", LONG)?;
        ensure!(weights(&tenant, "long")? == expected, "a restored job has come to another model");
    }
    Ok(())
}
