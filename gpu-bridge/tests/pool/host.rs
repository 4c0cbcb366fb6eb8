//! Devices that hand out the machine's memory share it with everybody else who uses it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use weft_gpu::device::{Kind, Shared};
use weft_gpu::pool::{HostMemory, PoolError, Wish};
use weft_gpu::{Pool, Request};

use crate::support::{MEBIBYTE, Pretended};

/// An account of 100 MiB.
#[derive(Default)]
struct Counted(AtomicUsize);

const LIMIT: usize = 100 * MEBIBYTE;

impl HostMemory for Counted {
    fn take(&self, bytes: usize) -> bool {
        let fits = |used: usize| used.checked_add(bytes).filter(|&sum| sum <= LIMIT);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn free(&self) -> usize {
        LIMIT - self.0.load(Ordering::Relaxed)
    }

    fn limit(&self) -> usize {
        LIMIT
    }
}

fn pool(host: &Arc<Counted>) -> Pool {
    let devices = [(Kind::Cpu, 1_000), (Kind::Discrete, 1_000), (Kind::Software, 1_000)];
    let pretended = |(kind, size)| Pretended::new(kind, size * MEBIBYTE) as Arc<dyn Shared>;
    Pool::new(devices.map(pretended).into_iter().collect()).within(host.clone())
}

fn request(megabytes: usize, device: Wish) -> Request {
    Request { device, ..Request::new("ada", megabytes * MEBIBYTE) }
}

#[test]
fn leases_of_it_are_taken_from_the_account_and_given_back() {
    let host = Arc::<Counted>::default();
    let pool = pool(&host);
    let cores = pool.lease(request(60, Wish::Cpu)).unwrap();
    assert_eq!(host.0.load(Ordering::Relaxed), 60 * MEBIBYTE);
    // A GPU with memory of its own takes none of it.
    let gpu = pool.lease(request(900, Wish::Gpu)).unwrap();
    assert_eq!(host.0.load(Ordering::Relaxed), 60 * MEBIBYTE);
    let error = pool.lease(request(41, Wish::Cpu)).map(drop).unwrap_err();
    let PoolError::NothingFits { fits, largest, .. } = error else { panic!("{error}") };
    assert_eq!((fits, largest), (40 * MEBIBYTE, LIMIT));
    drop((cores, gpu));
    assert_eq!(host.0.load(Ordering::Relaxed), 0);
    assert!(pool.ledger().is_zero());
}

#[test]
fn what_others_take_is_not_leased() {
    let host = Arc::<Counted>::default();
    let pool = pool(&host);
    assert!(host.take(90 * MEBIBYTE));
    assert!(matches!(pool.lease(request(11, Wish::Cpu)), Err(PoolError::NothingFits { .. })));
    host.give_back(90 * MEBIBYTE);
    pool.lease(request(11, Wish::Cpu)).map(drop).unwrap();
}

#[test]
fn copies_beside_a_device_are_taken_from_the_account_too() {
    let host = Arc::<Counted>::default();
    let pool = pool(&host);
    let with_copies = |device| Request { host: 30 * MEBIBYTE, ..request(60, device) };
    let cores = pool.lease(with_copies(Wish::Cpu)).unwrap();
    assert_eq!(host.0.load(Ordering::Relaxed), 90 * MEBIBYTE);
    assert!(matches!(pool.lease(with_copies(Wish::Gpu)), Err(PoolError::NothingFits { .. })));
    drop(cores);
    let gpu = pool.lease(with_copies(Wish::Gpu)).unwrap();
    assert_eq!(host.0.load(Ordering::Relaxed), 30 * MEBIBYTE);
    drop(gpu);
    assert_eq!(host.0.load(Ordering::Relaxed), 0);
}

#[test]
fn what_a_lease_took_is_free_again_when_others_are_told() {
    let host = Arc::<Counted>::default();
    let pool = pool(&host);
    let free_when_told = Arc::new(AtomicUsize::new(0));
    pool.when_freed({
        let (host, free_when_told) = (host.clone(), free_when_told.clone());
        move || free_when_told.store(host.free(), Ordering::Relaxed)
    });
    drop(pool.lease(request(60, Wish::Cpu)).unwrap());
    assert_eq!(free_when_told.load(Ordering::Relaxed), LIMIT);
}

#[test]
fn many_at_once_never_take_more_than_there_is() {
    let host = Arc::<Counted>::default();
    let pool = pool(&host);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    let taken = host.take(35 * MEBIBYTE);
                    let lease = pool.lease(request(40, Wish::Cpu));
                    assert!(host.0.load(Ordering::Relaxed) <= LIMIT);
                    drop(lease);
                    if taken {
                        host.give_back(35 * MEBIBYTE);
                    }
                }
            });
        }
    });
    assert_eq!(host.0.load(Ordering::Relaxed), 0);
}
