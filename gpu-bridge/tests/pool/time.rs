//! Device time: counted per lease, shared by weight, and nobody is kept waiting for long.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weft_gpu::device::{Shared, Wait};
use weft_gpu::{Context, Error, Lease, Pool, Tensor};

use crate::support::{context, eventually, lease, pool};

/// Two tests that measure would measure each other.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Over how much device time shares are looked at, and how often.
const WINDOW: Duration = Duration::from_secs(1);
const WINDOWS: usize = 3;
/// How far work and device time of two leases may stand from their weights.
const TOLERANCE: f64 = 0.15;
/// Threads of a lease that is busy.
const CALLERS: usize = 3;

/// An operation, brought to its end.
fn product(matrix: &Tensor) {
    let product = matrix.matmul(matrix).unwrap();
    product.read(0, &mut [0; 4]).unwrap();
}

fn matrix(context: &Context, size: usize) -> Tensor {
    context.full(&[size, size], weft_gpu::DType::F32, 1.0 / size as f64).unwrap()
}

pub fn time_is_counted_per_lease(device: Arc<dyn Shared>) {
    let _alone = alone();
    let threads = device.info().threads;
    let pool = pool([device]);
    let (busy, idle) = (lease(&pool, "busy", 1), lease(&pool, "idle", 1));
    let context = context(&busy, threads);
    let matrix = matrix(&context, 256);
    let start = Instant::now();
    (0..20).for_each(|_| product(&matrix));
    let most = start.elapsed() * u32::try_from(threads).unwrap() + Duration::from_millis(5);
    assert!(busy.time() > Duration::ZERO && busy.time() <= most, "{:?} of {most:?}", busy.time());
    assert_eq!(idle.time(), Duration::ZERO);
    assert_eq!(pool.ledger().devices[0].tenants["busy"].time, busy.time());
}

/// A lease that computes on threads of its own, and counts.
///
/// On several, so that it always has work that waits: one whose only thread is kept from its core between two calls asks
/// for nothing meanwhile, and others may have what it does not want.
struct Busy {
    lease: Lease,
    done: AtomicU64,
}

impl Busy {
    fn new(pool: &Pool, tenant: &str, weight: u32) -> Self {
        Self { lease: lease(pool, tenant, weight), done: AtomicU64::new(0) }
    }

    fn work(&self, threads: usize, size: usize, stop: &AtomicBool) {
        let context = context(&self.lease, threads);
        let matrix = matrix(&context, size);
        while !stop.load(Ordering::Relaxed) {
            product(&matrix);
            self.done.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn figures(&self) -> (f64, f64) {
        (self.done.load(Ordering::Relaxed) as f64, self.lease.time().as_secs_f64())
    }
}

pub fn long_operations_share_by_weight(device: Arc<dyn Shared>) {
    share_by_weight(device, 256);
}

pub fn short_operations_share_by_weight(device: Arc<dyn Shared>) {
    share_by_weight(device, 16);
}

/// The device's own time is shared in every window, however busy the machine is: it passes only while the device works. How
/// much work is done in a second of it depends on what other programs do to caches and cores, now for one lease and now for
/// the other: so work may be further off in fewer than half of the windows.
fn share_by_weight(device: Arc<dyn Shared>, size: usize) {
    let _alone = alone();
    let threads = device.info().threads;
    let pool = pool([device]);
    let (one, three) = (Busy::new(&pool, "ada", 1), Busy::new(&pool, "ada", 3));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stop_at_the_end = StopOnDrop(&stop);
        for _ in 0..CALLERS {
            scope.spawn(|| one.work(threads, size, &stop));
            scope.spawn(|| three.work(threads, size, &stop));
        }
        eventually("both compute", || one.figures().0 > 20.0 && three.figures().0 > 20.0);
        let mut found = Vec::new();
        for _ in 0..WINDOWS {
            let (before_one, before_three) = (one.figures(), three.figures());
            let end = before_one.1 + before_three.1 + WINDOW.as_secs_f64();
            eventually("the device has worked for a second", || {
                std::thread::sleep(Duration::from_millis(1));
                one.figures().1 + three.figures().1 >= end
            });
            let (after_one, after_three) = (one.figures(), three.figures());
            let work = (after_three.0 - before_three.0) / (after_one.0 - before_one.0);
            let time = (after_three.1 - before_three.1) / (after_one.1 - before_one.1);
            println!("work 1:{work:.3}, device time 1:{time:.3}, {:.0} operations", after_three.0 - before_three.0);
            found.push((work, time));
        }
        drop(stop_at_the_end);
        let close = |ratio: f64| (ratio / 3.0 - 1.0).abs() <= TOLERANCE;
        let fitting = found.iter().filter(|(work, _)| close(*work)).count();
        let fair = fitting > WINDOWS / 2 && found.iter().all(|(_, time)| close(*time));
        assert!(fair, "weights 1 and 3, but work and device time stood at {found:?}");
    });
}

/// A tenant of many leases, however heavy, gets as much of a device as a tenant of one.
pub fn tenants_share_evenly_however_many_leases_they_have(device: Arc<dyn Shared>) {
    let _alone = alone();
    let threads = device.info().threads;
    let pool = pool([device]);
    let one = Busy::new(&pool, "one", 1);
    let many: Vec<Busy> = (0..6).map(|_| Busy::new(&pool, "many", 64)).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stop_at_the_end = StopOnDrop(&stop);
        for _ in 0..CALLERS {
            scope.spawn(|| one.work(threads, 256, &stop));
        }
        for busy in &many {
            scope.spawn(|| busy.work(threads, 256, &stop));
        }
        eventually("all compute", || many.iter().chain([&one]).all(|busy| busy.figures().0 > 5.0));
        let figures = || (one.figures().1, many.iter().map(|busy| busy.figures().1).sum::<f64>());
        let before = figures();
        eventually("the device has worked for two seconds", || {
            std::thread::sleep(Duration::from_millis(1));
            let now = figures();
            now.0 + now.1 >= before.0 + before.1 + 2.0 * WINDOW.as_secs_f64()
        });
        let after = figures();
        drop(stop_at_the_end);
        let ratio = (after.1 - before.1) / (after.0 - before.0);
        println!("device time of six leases beside that of one: {ratio:.3}");
        assert!((ratio - 1.0).abs() <= 2.0 * TOLERANCE, "six leases had {ratio} times as much as one");
    });
}

/// So that a failed test ends its threads.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// None of them waits for longer, by the device's own clock.
pub fn short_operations_are_not_delayed(device: Arc<dyn Shared>, bound: Wait) {
    let _alone = alone();
    let threads = device.info().threads;
    let pool = pool([device]);
    let (long, short) = (lease(&pool, "long", 1), lease(&pool, "short", 1));
    let stop = AtomicBool::new(false);
    let longest = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let stop_at_the_end = StopOnDrop(&stop);
        scope.spawn(|| {
            let context = context(&long, threads);
            let matrix = matrix(&context, 1536);
            while !stop.load(Ordering::Relaxed) {
                let start = Instant::now();
                product(&matrix);
                longest.store(start.elapsed().as_micros() as u64, Ordering::Relaxed);
            }
        });
        eventually("the long one computes", || longest.load(Ordering::Relaxed) > 0);
        let context = context(&short, threads);
        let small = context.zeros(&[16]).unwrap();
        let most = (0..200).map(|_| {
            // Away for long enough that no turn is kept for it.
            std::thread::sleep(Duration::from_millis(1));
            let start = Instant::now();
            small.add(&small).unwrap().read(0, &mut [0; 4]).unwrap();
            start.elapsed()
        });
        let (most, waited) = (most.max().unwrap(), short.longest_wait());
        let long = longest.load(Ordering::Relaxed);
        println!("waited for {waited:?} of the device, {most:?} by the wall; long operations of {long} us");
        drop(stop_at_the_end);
        assert!(waited != Wait::default(), "nothing was in its way");
        assert!(waited.time <= bound.time && waited.turns <= bound.turns, "{waited:?}");
    });
}

pub fn a_cancelled_lease_stops_while_another_computes(device: Arc<dyn Shared>) {
    let _alone = alone();
    let threads = device.info().threads;
    let pool = pool([device]);
    // Once the light one has had a turn, the heavy one is owed all of the next hour.
    let (heavy, light) = (lease(&pool, "ada", 10_000_000), lease(&pool, "ada", 1));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stop_at_the_end = StopOnDrop(&stop);
        scope.spawn(|| {
            let context = context(&heavy, threads);
            let matrix = matrix(&context, 256);
            while !stop.load(Ordering::Relaxed) {
                product(&matrix);
            }
        });
        eventually("the heavy one computes", || heavy.time() > Duration::ZERO);
        // One call that was interrupted, and one that waits to begin.
        let waiting = [2048, 64].map(|size| {
            let light = &light;
            scope.spawn(move || {
                let context = context(light, threads);
                let work = || -> Result<(), Error> {
                    let matrix = context.full(&[size, size], weft_gpu::DType::F32, 0.001)?;
                    matrix.matmul(&matrix).map(drop)
                };
                loop {
                    if let Err(error) = work() {
                        return (error, Instant::now());
                    }
                }
            })
        });
        eventually("the light one had a turn", || light.time() > Duration::from_millis(1));
        let cancelled = Instant::now();
        light.cancel().cancel();
        for thread in waiting {
            let (error, at) = thread.join().unwrap();
            assert_eq!(error, Error::Cancelled);
            let after = at.saturating_duration_since(cancelled);
            println!("stopped after {after:?}");
            assert!(after < Duration::from_millis(500), "{after:?}");
        }
        drop(stop_at_the_end);
    });
}

pub fn results_do_not_depend_on_who_else_computes(device: Arc<dyn Shared>) {
    let _alone = alone();
    let threads = device.info().threads;
    let pool = pool([device]);
    let compute = |lease: &Lease, threads: usize| {
        let context = context(lease, threads);
        let values: Vec<f32> = (0..512 * 512).map(|index| (index as f32 * 0.37).sin()).collect();
        let matrix = context.tensor(&[512, 512], &values).unwrap();
        let mut result = matrix.clone();
        for _ in 0..20 {
            result = result.matmul(&matrix).unwrap().tanh().unwrap();
        }
        result.to_vec::<f32>().unwrap()
    };
    let expected = compute(&lease(&pool, "alone", 1), threads);
    let results = std::thread::scope(|scope| {
        let threads: Vec<_> = (1..5_u32)
            .map(|weight| {
                let (pool, compute) = (&pool, &compute);
                let threads = if weight == 4 { 1 } else { threads };
                scope.spawn(move || compute(&lease(pool, &format!("tenant {weight}"), weight), threads))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(results.iter().all(|result| *result == expected));
}
