//! The tenant's ledger beside what its jobs say of themselves, on nodes that are killed.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;
use weft::job::EpochRecord;
use weft_tests::components::echo;
use weft_tests::http::Client;
use weft_tests::node::{Options, eventually};

use crate::end_to_end::jobs::{lenet, prepare};

/// Longer than any of this takes on a busy machine.
const LONG: Duration = Duration::from_secs(120);

#[test]
fn the_ledger_never_has_less_than_the_jobs() -> Result<()> {
    let mut node = Options::default().start()?;
    let tenant = node.tenant("one", json!({}))?;
    prepare(&tenant)?;
    let spec = lenet(json!({ "name": "long", "workers": 2, "epochs": 1_000, "checkpoint_every": 1 }));
    tenant.must_submit(&spec)?;
    let mut client = tenant.clone();
    for kill in 1..=4 {
        let before = client.job("long")?.job.epoch;
        let detail = client.job_until("long", LONG, |detail| detail.job.epoch > before)?;
        // Killed in the middle of an epoch, whose beginning is in a checkpoint by then, and before the ledger's own time to
        // be written comes. The next time that epoch is over, and counts what was used before.
        let step = |checkpoint: Option<weft::job::record::CheckpointRef>| checkpoint.map_or(0, |kept| kept.step);
        let noted = step(detail.checkpoint);
        client.job_until("long", LONG, |detail| step(detail.checkpoint) >= noted + 20)?;
        node = node.kill_and_restart()?;
        client = Client::new(node.url(), tenant.key());
        let (usage, job) = (client.usage()?.usage, client.job("long")?);
        let spent = job.spending;
        ensure!(usage.invocations >= spent.invocations, "kill {kill}: {usage:?} {spent:?}");
        ensure!(usage.moved_bytes >= spent.bytes, "kill {kill}: {usage:?} {spent:?}");
        // The same sums, rounded in other places.
        ensure!(usage.device_seconds() > spent.device_seconds * 0.999, "kill {kill}: {usage:?} {spent:?}");
        ensure!(usage.cost() > spent.cost * 0.999, "kill {kill}: {usage:?} {spent:?}");
    }
    client.order("long", "stop")?;
    Ok(())
}

/// An epoch is charged, and then recorded with its checkpoint. A node that dies in between does it again, and the job has done
/// it once all the same.
#[test]
fn an_epoch_that_is_done_again_after_a_crash_is_recorded_once() -> Result<()> {
    const EPOCHS: u64 = 10;
    let mut node = Options::default().start()?;
    let tenant = node.tenant("one", json!({}))?;
    prepare(&tenant)?;
    tenant.must_submit(&lenet(json!({ "name": "short", "workers": 2, "epochs": EPOCHS })))?;
    let mut client = tenant.clone();
    // With one more, a job that has come no further in between would be held back.
    for kill in 1..=2 {
        // The moment in which something was charged of an epoch that is not recorded.
        let (epoch, charged) = (client.job("short")?.job.epoch, client.usage()?.usage.invocations);
        eventually(LONG, || Ok(client.usage()?.usage.invocations > charged || client.job("short")?.job.epoch > epoch))?;
        ensure!(client.job("short")?.job.epoch < EPOCHS, "the job was over before kill {kill}");
        node = node.kill_and_restart()?;
        client = Client::new(node.url(), tenant.key());
    }
    let job = client.must_finish("short", LONG)?;
    let history = client.get("/v1/jobs/short/history")?.json()?;
    let history: Vec<EpochRecord> = serde_json::from_value(history["epochs"].clone())?;
    let epochs: Vec<u64> = history.iter().map(|epoch| epoch.epoch).collect();
    ensure!(epochs == (1..=EPOCHS).collect::<Vec<_>>(), "{epochs:?}");
    // What was done in vain is in none of them.
    let samples: BTreeSet<u64> = history.iter().map(|epoch| epoch.samples).collect();
    ensure!(samples.len() == 1, "epochs of {samples:?} samples");
    let (spent, usage) = (job.spending, client.usage()?.usage);
    let of_epochs: u64 = history.iter().map(|epoch| epoch.spending.invocations).sum();
    ensure!(spent.invocations == of_epochs, "{of_epochs} calls in the epochs, and {spent:?} in all");
    ensure!(usage.invocations >= spent.invocations, "the ledger has less than the job: {usage:?} {spent:?}");
    Ok(())
}

#[test]
fn nobody_else_can_read_what_a_node_writes() -> Result<()> {
    let node = Options::default().dev().start()?;
    node.anybody().must_deploy("echo", &echo()?)?;
    let mut folders = vec![node.data_dir()];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let mode = entry.metadata()?.permissions().mode();
            ensure!(mode & 0o077 == 0, "{} has mode {mode:o}", entry.path().display());
            seen += 1;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    ensure!(seen > 8, "only {seen} files and folders");
    Ok(())
}
