//! Every harm at once, from several tenants, over and over, on one node.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::json;
use weft_tests::http::Client;
use weft_tests::node::{Node, Options};

use super::hostile::{self, Harm, ProcessHeld};

mod abuse;

const TENANTS: usize = 3;
const SETTLE: Duration = Duration::from_secs(20);
/// By how much resident memory may differ afterwards. It stops growing some 16 MiB above where the first round leaves it.
const RESIDENT_SLACK: u64 = 16 << 20;

/// A harm, and the name that its component is deployed under.
type Named = (String, Harm);

/// Harms that need no special node. Those with the same component share a function.
fn harms() -> Result<Vec<Named>> {
    let mut names: HashMap<Vec<u8>, String> = HashMap::new();
    let harms = hostile::all()?.into_iter().filter(|(_, harm)| harm.flags.is_empty());
    let named = harms.map(|(name, harm)| {
        let name = names.entry(harm.upload.clone()).or_insert_with(|| name.replace('_', "-"));
        (name.clone(), harm)
    });
    Ok(named.collect())
}

fn tenant(node: &Node, name: &str, harms: &[Named]) -> Result<Client> {
    let quota = json!({
        "cpu_ms": 50, "wall_ms": 300, "instance_memory": 32 << 20, "log_bytes": 256 << 10, "upload_bytes": 1 << 20,
    });
    let tenant = node.tenant(name, quota)?;
    for (function, harm) in harms.iter().filter(|(_, harm)| harm.body.is_some()) {
        tenant.must_deploy(function, &harm.upload)?;
    }
    Ok(tenant)
}

/// Does every harm that often for every tenant, several at a time.
fn rounds(tenants: &[Client], harms: &[Named], rounds: usize) -> Result<()> {
    let next = AtomicUsize::new(0);
    let work = || -> Result<()> {
        loop {
            let turn = next.fetch_add(1, Relaxed);
            let Some(round) = Some(turn / harms.len()).filter(|round| *round < rounds * tenants.len()) else {
                return Ok(());
            };
            let ((function, harm), tenant) = (&harms[turn % harms.len()], &tenants[round % tenants.len()]);
            let answer = match harm.body {
                Some(body) => tenant.invoke(function, body.as_bytes())?,
                None => tenant.deploy(function, &harm.upload)?,
            };
            // Which of its limits a harm meets first depends on what else goes on; that the node fails does not.
            ensure!(!matches!(answer.status, 500 | 503), "{function}: {answer:?}");
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| anyhow!("a worker panicked"))?)
    })
}

#[test]
fn all_harms_together_leave_nothing_behind() -> Result<()> {
    let harms = harms()?;
    let times = harms.iter().map(|(_, harm)| harm.times).max().context("there are no harms")?;
    let node = Options::default().start()?;
    let tenants =
        (0..TENANTS).map(|index| tenant(&node, &format!("tenant-{index}"), &harms)).collect::<Result<Vec<_>>>()?;
    // Until pools and caches have the size that so many different guests at once give them.
    rounds(&tenants, &harms, times.div_ceil(20))?;
    node.idle(SETTLE)?;
    let before = ProcessHeld::now(&node)?;
    rounds(&tenants, &harms, times.div_ceil(10))?;
    node.idle(SETTLE)?;
    let after = ProcessHeld::back_to(before, RESIDENT_SLACK, &node)?;
    println!("{before:?} -> {after:?}");
    after.is_no_more_than(before, RESIDENT_SLACK)
}
