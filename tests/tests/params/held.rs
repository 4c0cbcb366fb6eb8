//! What a store takes for each value, and from the threads of those whom it serves.

use std::time::Duration;

use anyhow::{Result, ensure};
use weft::clock::thread_cpu;
use weft::params::bucket::Keeping;
use weft::params::embedded::Embedded;
use weft::params::{Bucket, ENTRY_BYTES, ParamStore, Space, Value, counted};
use weft_gpu::DType;

use super::super::memory::peak;
use super::backends::{account, key};
use super::crashes::open;

const MANY: u64 = 200_000;

/// Everything is done on this thread, but for what is given to threads that may wait.
fn alone<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

fn in_an_hour() -> Keeping {
    Keeping { expires: Some(Duration::from_secs(3_600)), ..Keeping::default() }
}

fn number_of(index: u64) -> Result<Value> {
    Ok(match index % 3 {
        0 => Value::bytes(vec![7]),
        1 => Value::counter(1),
        _ => Value::tensor(DType::F32, vec![1], vec![0; 4])?,
    })
}

/// What is counted for a value is what it takes, its name and its bytes apart: neither less nor far more.
#[test]
fn a_small_value_takes_what_is_counted_for_it() -> Result<()> {
    const VALUES: u64 = 20_000;
    let space = Space::of_job("tenant".parse()?, "job".parse()?);
    let bucket = Bucket::new(Embedded::in_memory(), space, account(1 << 30));
    let filled = || {
        alone(async {
            // In order: that leaves most room unused.
            for index in 0..VALUES {
                bucket.set(key(&format!("{index:08}")), number_of(index)?, in_an_hour()).await?;
            }
            Ok(())
        })
    };
    let (done, taken) = peak(filled);
    done?;
    // An allocator gives blocks of a few sizes: up to an eighth more than was asked for.
    let each = taken as u64 * 9 / 8 / VALUES;
    let bytes = counted(&key("00000000"), 8);
    eprintln!("a small value takes {each} bytes, and {bytes} are counted ({ENTRY_BYTES} beside name and bytes)");
    ensure!(each <= bytes, "it takes {each} bytes, and {bytes} are counted");
    ensure!(bytes < 2 * each, "it takes {each} bytes only, and {bytes} are counted");
    Ok(())
}

/// A thread that serves is needed by others: neither saving nor collecting looks at every value on it.
#[test]
fn many_values_are_kept_in_order_on_other_threads() -> Result<()> {
    let folder = tempfile::tempdir()?;
    alone(async {
        let (store, bucket) = open(folder.path())?;
        let start = thread_cpu();
        for index in 0..MANY {
            bucket.set(key(&format!("{index:08}")), number_of(index)?, in_an_hour()).await?;
        }
        let filling = thread_cpu() - start;
        let start = thread_cpu();
        store.save().await?;
        let saving = thread_cpu() - start;
        let start = thread_cpu();
        for _ in 0..50 {
            store.collect().await?;
            store.used(&"tenant".parse()?).await?;
        }
        let collecting = thread_cpu() - start;
        eprintln!("filling took {filling:?} of this thread, saving {saving:?}, collecting 50 times {collecting:?}");
        ensure!(saving < filling / 20, "saving took {saving:?} of this thread, and filling {filling:?}");
        ensure!(collecting < filling / 20, "collecting took {collecting:?} of this thread, and filling {filling:?}");
        Ok(())
    })
}

/// What is changed while a snapshot is written is in it wholly or not at all.
#[test]
fn a_change_of_two_names_is_saved_whole() -> Result<()> {
    use weft::params::{Change, Write};
    let folder = tempfile::tempdir()?;
    let rounds = alone(async {
        let (store, bucket) = open(folder.path())?;
        for index in 0..20_000 {
            bucket.set(key(&format!("m/{index:08}")), Value::bytes(vec![7]), Keeping::default()).await?;
        }
        let account = account(1 << 30);
        let space = Space::of_job("tenant".parse()?, "job".parse()?);
        let saving = tokio::spawn({
            let store = store.clone();
            async move { store.save().await }
        });
        let mut round = 0;
        while !saving.is_finished() {
            round += 1;
            let set = |name: &str| (key(name), Change::Set { value: Value::counter(round), expires: None });
            let write = Write { changes: vec![set("a"), set("z")], ..Write::default() };
            store.write(&space, &account, write).await?;
            tokio::task::yield_now().await;
        }
        saving.await??;
        Ok(round)
    })?;
    let saved = alone(async {
        let (_store, bucket) = open(folder.path())?;
        let of = async |name| anyhow::Ok(bucket.get(&key(name)).await?.and_then(|entry| entry.value.count()));
        let (first, last) = (of("a").await?, of("z").await?);
        ensure!(first == last, "`a` is of round {first:?} and `z` of {last:?}, of {rounds}");
        Ok(first)
    })?;
    eprintln!("saved in round {saved:?} of {rounds}");
    Ok(())
}
