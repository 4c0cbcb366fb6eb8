//! Data sets whose making takes long: it comes to an end, whatever they are made of.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use serde_json::json;
use weft_tests::node::{Options, eventually};

use super::{append, create, disk_holds_what_is_charged, stored, synthetic};

/// More samples than anybody has time for.
const ENDLESS: u64 = 1 << 40;
const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_data_set_that_takes_too_long_is_given_up_and_leaves_nothing() -> Result<()> {
    let node = Options::default().set("build-timeout", "1s").start()?;
    let tenant = node.tenant("one", json!({}))?;
    ensure!(create(&tenant, "small", &synthetic(100, 1))?.status == 201);
    let before = stored(&tenant)?;
    // More of them than there are places, one after another.
    for round in 0..3 {
        let start = Instant::now();
        let late = match round {
            0 => append(&tenant, "small", &synthetic(ENDLESS, 2))?,
            _ => create(&tenant, "endless", &synthetic(ENDLESS, 3))?,
        };
        let kind = late.problem_kind()?;
        ensure!(late.status == 504, "{late:?}");
        ensure!(kind == ("deadline-exceeded".to_owned(), Some("build_timeout".to_owned())), "{late:?}");
        ensure!(start.elapsed() < Duration::from_secs(10), "it took {:?}", start.elapsed());
    }
    eventually(LONG, || Ok(stored(&tenant)? == before))?;
    ensure!(create(&tenant, "other", &synthetic(100, 4))?.status == 201);
    disk_holds_what_is_charged(&node, &tenant)
}

#[test]
fn a_data_set_is_not_made_any_further_for_a_tenant_that_is_gone() -> Result<()> {
    let node = Options::default().start()?;
    let (gone, stays) = (node.tenant("gone", json!({}))?, node.tenant("stays", json!({}))?);
    thread::scope(|scope| {
        // Two each, which is all that one tenant may make at once.
        let making: Vec<_> = (0..2)
            .map(|number| {
                scope.spawn({
                    let gone = &gone;
                    move || create(gone, &format!("d{number}"), &synthetic(ENDLESS, number))
                })
            })
            .collect();
        let blobs = node.data_dir().join("blobs");
        eventually(LONG, || Ok(bytes_below(&blobs)? > 8 << 20))?;
        let deleted = node.operator()?.send("DELETE", "/v1/tenants/gone", &[], b"")?;
        ensure!(deleted.status == 204, "{deleted:?}");
        for making in making {
            let ended = making.join().map_err(|_| anyhow!("it panicked"))??;
            ensure!(ended.status == 401, "{ended:?}");
        }
        // Nothing of it goes on: no blocks are written any more, and those that were are gone.
        eventually(LONG, || Ok(bytes_below(&blobs)? < 1 << 20))?;
        anyhow::Ok(())
    })?;
    ensure!(create(&stays, "small", &synthetic(100, 1))?.status == 201);
    Ok(())
}

fn bytes_below(folder: &std::path::Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        bytes += match entry.file_type()?.is_dir() {
            true => bytes_below(&entry.path())?,
            // One that is deleted in this moment is none.
            false => entry.metadata().map_or(0, |file| file.len()),
        };
    }
    Ok(bytes)
}
