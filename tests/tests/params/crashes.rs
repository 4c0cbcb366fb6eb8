//! kill -9 of a process that uses the embedded store: what was acknowledged as durable is there, and nothing is half there.

use std::io::{BufRead, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use weft::params::bucket::Keeping;
use weft::params::embedded::Embedded;
use weft::params::{Bucket, Entry, Fence, ParamStore, Space, Value};

use super::backends::{LIMIT, account, key, run};

/// Where the child works; only the child has it.
const FOLDER: &str = "WEFT_TEST_PARAMS_FOLDER";

/// Kills in one run; `WEFT_SOAK` multiplies them.
fn kills() -> u64 {
    10 * std::env::var("WEFT_SOAK").ok().and_then(|times| times.parse::<u64>().ok()).unwrap_or(1)
}

pub fn open(folder: &std::path::Path) -> Result<(Arc<Embedded>, Bucket)> {
    let account = account(LIMIT);
    let store = Embedded::open(folder, |_| Some(account.clone()))?;
    let space = Space::of_job("tenant".parse()?, "job".parse()?);
    Ok((store.clone(), Bucket::new(store, space, account)))
}

/// Recognizable, of any length.
pub fn content(number: u64) -> Vec<u8> {
    let length = 8 + (number % 7) as usize * 100_000;
    number.to_le_bytes().into_iter().cycle().take(length).collect()
}

pub fn number_of(entry: &Entry) -> Result<u64> {
    let bytes = entry.value.data.first_chunk::<8>().context("too short")?;
    let number = u64::from_le_bytes(*bytes);
    ensure!(entry.value.data == content(number), "a part of `{number}`");
    Ok(number)
}

/// Writes until it is killed, and says what is acknowledged. No test, so never run as one: another test starts this
/// program with only this in it, to have a process of its own to kill.
#[test]
#[ignore = "the process that is killed by other tests"]
fn child() -> Result<()> {
    let Ok(folder) = std::env::var(FOLDER) else { return Ok(()) };
    run(async {
        let (store, bucket) = open(std::path::Path::new(&folder))?;
        let saving = {
            let store = store.clone();
            tokio::spawn(async move {
                loop {
                    store.save().await.expect("saving");
                    tokio::time::sleep(Duration::from_millis(7)).await;
                }
            })
        };
        let first = bucket.get(&key("count")).await?.and_then(|entry| entry.value.count()).unwrap_or(0) as u64;
        let durable = Keeping { durable: true, ..Keeping::default() };
        for number in first + 1.. {
            let slot = format!("slot/{}", number % 5);
            if number % 11 == 0 {
                bucket.delete(&[key(&slot)]).await?;
                println!("deleted {number}");
            }
            let values =
                vec![(key(&slot), Value::bytes(content(number))), (key("count"), Value::counter(number as i64))];
            bucket.set_many(values, durable).await?;
            bucket.set(key("passing"), Value::bytes(content(number)), Keeping::default()).await?;
            println!("acknowledged {number}");
            std::io::stdout().flush()?;
        }
        saving.abort();
        Ok(())
    })
}

#[test]
fn what_was_acknowledged_survives_kill_9() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut last = 0;
    for cycle in 0..kills() {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--exact", "params::crashes::child", "--ignored", "--nocapture", "--test-threads", "1"])
            .env(FOLDER, folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
        // Killed in the middle of whatever comes after so many.
        let (mut seen, wanted) = (0, 3 + cycle * 7 % 23);
        for line in lines.by_ref() {
            if let Some(number) = line?.split("acknowledged ").nth(1) {
                last = number.trim().parse()?;
                seen += 1;
                if seen >= wanted {
                    break;
                }
            }
        }
        std::thread::sleep(Duration::from_micros(cycle * 313 % 2_000));
        child.kill()?;
        child.wait()?;
        // What it said before it died, and was not read yet.
        for line in lines.map_while(Result::ok) {
            if let Some(number) = line.split("acknowledged ").nth(1).and_then(|number| number.trim().parse().ok()) {
                last = number;
            }
        }
        ensure!(seen >= wanted, "the child ended by itself in cycle {cycle}");
        run(async {
            let (_store, bucket) = open(folder.path())?;
            let count =
                bucket.get(&key("count")).await?.and_then(|entry| entry.value.count()).context("no count")? as u64;
            ensure!(count >= last, "{last} was acknowledged, {count} is there");
            for slot in 0..5 {
                let newest = (0..=count).rev().find(|number| number % 5 == slot).filter(|&number| number > 0);
                let found =
                    bucket.get(&key(&format!("slot/{slot}"))).await?.map(|entry| number_of(&entry)).transpose()?;
                // Set with the count; or the next round was in the middle of deleting it.
                let deleted = (count + 1).is_multiple_of(11) && (count + 1) % 5 == slot;
                ensure!(found == newest || deleted && found.is_none(), "slot {slot} has {found:?} at {count}");
            }
            if let Some(passing) = bucket.get(&key("passing")).await? {
                number_of(&passing)?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn a_snapshot_holds_everything_and_takes_its_place_in_one_step() -> Result<()> {
    let folder = tempfile::tempdir()?;
    run(async {
        let (store, bucket) = open(folder.path())?;
        bucket.set(key("a"), Value::bytes(content(3)), Keeping::default()).await?;
        let claimed = bucket.claimed(&key("worker")).await?;
        let epoch = claimed.fence().context("no fence")?.epoch;
        store.save().await?;
        bucket.set(key("b"), Value::bytes(content(4)), Keeping::default()).await?;
        drop((store, bucket, claimed));
        let (store, bucket) = open(folder.path())?;
        ensure!(number_of(&bucket.get(&key("a")).await?.context("it was saved")?)? == 3);
        ensure!(bucket.get(&key("b")).await?.is_none(), "it was neither saved nor durable");
        ensure!(bucket.claimed(&key("worker")).await?.fence().context("no fence")?.epoch > epoch);
        ensure!(
            bucket.fenced(Fence { claim: key("worker"), epoch }).delete(&[key("b")]).await.is_err(),
            "claims are kept"
        );
        let version = bucket.set(key("a"), Value::bytes(content(5)), Keeping::default()).await?;
        store.save().await?;
        drop((store, bucket));
        // What is beside it was never put in place.
        std::fs::write(folder.path().join("snapshot.new"), b"half a snap")?;
        let (_store, bucket) = open(folder.path())?;
        let entry = bucket.get(&key("a")).await?.context("it was saved")?;
        ensure!(entry.version == version && number_of(&entry)? == 5);
        ensure!(bucket.set(key("a"), Value::bytes(vec![]), Keeping::default()).await? > version);
        Ok(())
    })
}

#[test]
fn a_damaged_snapshot_is_told_and_left_alone() -> Result<()> {
    let folder = tempfile::tempdir()?;
    run(async {
        let (store, bucket) = open(folder.path())?;
        bucket.set(key("a"), Value::bytes(content(3)), Keeping::default()).await?;
        Ok(store.save().await?)
    })?;
    let path = folder.path().join("snapshot");
    let good = std::fs::read(&path)?;
    for at in [0, 9, 20, 27, 35, 40, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        std::fs::write(&path, &bad)?;
        let error = open(folder.path()).err().context("it was taken for good")?.to_string();
        ensure!(error.contains("damaged") && error.contains("snapshot"), "{error}");
        ensure!(std::fs::read(&path)? == bad);
    }
    std::fs::write(&path, &good[..good.len() - 1])?;
    ensure!(open(folder.path()).is_err(), "cut off");
    std::fs::write(&path, &good)?;
    open(folder.path()).map(drop)
}

#[test]
fn values_are_counted_after_a_restart_too() -> Result<()> {
    let folder = tempfile::tempdir()?;
    run(async {
        let (store, bucket) = open(folder.path())?;
        bucket.set(key("a"), Value::bytes(vec![1; 10_000]), Keeping { durable: true, ..Keeping::default() }).await?;
        drop((store, bucket));
        let account = account(5_000);
        let store = Embedded::open(folder.path(), |_| Some(account.clone()))?;
        ensure!(account.used() == weft::params::counted(&key("a"), 10_000), "{}", account.used());
        let bucket = Bucket::new(store, Space::of_job("tenant".parse()?, "job".parse()?), account.clone());
        ensure!(bucket.set(key("b"), Value::bytes(vec![1]), Keeping::default()).await.is_err(), "there is no room");
        let held = bucket.get(&key("a")).await?.context("it is there")?;
        bucket.delete(&[key("a")]).await?;
        ensure!(account.used() > 0, "somebody still holds it");
        drop(held);
        ensure!(account.used() == 0);
        Ok(())
    })
}

pub fn durable() -> Keeping {
    Keeping { durable: true, ..Keeping::default() }
}

pub fn journals(folder: &std::path::Path) -> Result<Vec<std::path::PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("journal-")) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Whatever became of what had them: a reader that knows a version would miss a value that has it again.
#[test]
fn no_version_is_given_twice() -> Result<()> {
    let folder = tempfile::tempdir()?;
    run(async {
        let mut newest = 0;
        let newer = |version: u64, newest: &mut u64| {
            ensure!(version > *newest, "{version} after {newest}");
            *newest = version;
            anyhow::Ok(())
        };
        for saved in [false, true, true, false] {
            let (store, bucket) = open(folder.path())?;
            newer(bucket.set(key("a"), Value::bytes(vec![1]), Keeping::default()).await?, &mut newest)?;
            newer(bucket.claimed(&key("worker")).await?.fence().context("no fence")?.epoch, &mut newest)?;
            bucket.clear().await?;
            newer(bucket.set(key("a"), Value::bytes(vec![1]), Keeping::default()).await?, &mut newest)?;
            bucket.delete(&[key("a")]).await?;
            if saved {
                store.save().await?;
            }
        }
        Ok(())
    })
}

#[test]
fn what_was_cleared_does_not_come_back_from_a_snapshot() -> Result<()> {
    let folder = tempfile::tempdir()?;
    run(async {
        let (store, bucket) = open(folder.path())?;
        bucket.set(key("passing"), Value::bytes(content(1)), Keeping::default()).await?;
        bucket.set(key("kept"), Value::bytes(content(2)), durable()).await?;
        let claimed = bucket.claimed(&key("worker")).await?;
        store.save().await?;
        bucket.clear().await?;
        bucket.set(key("after"), Value::bytes(content(3)), durable()).await?;
        let fence = claimed.fence().context("no fence")?.clone();
        drop((store, bucket, claimed));
        let (_store, bucket) = open(folder.path())?;
        let names: Vec<String> =
            bucket.list("", None, 10).await?.items.into_iter().map(|(key, _)| key.into()).collect();
        ensure!(names == ["after"], "{names:?}");
        ensure!(bucket.fenced(fence).set(key("x"), Value::bytes(vec![]), Keeping::default()).await.is_err());
        Ok(())
    })
}

#[test]
fn what_a_deleted_tenant_had_is_dropped_at_the_next_start() -> Result<()> {
    let folder = tempfile::tempdir()?;
    run(async {
        let (store, bucket) = open(folder.path())?;
        bucket.set(key("saved"), Value::bytes(content(1)), Keeping::default()).await?;
        store.save().await?;
        bucket.set(key("kept"), Value::bytes(content(2)), durable()).await?;
        drop((store, bucket));
        let tenant = "tenant".parse()?;
        let store = Embedded::open(folder.path(), |_| None)?;
        ensure!(store.used(&tenant).await? == 0 && store.spaces(&tenant).await?.is_empty());
        store.save().await?;
        drop(store);
        let (store, _) = open(folder.path())?;
        ensure!(store.used(&tenant).await? == 0, "it is still on disk");
        Ok(())
    })
}

#[test]
fn a_journal_that_is_damaged_before_its_end_is_told() -> Result<()> {
    let folder = tempfile::tempdir()?;
    run(async {
        let (_store, bucket) = open(folder.path())?;
        for number in 1..4 {
            bucket.set(key(&format!("slot/{number}")), Value::bytes(content(number)), durable()).await?;
        }
        Ok(())
    })?;
    let path = journals(folder.path())?.pop().context("no journal")?;
    let good = std::fs::read(&path)?;
    let at = |number: u64| {
        let value = content(number);
        good.windows(16).position(|bytes| bytes == &value[..16]).context("not there")
    };
    for number in [1, 2] {
        let mut bad = good.clone();
        bad[at(number)? + 50] ^= 1;
        std::fs::write(&path, &bad)?;
        let error = open(folder.path()).err().context("it was taken for good")?.to_string();
        ensure!(error.contains("journal") && error.contains("damaged"), "{error}");
        ensure!(std::fs::read(&path)? == bad, "it is left alone");
    }
    // What was being written when the node died is no damage.
    for length in [at(3)? + 50, at(3)? - 30, at(3)? - 100] {
        std::fs::write(&path, &good[..length])?;
        for newer in journals(folder.path())?.into_iter().filter(|journal| *journal > path) {
            std::fs::remove_file(newer)?;
        }
        run(async {
            let (_store, bucket) = open(folder.path())?;
            ensure!(number_of(&bucket.get(&key("slot/2")).await?.context("it was acknowledged")?)? == 2);
            ensure!(bucket.get(&key("slot/3")).await?.is_none());
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn journals_that_hold_nothing_new_go() -> Result<()> {
    let folder = tempfile::tempdir()?;
    run(async {
        for _ in 0..3 {
            let (store, bucket) = open(folder.path())?;
            bucket.set(key("a"), Value::bytes(vec![1]), durable()).await?;
            store.save().await?;
            ensure!(journals(folder.path())?.len() == 1, "{:?}", journals(folder.path())?);
        }
        std::fs::write(folder.path().join("journal-00000000000000000000"), b"of before the snapshot")?;
        std::fs::write(folder.path().join("journal-00000000000000009999"), b"")?;
        let (store, bucket) = open(folder.path())?;
        store.save().await?;
        ensure!(journals(folder.path())?.len() == 1, "{:?}", journals(folder.path())?);
        ensure!(bucket.get(&key("a")).await?.is_some());
        Ok(())
    })
}

/// Nothing that was acknowledged is dropped, wherever the damage is: also where the journal's own mark is not known.
#[test]
fn damage_at_the_start_of_a_journal_is_told() -> Result<()> {
    let folder = tempfile::tempdir()?;
    run(async {
        let (store, bucket) = open(folder.path())?;
        bucket.set(key("saved"), Value::bytes(content(0)), Keeping::default()).await?;
        store.save().await?;
        bucket.set(key("slot/1"), Value::bytes(content(1)), durable()).await?;
        Ok(())
    })?;
    let path = journals(folder.path())?.pop().context("no journal")?;
    let good = std::fs::read(&path)?;
    let mark = good.windows(5).position(|bytes| bytes == b"Begin").context("no mark")?;
    for at in [0, 4, 12, mark, mark + 20] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        std::fs::write(&path, &bad)?;
        let error = open(folder.path()).err().with_context(|| format!("taken for good, byte {at}"))?.to_string();
        ensure!(error.contains("journal") && error.contains("damaged at byte 0"), "{error}");
        ensure!(std::fs::read(&path)? == bad, "it is left alone");
    }
    // What was being written when the node died is no damage.
    for length in [1, 15, mark, mark + 20] {
        std::fs::write(&path, &good[..length])?;
        run(async {
            let (_store, bucket) = open(folder.path())?;
            ensure!(bucket.get(&key("slot/1")).await?.is_none(), "{length} bytes");
            Ok(())
        })?;
        for newer in journals(folder.path())?.into_iter().filter(|journal| *journal > path) {
            std::fs::remove_file(newer)?;
        }
    }
    Ok(())
}

/// On a full disk a file can be created, but nothing can be written to it.
#[test]
fn versions_grow_although_no_start_could_write_its_clock() -> Result<()> {
    let folder = tempfile::tempdir()?;
    run(async {
        let (store, bucket) = open(folder.path())?;
        let mut newest = bucket.set(key("a"), Value::bytes(vec![1]), Keeping::default()).await?;
        store.save().await?;
        drop((store, bucket));
        for start in 0..5 {
            let (store, bucket) = open(folder.path())?;
            let version = bucket.set(key("a"), Value::bytes(vec![1]), Keeping::default()).await?;
            ensure!(version > newest, "start {start}: {version} after {newest}");
            newest = version;
            drop((store, bucket));
            // The last start can write again.
            if start < 3 {
                let journal = journals(folder.path())?.pop().context("no journal")?;
                std::fs::write(journal, b"")?;
            }
        }
        Ok(())
    })
}

#[test]
fn a_durable_value_that_was_replaced_and_deleted_does_not_come_back() -> Result<()> {
    let folder = tempfile::tempdir()?;
    run(async {
        let (store, bucket) = open(folder.path())?;
        bucket.set(key("a"), Value::bytes(content(1)), durable()).await?;
        bucket.set(key("a"), Value::bytes(content(2)), Keeping::default()).await?;
        bucket.delete(&[key("a")]).await?;
        drop((store, bucket));
        let (_store, bucket) = open(folder.path())?;
        ensure!(bucket.get(&key("a")).await?.is_none());
        Ok(())
    })
}
