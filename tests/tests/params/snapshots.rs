//! Snapshots of the embedded store: one at a time, whole, and with all that they are to hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use weft::params::bucket::Keeping;
use weft::params::embedded::Embedded;
use weft::params::{ParamStore, Value};

use super::backends::{key, run};
use super::crashes::{content, durable, number_of, open};

fn is_in_the_snapshot(folder: &std::path::Path, content: &[u8]) -> Result<bool> {
    let snapshot = std::fs::read(folder.join("snapshot"))?;
    Ok(snapshot.windows(content.len()).any(|bytes| bytes == content))
}

#[test]
fn saves_at_once_lose_nothing() -> Result<()> {
    const VALUES: u64 = 200;
    let folder = tempfile::tempdir()?;
    run(async {
        let (store, bucket) = open(folder.path())?;
        let done = Arc::new(AtomicBool::new(false));
        let savers: Vec<_> = (0..2)
            .map(|_| {
                let (store, done) = (store.clone(), done.clone());
                tokio::spawn(async move {
                    while !done.load(Ordering::Relaxed) {
                        store.save().await?;
                    }
                    anyhow::Ok(())
                })
            })
            .collect();
        for number in 1..=VALUES {
            bucket.set(key(&format!("value/{number}")), Value::bytes(content(number)), durable()).await?;
        }
        done.store(true, Ordering::Relaxed);
        for saver in savers {
            saver.await??;
        }
        drop((store, bucket));
        let (_store, bucket) = open(folder.path())?;
        for number in 1..=VALUES {
            let found = bucket.get(&key(&format!("value/{number}"))).await?;
            ensure!(number_of(&found.with_context(|| format!("{number} is lost"))?)? == number);
        }
        Ok(())
    })
}

#[test]
fn a_save_that_nobody_waits_for_is_done_all_the_same() -> Result<()> {
    let folder = tempfile::tempdir()?;
    run(async {
        let (store, bucket) = open(folder.path())?;
        bucket.set(key("a"), Value::bytes(content(3)), Keeping::default()).await?;
        tokio::time::timeout(Duration::ZERO, store.save()).await.ok();
        store.save().await?;
        ensure!(is_in_the_snapshot(folder.path(), &content(3))?);
        Ok(())
    })
}

#[test]
fn a_save_waits_for_the_one_that_is_under_way() -> Result<()> {
    let folder = tempfile::tempdir()?;
    run(async {
        let (store, bucket) = open(folder.path())?;
        bucket.set(key("a"), Value::bytes(content(3)), Keeping::default()).await?;
        let mut first = store.save();
        let begun = tokio::time::timeout(Duration::ZERO, &mut first).await;
        store.save().await?;
        ensure!(is_in_the_snapshot(folder.path(), &content(3))?, "the other one is not done");
        // On another thread it may have been done before anybody looked.
        match begun {
            Ok(done) => done?,
            Err(_) => first.await?,
        }
        Ok(())
    })
}

#[test]
fn a_snapshot_that_cannot_be_written_leaves_nothing_beside() -> Result<()> {
    let folder = tempfile::tempdir()?;
    run(async {
        let (store, bucket) = open(folder.path())?;
        bucket.set(key("a"), Value::bytes(content(3)), Keeping::default()).await?;
        // Nothing can be put in the place of a folder.
        std::fs::create_dir(folder.path().join("snapshot"))?;
        ensure!(store.save().await.is_err());
        ensure!(!folder.path().join("snapshot.new").exists());
        std::fs::remove_dir(folder.path().join("snapshot"))?;
        store.save().await?;
        ensure!(is_in_the_snapshot(folder.path(), &content(3))?, "it is tried again");
        Ok(())
    })
}

#[test]
fn what_a_crash_left_beside_the_snapshot_goes_at_the_next_start() -> Result<()> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("snapshot.new"), b"half a snap")?;
    run(async { open(folder.path()).map(drop) })?;
    ensure!(!folder.path().join("snapshot.new").exists());
    Ok(())
}

#[test]
fn what_a_deleted_tenant_had_leaves_the_snapshot_although_nobody_writes() -> Result<()> {
    let folder = tempfile::tempdir()?;
    run(async {
        let (store, bucket) = open(folder.path())?;
        bucket.set(key("a"), Value::bytes(content(3)), Keeping::default()).await?;
        store.save().await?;
        drop((store, bucket));
        let store = Embedded::open(folder.path(), |_| None)?;
        store.save().await?;
        ensure!(!is_in_the_snapshot(folder.path(), &content(3))?);
        Ok(())
    })
}

#[test]
fn what_was_deleted_and_then_cleared_does_not_come_back_from_a_snapshot() -> Result<()> {
    let folder = tempfile::tempdir()?;
    run(async {
        let (store, bucket) = open(folder.path())?;
        bucket.set(key("a"), Value::bytes(content(3)), Keeping::default()).await?;
        store.save().await?;
        bucket.delete(&[key("a")]).await?;
        store.collect().await?;
        bucket.clear().await?;
        drop((store, bucket));
        let (_store, bucket) = open(folder.path())?;
        ensure!(bucket.get(&key("a")).await?.is_none());
        Ok(())
    })
}

/// A space that has only claims counts for its tenant, so it must be found by whoever clears all of the tenant's spaces.
#[test]
fn a_space_that_has_only_claims_is_listed_and_cleared() -> Result<()> {
    let folder = tempfile::tempdir()?;
    run(async {
        let (store, bucket) = open(folder.path())?;
        let tenant = "tenant".parse()?;
        bucket.claimed(&key("worker")).await?;
        ensure!(store.used(&tenant).await? > 0);
        for space in store.spaces(&tenant).await? {
            store.clear(&space).await?;
        }
        ensure!(store.used(&tenant).await? == 0);
        Ok(())
    })
}
