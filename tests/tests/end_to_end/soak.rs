//! Every harm at once, from several tenants, over and over.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use weft_tests::components;
use weft_tests::node::Options;

use super::hostile::{self, ProcessHeld};

/// Tenants that do harm at the same time.
const TENANTS: usize = 4;

#[test]
fn all_harms_together_leave_nothing_behind() -> Result<()> {
    let harms: Vec<_> = hostile::all()?.into_iter().filter(|(_, harm)| harm.flags.is_empty()).collect();
    let rounds = harms.iter().map(|(_, harm)| harm.times).min().unwrap_or(1).div_ceil(10);
    let node = Options::default().start()?;
    let mut tenants = Vec::new();
    for index in 0..TENANTS {
        let quota = serde_json::json!({
            "cpu_ms": 50, "wall_ms": 500, "instance_memory": 32 << 20, "log_bytes": 256 << 10, "upload_bytes": 1 << 20,
        });
        let tenant = node.tenant(&format!("tenant-{index}"), quota)?;
        tenant.must_deploy("hostile", &components::hostile()?)?;
        tenants.push(tenant);
    }
    // Whatever is refused, trapped or stopped: only the node failing would be wrong.
    let round = |rounds: usize| -> Result<()> {
        let next = AtomicUsize::new(0);
        let work = || -> Result<()> {
            loop {
                let turn = next.fetch_add(1, Relaxed);
                if turn >= rounds * harms.len() * TENANTS {
                    return Ok(());
                }
                let (name, harm) = &harms[turn % harms.len()];
                let tenant = &tenants[turn / harms.len() % TENANTS];
                let answer = match (harm.body, harm.upload == *components::hostile()?) {
                    (Some(body), true) => tenant.invoke("hostile", body.as_bytes())?,
                    _ => tenant.deploy("other", &harm.upload)?,
                };
                ensure!(answer.status != 500 && answer.status != 503, "{name}: {answer:?}");
            }
        };
        thread::scope(|scope| {
            let workers: Vec<_> = (0..TENANTS).map(|_| scope.spawn(work)).collect();
            workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| anyhow!("a worker panicked"))?)
        })
    };
    round(1)?;
    node.idle(Duration::from_secs(20))?;
    let before = ProcessHeld::now(&node)?;
    round(rounds)?;
    node.idle(Duration::from_secs(20))?;
    let after = ProcessHeld::back_to(before, &node)?;
    println!("{rounds} rounds of {} harms by {TENANTS} tenants: {before:?} -> {after:?}", harms.len());
    after.is_no_more_than(before)
}
