//! Sums that tasks ask for, within what a node gives to them.
//!
//! A sum passes over all bytes of all parts, on threads that nobody else needs. Half of the cores may do that at once, for
//! whoever comes first, and one sum of each tenant: so a tenant with many rounds waits for itself. A sum whose cores are
//! free takes several. It looks after every block whether anybody still waits for it, and tells what it took.

use std::collections::HashMap;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex, Weak};
use std::time::Duration;

use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};

use super::{Entry, Form, Key, ParamError, Value, merge};
use crate::clock::thread_cpu;
use crate::locks::Lock;
use crate::tenant::StoreId;

/// What is summed between two looks at whether anybody waits: a millisecond for a few parts. [`merge`] gives no more than
/// this to one thread.
const BLOCK: usize = 1 << 20;

/// Threads beyond these find no more memory bandwidth.
const MOST_THREADS: usize = 8;

/// Cores that may sum at once, for all stores of this process: half of the machine's, and one at least.
static CORES: LazyLock<Arc<Semaphore>> = LazyLock::new(|| {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    Arc::new(Semaphore::new((cores / 2).max(1)))
});

/// Whoever of a tenant sums holds this.
static TENANTS: LazyLock<Mutex<HashMap<StoreId, Weak<tokio::sync::Mutex<()>>>>> = LazyLock::new(Mutex::default);

/// Is told how much CPU time something took.
pub type Spent = Arc<dyn Fn(Duration) + Send + Sync>;

/// A tenant's turn to sum. Dropping it lets its next one in.
pub struct Place {
    _turn: OwnedMutexGuard<()>,
}

impl Place {
    /// Waits until no other sum of this tenant is made.
    pub async fn of(tenant: &StoreId) -> Arc<Self> {
        let turn = {
            let mut tenants = TENANTS.locked();
            match tenants.get(tenant).and_then(Weak::upgrade) {
                Some(turn) => turn,
                None => {
                    tenants.retain(|_, turn| turn.strong_count() > 0);
                    let turn = Arc::default();
                    tenants.insert(tenant.clone(), Arc::downgrade(&turn));
                    turn
                }
            }
        };
        Arc::new(Self { _turn: turn.lock_owned().await })
    }
}

/// Waits for a core, and takes as many as these parts are worth and are free. They are held while numbers are added, and
/// not while a store is read or written.
async fn cores_for(parts: &[(Key, Entry)]) -> Result<Vec<OwnedSemaphorePermit>, ParamError> {
    let first = CORES.clone().acquire_owned().await;
    let mut cores = vec![first.map_err(|error| ParamError::Damaged(format!("a merge ended: {error}")))?];
    let bytes = parts.first().map_or(0, |(_, entry)| entry.value.data.len());
    let worth = (bytes / BLOCK).clamp(1, MOST_THREADS);
    while cores.len() < worth
        && let Ok(core) = CORES.clone().try_acquire_owned()
    {
        cores.push(core);
    }
    Ok(cores)
}

/// Set when it is dropped: whoever waited has gone away.
#[derive(Default)]
struct GoneAway(Arc<AtomicBool>);

impl Drop for GoneAway {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// The sum of parts, off the threads that serve. Dropping the future ends it within a block.
pub async fn sum(parts: Vec<(Key, Entry)>, place: Arc<Place>, spent: Option<Spent>) -> Result<Value, ParamError> {
    let cores = cores_for(&parts).await?;
    let waits = GoneAway::default();
    let gone_away = waits.0.clone();
    let work = move || {
        let _place = place;
        let tell = |cpu| {
            if let Some(spent) = &spent {
                spent(cpu);
            }
        };
        // The place and the cores are kept for as long as this works, whoever waits for it.
        by_blocks(&parts, cores.len(), &gone_away, &tell)
    };
    let summed = tokio::task::spawn_blocking(work).await;
    drop(waits);
    summed.map_err(|error| ParamError::Damaged(format!("a merge ended: {error}")))?
}

fn by_blocks(
    parts: &[(Key, Entry)],
    threads: usize,
    gone_away: &AtomicBool,
    spent: &(dyn Fn(Duration) + Sync),
) -> Result<Value, ParamError> {
    let form = merge::form(parts)?;
    let length = parts.first().map_or(0, |(_, entry)| entry.value.data.len());
    if length <= BLOCK {
        let start = thread_cpu();
        let summed = merge::sum(parts);
        spent(thread_cpu().saturating_sub(start));
        return summed;
    }
    let mut sum = vec![0; length];
    let share = length.div_ceil(threads.max(1)).next_multiple_of(BLOCK);
    let make = |first: usize, into: &mut [u8]| {
        let start = thread_cpu();
        let made = into.chunks_mut(BLOCK).enumerate().try_for_each(|(index, into)| {
            if gone_away.load(Relaxed) {
                return Err(ParamError::Damaged("nobody waits for this merge any more".to_owned()));
            }
            let at = first + index * BLOCK;
            let parts: Vec<_> = parts.iter().map(|(key, entry)| (key.clone(), block(entry, at, into.len()))).collect();
            into.copy_from_slice(&merge::sum(&parts)?.data);
            Ok(())
        });
        spent(thread_cpu().saturating_sub(start));
        made
    };
    let make = &make;
    std::thread::scope(|scope| {
        let shares = sum.chunks_mut(share).enumerate();
        let threads: Vec<_> = shares.map(|(index, into)| scope.spawn(move || make(index * share, into))).collect();
        let ended = || Err(ParamError::Damaged("a merge ended".to_owned()));
        // The first share's error, however the threads took turns.
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| ended()))
    })?;
    Ok(Value { form: form.clone(), data: sum.into() })
}

/// So many bytes of a tensor, as a tensor of one dimension. Blocks hold whole elements.
fn block(entry: &Entry, at: usize, bytes: usize) -> Entry {
    let Entry { version, value, expires } = entry;
    let form = match &value.form {
        Form::Tensor { dtype, .. } => {
            Form::Tensor { dtype: *dtype, shape: vec![(bytes / dtype.0.size().max(1)) as u64] }
        }
        other => other.clone(),
    };
    Entry { version: *version, value: Value { form, data: value.data.slice(at..at + bytes) }, expires: *expires }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use weft_gpu::DType;

    use super::*;
    use crate::params::bucket::Keeping;
    use crate::params::embedded::Embedded;
    use crate::params::{Bucket, Space};
    use crate::tenant::Account;

    fn parts(workers: u32, numbers: usize) -> Vec<(Key, Entry)> {
        let value = |worker: u32| {
            let data: Vec<u8> = (0..numbers)
                .flat_map(|index| ((index as u32 * 7 + worker * 13) as f32 * 0.1).sin().to_le_bytes())
                .collect();
            Value::tensor(DType::F32, vec![numbers as u64 / 8, 8], data).unwrap()
        };
        let part = |worker: u32| {
            (Key::exchanged(&worker.to_string()), Entry { version: 1, value: value(worker), expires: None })
        };
        (0..workers).map(part).collect()
    }

    #[test]
    fn blocks_and_threads_leave_the_bits_as_they_are() {
        let parts = parts(3, (5 * BLOCK / 2 + 64) / 4);
        let expected = merge::sum(&parts).unwrap();
        for threads in 1..5 {
            assert!(by_blocks(&parts, threads, &AtomicBool::new(false), &|_| ()).unwrap() == expected);
        }
    }

    #[test]
    fn a_sum_that_nobody_waits_for_ends_within_a_block() {
        let parts = parts(2, 16 * BLOCK / 4);
        let (looked, gone_away) = (AtomicUsize::new(0), AtomicBool::new(true));
        let count = |_| _ = looked.fetch_add(1, Relaxed);
        assert!(by_blocks(&parts, 2, &gone_away, &count).is_err());
        assert_eq!(looked.into_inner(), 2);
    }

    #[tokio::test]
    async fn parts_that_differ_are_refused_however_large() {
        let mut parts = parts(2, 2 * BLOCK / 4);
        let Form::Tensor { shape, .. } = &mut parts[1].1.value.form else { panic!("a tensor") };
        shape.reverse();
        assert!(matches!(by_blocks(&parts, 1, &AtomicBool::new(false), &|_| ()), Err(ParamError::WrongForm { .. })));
    }

    /// One of them makes the sum; the others wait for it, and find it.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn many_who_wait_for_one_round_have_it_summed_once() {
        const WAITING: usize = 64;
        let space = Space::of_job("many".parse().unwrap(), "job".parse().unwrap());
        let account = Account::new("params_bytes", 1 << 30, None);
        let sums = Arc::new(AtomicUsize::new(0));
        let told = sums.clone();
        let bucket = Bucket::new(Embedded::in_memory(), space, account)
            .telling(Arc::new(move |_| _ = told.fetch_add(1, Relaxed)));
        let round: Key = "round".parse().unwrap();
        for (worker, (_, entry)) in (0..).zip(parts(2, BLOCK / 8)) {
            bucket.contribute(&round, worker, entry.value, Keeping::default()).await.unwrap();
        }
        let waiting: Vec<_> = (0..WAITING)
            .map(|_| {
                let (bucket, round) = (bucket.clone(), round.clone());
                tokio::spawn(async move { bucket.merged(&round, 2, Duration::from_secs(60)).await })
            })
            .collect();
        for one in waiting {
            assert_eq!(one.await.unwrap().unwrap().value.data.len(), BLOCK / 2);
        }
        assert_eq!(sums.load(Relaxed), 1);
    }
}
