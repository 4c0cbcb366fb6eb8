//! Looking at a data set takes memory and a thread: both are the tenant's that looks.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;
use weft_tests::node::{Options, eventually, most_resident};

use super::*;

/// As many classes as there may be, with names that take as much as they may together: a manifest of more than a megabyte.
const CLASSES: usize = 65_536;
/// Requests at once.
const CROWD: usize = 40;
const SOON: Duration = Duration::from_secs(30);

fn with_many_names(client: &Client) -> Result<()> {
    let rest = "n".repeat(10);
    let table: String = std::iter::once("size,kind\n".to_owned())
        .chain((0..CLASSES).map(|class| format!("{class},{class:05}{rest}\n")))
        .collect();
    let upload = upload(client, table.as_bytes())?;
    create(client, "names", &of_file(&upload, "names.csv"))?.json()?;
    Ok(())
}

fn with_large_samples(client: &Client, bytes: usize) -> Result<()> {
    let upload = upload(client, &npy("|u1", &[2, bytes], &noise(7, 2 * bytes)))?;
    create(client, "samples", &of_file(&upload, "samples.npy"))?.json()?;
    Ok(())
}

#[test]
fn a_data_set_is_looked_at_within_its_tenants_memory() -> Result<()> {
    let node = Options::default().start()?;
    let client = node.tenant("one", json!({}))?;
    with_many_names(&client)?;
    with_large_samples(&client, 40 << 20)?;
    for name in ["names", "samples"] {
        ensure!(client.get(&format!("/v1/datasets/{name}"))?.status == 200, "{name}");
    }
    let quota = serde_json::to_vec(&json!({ "memory": 4 << 20 }))?;
    node.operator()?.send("PATCH", "/v1/tenants/one/quota", &[], &quota)?.json()?;
    for name in ["names", "samples"] {
        let answer = client.get(&format!("/v1/datasets/{name}"))?;
        ensure!(answer.status == 403, "{name}: {} with {} bytes", answer.status, answer.body.len());
        ensure!(answer.problem_kind()? == ("quota-exceeded".into(), Some("memory".into())), "{name}: {answer:?}");
    }
    // What is refused, and what was answered, is charged no more.
    eventually(SOON, || Ok(client.usage()?.now.memory == 0))
}

#[test]
fn a_crowd_that_looks_at_large_samples_takes_the_memory_of_a_few() -> Result<()> {
    const SAMPLE: u64 = 24 << 20;
    let node = Options::default().start()?;
    let client = node.tenant("one", json!({}))?;
    with_large_samples(&client, SAMPLE as usize)?;
    let before = most_resident(node.pid())?;
    thread::scope(|scope| {
        let look = || client.get("/v1/datasets/samples").map(|answer| answer.status);
        let crowd: Vec<_> = (0..CROWD).map(|_| scope.spawn(look)).collect();
        crowd.into_iter().try_for_each(|one| {
            let status = one.join().expect("nobody panics")?;
            ensure!(status == 200 || status == 429, "{status}");
            Ok(())
        })
    })?;
    let more = most_resident(node.pid())?.saturating_sub(before);
    ensure!(more < CROWD as u64 * SAMPLE / 2, "{more} bytes for {CROWD} looks at {SAMPLE} bytes");
    Ok(())
}

#[test]
fn a_crowd_that_looks_at_many_names_holds_up_nobody() -> Result<()> {
    let node = Options::default().start()?;
    let client = node.tenant("one", json!({}))?;
    with_many_names(&client)?;
    let is_over = AtomicBool::new(false);
    let mut waits = thread::scope(|scope| {
        let look = || -> Result<()> {
            while !is_over.load(Relaxed) {
                let status = client.get("/v1/datasets/names")?.status;
                ensure!(status == 200 || status == 429, "{status}");
            }
            Ok(())
        };
        let crowd: Vec<_> = (0..CROWD).map(|_| scope.spawn(look)).collect();
        let bystander = node.anybody();
        let waits = (0..60)
            .map(|_| {
                let start = Instant::now();
                ensure!(bystander.get("/livez")?.status == 200);
                Ok(start.elapsed())
            })
            .collect::<Result<Vec<_>>>();
        is_over.store(true, Relaxed);
        crowd.into_iter().try_for_each(|one| one.join().expect("nobody panics"))?;
        waits
    })?;
    waits.sort_unstable();
    let median = waits[waits.len() / 2];
    eprintln!("`/livez` took {median:?} in the middle, {:?} at most", waits[waits.len() - 1]);
    ensure!(median < Duration::from_millis(250), "half of the requests took more than {median:?}");
    Ok(())
}
