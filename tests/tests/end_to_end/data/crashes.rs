//! kill -9 in the middle of uploads, creations, additions and deletions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::json;
use weft::digest::Digest;
use weft_tests::http::Client;
use weft_tests::node::{Node, Options, eventually};

use super::super::durability::Moments;
use super::*;

/// Kills in one run; `WEFT_SOAK` multiplies them.
const KILLS: u64 = 8;
const CLIENTS: usize = 2;

/// A file on its way.
#[derive(Clone)]
struct Sending {
    seed: u64,
    samples: usize,
    acknowledged: BTreeSet<usize>,
}

impl Sending {
    /// Most have one part, some have two.
    fn new(seed: u64) -> Self {
        Self { seed, samples: if seed % 3 == 2 { 8_400 } else { 60 }, acknowledged: BTreeSet::new() }
    }

    fn file(&self) -> Vec<u8> {
        noisy_npy(self.seed, self.samples, 1_000)
    }
}

/// What one client has been told, and what it was waiting to hear.
#[derive(Default)]
struct Told {
    /// How many samples each of its data sets has.
    datasets: BTreeMap<String, u64>,
    sending: Option<Sending>,
    /// How many samples a data set will have if the request in flight is carried out; none if it is deleted.
    in_flight: Option<(String, u64)>,
}

fn lock(told: &Mutex<Told>) -> MutexGuard<'_, Told> {
    told.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Sends files and makes data sets of them until the node is gone, which ends in an error of the connection.
fn work(client: &Client, index: usize, seeds: &AtomicU64, told: &Mutex<Told>) -> Result<()> {
    loop {
        let seed = seeds.fetch_add(1, Relaxed);
        let sending = Sending::new(seed);
        let file = sending.file();
        let digest = Digest::of(&file).to_string();
        let (added, last) = (sending.samples as u64, lock(told).datasets.iter().next().map(|(a, b)| (a.clone(), *b)));
        lock(told).sending = Some(sending);
        let Ok(answer) = begin(client, &digest, file.len()) else { return Ok(()) };
        answer.json()?;
        for (part, bytes) in file.chunks(PART).enumerate() {
            let Ok(answer) = send_part(client, &digest, part, bytes) else { return Ok(()) };
            answer.json()?;
            lock(told).sending.as_mut().context("nothing is sent")?.acknowledged.insert(part);
        }
        let spec = of_file(&digest, "noise.npy");
        let (name, count) = match last.filter(|_| seed % 2 == 1) {
            Some((name, count)) => (name, count + added),
            None => (format!("set-{index}-{seed}"), added),
        };
        let grows = count > added;
        lock(told).in_flight = Some((name.clone(), count));
        let asked = if grows { append(client, &name, &spec) } else { create(client, &name, &spec) };
        let Ok(answer) = asked else { return Ok(()) };
        ensure!(answer.json()?["train"] == count, "{answer:?}");
        let mut now = lock(told);
        now.datasets.insert(name, count);
        (now.sending, now.in_flight) = (None, None);
        let Some(name) = now.datasets.keys().next().cloned().filter(|_| now.datasets.len() > 3) else { continue };
        now.in_flight = Some((name.clone(), 0));
        drop(now);
        let Ok(answer) = client.send("DELETE", &format!("/v1/datasets/{name}"), &[], b"") else { return Ok(()) };
        ensure!(answer.status == 204, "{answer:?}");
        lock(told).datasets.remove(&name);
        lock(told).in_flight = None;
    }
}

/// Compares a node that was killed and started again with what one client was told, and gives the bytes of what it has.
fn is_whole(client: &Client, index: usize, told: &mut Told) -> Result<u64> {
    let list = client.get("/v1/datasets?limit=1000")?.json()?;
    let mut found = BTreeMap::new();
    let mut bytes = 0;
    for dataset in list["datasets"].as_array().context("no data sets")? {
        let name = dataset["name"].as_str().context("no name")?;
        if !name.starts_with(&format!("set-{index}-")) {
            continue;
        }
        let (shown, count) = (show(client, name)?, dataset["train"].as_u64().context("no count")?);
        ensure!(shown["train"]["count"] == count, "{shown:#}");
        bytes += dataset["stored_bytes"].as_u64().context("no bytes")?;
        found.insert(name.to_owned(), count);
    }
    let in_flight = told.in_flight.take();
    let mut expected = told.datasets.clone();
    let mut carried_out = false;
    if let Some((name, count)) = &in_flight {
        carried_out = found.get(name).copied().unwrap_or(0) == *count;
        if carried_out && *count == 0 {
            expected.remove(name);
        } else if carried_out {
            expected.insert(name.clone(), *count);
        }
    }
    ensure!(found == expected, "{found:?} instead of {expected:?}, with {in_flight:?} in flight");
    told.datasets = found;
    let Some(sending) = &told.sending else { return Ok(bytes) };
    let file = sending.file();
    let digest = Digest::of(&file).to_string();
    let answer = client.get(&format!("/v1/uploads/{digest}"))?;
    if answer.status == 404 {
        ensure!(
            sending.acknowledged.is_empty() || carried_out,
            "upload `{digest}` is lost: {:?}",
            sending.acknowledged
        );
        told.sending = told.sending.take().filter(|_| !carried_out);
        return Ok(bytes);
    }
    let missing = missing(&answer.json()?)?;
    let lost: Vec<_> = missing.iter().filter(|part| sending.acknowledged.contains(part)).collect();
    ensure!(lost.is_empty(), "parts {lost:?} of `{digest}` are lost");
    if carried_out {
        // It is a data set already; one more would share its blocks.
        ensure!(delete(client, &format!("/v1/uploads/{digest}"))? == 204, "upload `{digest}` cannot be deleted");
        told.sending = None;
        return Ok(bytes);
    }
    let sent = file.chunks(PART).enumerate().filter(|(part, _)| !missing.contains(part));
    Ok(bytes + sent.map(|(_, part)| part.len() as u64).sum::<u64>())
}

/// What was interrupted goes on where it was.
fn resume(client: &Client, index: usize, told: &mut Told) -> Result<()> {
    let Some(sending) = told.sending.take() else { return Ok(()) };
    let digest = upload(client, &sending.file())?;
    let name = format!("set-{index}-{}-again", sending.seed);
    let answer = create(client, &name, &of_file(&digest, "noise.npy"))?;
    ensure!(answer.json()?["train"] == sending.samples, "{answer:?}");
    told.datasets.insert(name, sending.samples as u64);
    Ok(())
}

/// Every blob is what its name says.
fn blobs_are_intact(node: &Node) -> Result<()> {
    for name in files(node, "blobs")?.into_keys() {
        let found = Digest::of_file(&node.data_dir().join("blobs").join(&name))?;
        ensure!(found.hex() == name.replace('/', ""), "`{name}` has the digest {found}");
    }
    Ok(())
}

#[test]
fn a_killed_node_has_all_that_was_acknowledged_and_nothing_half() -> Result<()> {
    let mut moments = Moments::new()?;
    let times: u64 = std::env::var("WEFT_SOAK").ok().map_or(Ok(1), |times| times.parse())?;
    let mut node = Options::default().start()?;
    let key = node.tenant("one", json!({}))?.key().context("no key")?.to_owned();
    let told: Vec<Arc<Mutex<Told>>> = (0..CLIENTS).map(|_| Arc::default()).collect();
    let seeds = Arc::new(AtomicU64::new(1));
    for kill in 0..KILLS * times {
        let begun = seeds.load(Relaxed);
        let client = Client::new(node.url(), Some(&key));
        let start = |(index, told): (usize, &Arc<Mutex<Told>>)| {
            let (client, seeds, told) = (client.clone(), seeds.clone(), told.clone());
            thread::spawn(move || work(&client, index, &seeds, &told))
        };
        let workers: Vec<_> = told.iter().enumerate().map(start).collect();
        eventually(Duration::from_secs(60), || {
            Ok(seeds.load(Relaxed) > begun + CLIENTS as u64 || workers.iter().any(|worker| worker.is_finished()))
        })?;
        thread::sleep(Duration::from_millis(moments.next(600)));
        node = node.kill_and_restart()?;
        for worker in workers {
            worker.join().map_err(|_| anyhow!("a client panicked"))?.with_context(|| format!("before kill {kill}"))?;
        }
        let client = Client::new(node.url(), Some(&key));
        disk_holds_what_is_charged(&node, &client).with_context(|| format!("kill {kill}"))?;
        let mut bytes = 0;
        for (index, told) in told.iter().enumerate() {
            bytes += is_whole(&client, index, &mut lock(told)).with_context(|| format!("kill {kill}"))?;
        }
        ensure!(bytes == stored(&client)?, "after kill {kill}, records name {bytes} bytes of {}", stored(&client)?);
        for (index, told) in told.iter().enumerate() {
            resume(&client, index, &mut lock(told)).with_context(|| format!("kill {kill}"))?;
        }
        disk_holds_what_is_charged(&node, &client).with_context(|| format!("after kill {kill}, resumed"))?;
    }
    blobs_are_intact(&node)
}
