//! Many writers at once, checked against a model of one name: every history has an order in which each operation could
//! have done what it said, and in which whoever began after another ended comes after it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use weft::params::bucket::{Contributed, Keeping};
use weft::params::{Bucket, Expect, ParamError, Value};
use weft_gpu::DType;

use super::backends::{Dice, Place, key, on_all_backends};

const WORKERS: u64 = 6;
const STEPS: u64 = 60;
const SOON: Duration = Duration::from_secs(60);

on_all_backends! {
    histories_of_one_name_are_linearizable,
    counts_under_many_writers_are_exact,
    rounds_under_many_writers_have_the_same_bits,
    whoever_waits_sees_every_version_or_a_later_one,
    no_read_is_torn,
    a_claim_that_moves_is_held_by_one_at_a_time,
    a_tenant_that_ends_under_load_leaves_nothing,
}

/// What an operation found or did, and when.
#[derive(Debug)]
struct Done {
    began: Instant,
    ended: Instant,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// The version and the number that it read.
    Read(Option<(u64, u64)>),
    Set {
        version: u64,
        number: u64,
    },
    /// From this version, 0 for none.
    Swapped {
        from: u64,
        version: u64,
        number: u64,
    },
    /// It expected this version, and found another.
    Refused {
        expected: u64,
        found: Option<u64>,
    },
    /// What it took away, and the version of that change.
    Taken(Option<(u64, u64)>),
}

fn number(value: &Value) -> u64 {
    u64::from_le_bytes(value.data[..8].try_into().expect("eight bytes"))
}

fn value(number: u64) -> Value {
    Value::bytes(number.to_le_bytes().to_vec())
}

async fn one_step(bucket: &Bucket, dice: &mut Dice, worker: u64, step: u64, known: &mut u64) -> Result<Done> {
    let name = key("register");
    let fresh = worker << 32 | step;
    let began = Instant::now();
    let what = match dice.below(10) {
        0..3 => {
            let found = bucket.get(&name).await?.map(|entry| (entry.version, number(&entry.value)));
            *known = found.map_or(0, |(version, _)| version);
            What::Read(found)
        }
        3..5 => What::Set { version: bucket.set(name, value(fresh), Keeping::default()).await?, number: fresh },
        5..9 => {
            let from = *known;
            let expect = if from == 0 { Expect::Absent } else { Expect::Version(from) };
            match bucket.compare_and_set(name, expect, value(fresh), Keeping::default()).await {
                Ok(version) => {
                    *known = version;
                    What::Swapped { from, version, number: fresh }
                }
                Err(ParamError::Conflict { found, .. }) => {
                    *known = found.unwrap_or(0);
                    What::Refused { expected: from, found }
                }
                Err(error) => return Err(error.into()),
            }
        }
        _ => {
            let taken = bucket.take(&[name]).await?.pop().flatten();
            What::Taken(taken.map(|entry| (entry.version, number(&entry.value))))
        }
    };
    Ok(Done { began, ended: Instant::now(), what })
}

async fn histories_of_one_name_are_linearizable(place: Place) -> Result<()> {
    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let bucket = place.bucket();
            tokio::spawn(async move {
                let (mut dice, mut known, mut history) = (Dice(seed ^ worker << 40), 0, Vec::new());
                for step in 0..STEPS {
                    history.push(one_step(&bucket, &mut dice, worker, step, &mut known).await?);
                }
                anyhow::Ok(history)
            })
        })
        .collect();
    let mut history = Vec::new();
    for worker in workers {
        history.extend(worker.await??);
    }
    check(&history)
}

/// Versions order the changes. The model is then what was there between two of them.
fn check(history: &[Done]) -> Result<()> {
    // What each version held, and when its change began and ended.
    let mut written: Vec<(u64, u64, &Done)> = history
        .iter()
        .filter_map(|done| match done.what {
            What::Set { version, number } | What::Swapped { version, number, .. } => Some((version, number, done)),
            _ => None,
        })
        .collect();
    written.sort_by_key(|(version, ..)| *version);
    let find = |version: u64| written.iter().find(|(other, ..)| *other == version);
    for pair in written.windows(2) {
        ensure!(pair[0].0 < pair[1].0, "two changes of one version: {pair:?}");
    }
    for (version, _, done) in &written {
        for (other, _, before) in &written {
            ensure!(before.ended >= done.began || other < version, "{before:?} ended before {done:?} began");
        }
    }
    // A version is taken away once.
    let taken = |version: u64| {
        history.iter().filter(move |done| matches!(done.what, What::Taken(Some((at, _))) if at == version))
    };
    // Nothing is there if the newest version that was there for sure may have been taken meanwhile, or a newer one.
    let may_be_absent = |done: &Done, before: u64| {
        let newest = written.iter().rfind(|(version, _, by)| *version < before && by.ended < done.began);
        newest.is_none_or(|(newest, ..)| {
            let later =
                written.iter().map(|(version, ..)| *version).filter(|version| version >= newest && *version < before);
            later.flat_map(taken).any(|gone| gone.began <= done.ended)
        })
    };
    for done in history {
        match done.what {
            What::Read(None) | What::Taken(None) | What::Refused { found: None, .. } => {
                ensure!(may_be_absent(done, u64::MAX), "{done:?}: something was there");
            }
            What::Swapped { from: 0, version, .. } => {
                ensure!(may_be_absent(done, version), "{done:?}: something was there");
            }
            _ => {}
        }
        match done.what {
            What::Read(Some((version, number))) | What::Taken(Some((version, number))) => {
                let &(_, wrote, by) = find(version).with_context(|| format!("{done:?} of what nobody wrote"))?;
                ensure!(wrote == number, "{done:?}, and {by:?}");
                ensure!(by.began <= done.ended, "{done:?} before {by:?}");
                // Nothing newer was there for the whole time that it took.
                for (newer, _, other) in written.iter().filter(|(newer, ..)| *newer > version) {
                    ensure!(other.ended >= done.began, "{done:?} although {newer} was there: {other:?}");
                }
                for gone in taken(version).filter(|gone| !std::ptr::eq(*gone, done)) {
                    ensure!(gone.ended >= done.began, "{done:?} after {gone:?}");
                    ensure!(!matches!(done.what, What::Taken(_)), "taken twice: {done:?} and {gone:?}");
                }
            }
            What::Swapped { from, version, .. } if from != 0 => {
                find(from).with_context(|| format!("{done:?} from what nobody wrote"))?;
                let between = written.iter().find(|(other, ..)| from < *other && *other < version);
                ensure!(between.is_none(), "{done:?}, but in between {between:?}");
                ensure!(taken(from).next().is_none(), "{done:?}, but {from} was taken");
            }
            What::Refused { expected, found } => {
                ensure!(
                    found != Some(expected).filter(|&expected| expected != 0),
                    "{done:?}: what was expected was there"
                );
                ensure!(found.is_some() || expected != 0, "{done:?}: nothing was expected and nothing was there");
                if let Some(found) = found {
                    let (_, _, by) = find(found).with_context(|| format!("{done:?} of what nobody wrote"))?;
                    ensure!(by.began <= done.ended, "{done:?} before {by:?}");
                }
            }
            What::Swapped { .. } | What::Set { .. } | What::Read(None) | What::Taken(None) => {}
        }
    }
    Ok(())
}

async fn counts_under_many_writers_are_exact(place: Place) -> Result<()> {
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let bucket = place.bucket();
            tokio::spawn(async move {
                let mut seen = Vec::new();
                for _ in 0..STEPS {
                    seen.push(bucket.increment(key("n"), worker as i64 + 1).await?);
                }
                anyhow::Ok(seen)
            })
        })
        .collect();
    let mut seen = Vec::new();
    for worker in workers {
        seen.extend(worker.await??);
    }
    let count = seen.len();
    seen.sort_unstable();
    seen.dedup();
    let sum: i64 = (1..=WORKERS as i64).sum::<i64>() * STEPS as i64;
    ensure!(seen.len() == count && seen.last() == Some(&sum), "{:?} of {sum}", seen.last());
    Ok(())
}

async fn rounds_under_many_writers_have_the_same_bits(place: Place) -> Result<()> {
    const ROUNDS: u64 = 8;
    const ELEMENTS: u64 = 40_000;
    let part = |round: u64, worker: u64, element: u64| ((round * 31 + worker * 7 + element) as f32 * 0.7).sin() * 1e3;
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let bucket = place.bucket();
            tokio::spawn(async move {
                let mut sums = Vec::new();
                for round in 0..ROUNDS {
                    let name = key(&format!("round/{round}"));
                    let data: Vec<u8> =
                        (0..ELEMENTS).flat_map(|element| part(round, worker, element).to_le_bytes()).collect();
                    let value = Value::tensor(DType::F32, vec![ELEMENTS], data)?;
                    // Sent twice by whoever is impatient.
                    let sent = bucket.contribute(&name, worker as u32, value.clone(), Keeping::default()).await?;
                    ensure!(sent == Contributed::Counted, "{sent:?}");
                    let again = bucket.contribute(&name, worker as u32, value, Keeping::default()).await?;
                    ensure!(again != Contributed::Counted, "counted twice");
                    sums.push(bucket.merged(&name, WORKERS as u32, SOON).await?.value);
                }
                anyhow::Ok(sums)
            })
        })
        .collect();
    let mut all = Vec::new();
    for worker in workers {
        all.push(worker.await??);
    }
    for round in 0..ROUNDS {
        let sum =
            |element: u64| (1..WORKERS).fold(part(round, 0, element), |sum, worker| sum + part(round, worker, element));
        let expected: Vec<u8> = (0..ELEMENTS).flat_map(|element| sum(element).to_le_bytes()).collect();
        for sums in &all {
            ensure!(sums[round as usize].data == expected, "round {round}");
        }
    }
    Ok(())
}

async fn whoever_waits_sees_every_version_or_a_later_one(place: Place) -> Result<()> {
    const LAST: u64 = 200;
    let readers: Vec<_> = (0..4)
        .map(|_| {
            let bucket = place.bucket();
            tokio::spawn(async move {
                let (mut known, mut last) = (0, 0);
                while last < LAST {
                    let entry = bucket.wait_newer(&key("a"), known, SOON).await?;
                    let found = number(&entry.value);
                    ensure!(entry.version > known && found > last, "{found} after {last}");
                    (known, last) = (entry.version, found);
                }
                anyhow::Ok(())
            })
        })
        .collect();
    let bucket = place.bucket();
    for round in 1..=LAST {
        bucket.set(key("a"), value(round), Keeping::default()).await?;
    }
    for reader in readers {
        reader.await??;
    }
    Ok(())
}

async fn no_read_is_torn(place: Place) -> Result<()> {
    const BYTES: usize = 9_000_000;
    let stop = Arc::new(AtomicBool::new(false));
    let written = Arc::new(AtomicU64::new(0));
    let writers: Vec<_> = (0..2_u8)
        .map(|writer| {
            let (bucket, stop, written) = (place.bucket(), stop.clone(), written.clone());
            tokio::spawn(async move {
                let mut round = writer;
                while !stop.load(Ordering::Relaxed) {
                    bucket.set(key("large"), Value::bytes(vec![round; BYTES]), Keeping::default()).await?;
                    written.fetch_add(1, Ordering::Relaxed);
                    round = round.wrapping_add(2);
                }
                anyhow::Ok(())
            })
        })
        .collect();
    let bucket = place.bucket();
    bucket.wait_newer(&key("large"), 0, SOON).await?;
    let end = Instant::now() + SOON;
    while written.load(Ordering::Relaxed) < 12 && Instant::now() < end {
        let whole = bucket.get(&key("large")).await?.context("it is always there")?.value.data;
        ensure!(whole.len() == BYTES && whole.iter().all(|byte| *byte == whole[0]), "torn");
        let part =
            bucket.get_range(&key("large"), 4_000_000..5_000_000).await?.context("it is always there")?.value.data;
        ensure!(part.iter().all(|byte| *byte == part[0]), "a torn part");
    }
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await??;
    }
    Ok(())
}

async fn a_claim_that_moves_is_held_by_one_at_a_time(place: Place) -> Result<()> {
    let workers: Vec<_> = (0..WORKERS)
        .map(|_| {
            let bucket = place.bucket();
            tokio::spawn(async move {
                let mut written = Vec::new();
                for _ in 0..20 {
                    let claimed = bucket.claimed(&key("leader")).await?;
                    let epoch = claimed.fence().context("no fence")?.epoch;
                    match claimed.set(key("a"), value(epoch), Keeping::default()).await {
                        Ok(version) => written.push((version, epoch)),
                        Err(ParamError::Fenced { .. }) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                anyhow::Ok(written)
            })
        })
        .collect();
    let mut written = Vec::new();
    for worker in workers {
        written.extend(worker.await??);
    }
    written.sort_unstable();
    ensure!(
        written.windows(2).all(|pair| pair[0].1 < pair[1].1),
        "an older epoch wrote after a newer one: {written:?}"
    );
    Ok(())
}

async fn a_tenant_that_ends_under_load_leaves_nothing(place: Place) -> Result<()> {
    let begun = Arc::new(AtomicU64::new(0));
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let (begun, account, store) = (begun.clone(), place.account.clone(), place.store.clone());
            let space = place.space(&format!("job-{}", worker % 2));
            tokio::spawn(async move {
                let bucket = Bucket::new(store, space, account);
                for round in 0.. {
                    // The same names again and again: a fast store would be full before its tenant ends.
                    let name = key(&format!("{worker}/{}", round % 50));
                    let data = vec![round as u8; if round % 3 == 0 { 100_000 } else { 10 }];
                    let written = match round % 4 {
                        0 => bucket.claimed(&key(&format!("claim/{worker}"))).await.map(drop),
                        _ => bucket.set(name, Value::bytes(data), Keeping::default()).await.map(drop),
                    };
                    begun.fetch_add(1, Ordering::Relaxed);
                    // The embedded store never waits, and others need the thread too.
                    tokio::task::yield_now().await;
                    match written {
                        Ok(()) => {}
                        Err(ParamError::Ended) => return anyhow::Ok(()),
                        Err(error) => return Err(error.into()),
                    }
                }
                Ok(())
            })
        })
        .collect();
    while begun.load(Ordering::Relaxed) < 100 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    place.store.end(&place.tenant).await?;
    for worker in workers {
        worker.await??;
    }
    place.store.collect().await?;
    ensure!(place.store.used(&place.tenant).await? == 0 && place.account.used() == 0, "{}", place.account.used());
    ensure!(place.store.spaces(&place.tenant).await?.is_empty());
    Ok(())
}
