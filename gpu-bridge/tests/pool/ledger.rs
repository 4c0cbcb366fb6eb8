//! Bytes are reserved at the grant, counted before they are allocated, and given back exactly.

use std::sync::Arc;

use weft_gpu::device::Shared;
use weft_gpu::pool::PoolError;
use weft_gpu::{Error, Request};

use crate::support::{MEBIBYTE, context, lease, pool};

pub fn a_lease_gives_back_what_it_reserved(device: Arc<dyn Shared>) {
    let capacity = device.info().memory;
    let pool = pool([device]);
    let (first, second) = (lease(&pool, "ada", 1), lease(&pool, "ada", 2));
    let other = lease(&pool, "bob", 1);
    let ledger = pool.ledger();
    let device = ledger.device(first.device()).unwrap();
    assert_eq!((device.capacity, device.reserved, device.weight), (capacity, 192 * MEBIBYTE, 4));
    assert_eq!((device.tenants["ada"].reserved, device.tenants["ada"].leases), (128 * MEBIBYTE, 2));
    drop((first, other));
    let ledger = pool.ledger();
    let device = ledger.device(second.device()).unwrap();
    assert_eq!((device.reserved, device.weight, device.tenants.len()), (64 * MEBIBYTE, 2, 1));
}

pub fn tensors_keep_the_reservation_until_they_are_gone(device: Arc<dyn Shared>) {
    let pool = pool([device]);
    let lease = lease(&pool, "ada", 1);
    let context = context(&lease, 1);
    let tensor = context.zeros(&[1024]).unwrap();
    assert_eq!(lease.used(), context.heap().used());
    assert!(lease.used() >= 4096);
    drop((lease, context));
    let account = pool.ledger().devices[0].tenants["ada"];
    assert_eq!((account.reserved, account.leases), (64 * MEBIBYTE, 1));
    assert!(account.used >= 4096);
    drop(tensor);
    assert!(pool.ledger().is_zero());
}

pub fn contexts_of_one_lease_share_its_bytes(device: Arc<dyn Shared>) {
    let pool = pool([device]);
    let lease = pool.lease(Request::new("ada", MEBIBYTE)).unwrap();
    let (first, second) = (context(&lease, 1), context(&lease, 1));
    let half = first.zeros(&[MEBIBYTE / 8]).unwrap();
    assert!(matches!(second.zeros(&[MEBIBYTE / 4]), Err(Error::OutOfMemory { limit: MEBIBYTE, .. })));
    // What the one only keeps for later is let go when the other needs it.
    drop(half);
    assert!(first.heap().kept() > 0);
    let whole = second.zeros(&[MEBIBYTE / 4]).unwrap();
    assert_eq!((first.heap().used(), second.heap().used(), lease.used()), (0, MEBIBYTE, MEBIBYTE));
    drop(whole);
}

pub fn many_threads_leave_nothing_behind(device: Arc<dyn Shared>) {
    let capacity = device.info().memory;
    let pool = pool([device]);
    std::thread::scope(|scope| {
        for worker in 0..8_usize {
            let pool = &pool;
            scope.spawn(move || {
                for round in 0..20 {
                    // Some ask for more than half: not all of those can be granted at once.
                    let bytes = if round % 4 == 3 { capacity / 2 + 1 } else { MEBIBYTE };
                    let tenant = format!("tenant {}", worker % 3);
                    let lease = match pool.lease(Request::new(tenant, bytes)) {
                        Ok(lease) => lease,
                        Err(PoolError::NothingFits { wanted, .. }) => {
                            assert_eq!(wanted, bytes);
                            continue;
                        }
                        Err(error) => panic!("{error}"),
                    };
                    let context = context(&lease, 1);
                    let kept: Vec<_> = (0..4).map_while(|_| context.zeros(&[MEBIBYTE / 16]).ok()).collect();
                    assert!(context.heap().used() <= bytes);
                    if bytes == MEBIBYTE {
                        assert!(context.zeros(&[MEBIBYTE]).is_err());
                    }
                    let device = &pool.ledger().devices[0];
                    assert!(device.reserved <= capacity);
                    assert!(device.tenants.values().all(|account| account.used <= account.reserved));
                    assert_eq!(device.tenants.values().map(|account| account.reserved).sum::<usize>(), device.reserved);
                    drop((lease, kept));
                }
            });
        }
    });
}
