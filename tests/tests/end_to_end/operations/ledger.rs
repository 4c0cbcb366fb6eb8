//! The tenant's ledger beside what its jobs say of themselves, on nodes that are killed.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;
use weft_tests::components::echo;
use weft_tests::http::Client;
use weft_tests::node::Options;

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
