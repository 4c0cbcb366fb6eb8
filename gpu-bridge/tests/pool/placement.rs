//! Which device a lease is given, and what is said when there is none.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use weft_gpu::Request;
use weft_gpu::device::{Kind, Shared};
use weft_gpu::pool::{DeviceId, PoolError, Room, Spare, Wish};

use crate::support::{Checked, MEBIBYTE, Pretended, pool};

const CPU: DeviceId = DeviceId::Cpu(0);

fn machine(devices: &[(Kind, usize)]) -> Checked {
    pool(devices.iter().map(|&(kind, memory)| Pretended::new(kind, memory * MEBIBYTE) as Arc<dyn Shared>))
}

fn request(bytes: usize, device: Wish) -> Request {
    Request { device, ..Request::new("ada", bytes * MEBIBYTE) }
}

#[test]
fn leases_go_to_the_least_loaded_gpu_and_to_the_cpu_when_those_are_full() {
    let pool = machine(&[(Kind::Cpu, 1000), (Kind::Discrete, 100), (Kind::Integrated, 100)]);
    let leases: Vec<_> = (0..5).map(|_| pool.lease(request(40, Wish::Auto)).unwrap()).collect();
    let devices: Vec<_> = leases.iter().map(|lease| lease.device().to_string()).collect();
    assert_eq!(devices, ["gpu:0", "gpu:1", "gpu:0", "gpu:1", "cpu"]);
}

#[test]
fn a_heavy_lease_makes_its_device_loaded_too() {
    let pool = machine(&[(Kind::Discrete, 100), (Kind::Discrete, 100)]);
    let heavy = pool.lease(Request { weight: 10, ..request(10, Wish::Auto) }).unwrap();
    let light = pool.lease(request(20, Wish::Auto)).unwrap();
    let next = pool.lease(request(10, Wish::Auto)).unwrap();
    let devices = [heavy, light, next].map(|lease| lease.device());
    assert_eq!(devices, [DeviceId::Gpu(0), DeviceId::Gpu(1), DeviceId::Gpu(1)]);
}

#[test]
fn a_software_gpu_is_taken_only_when_asked_for_or_alone() {
    let pool = machine(&[(Kind::Software, 1000), (Kind::Cpu, 100)]);
    let on = |bytes, wish| pool.lease(request(bytes, wish)).map(|lease| lease.device());
    assert_eq!(on(50, Wish::Auto), Ok(CPU));
    assert!(matches!(on(500, Wish::Auto), Err(PoolError::NothingFits { .. })));
    assert_eq!(on(500, Wish::Gpu), Ok(DeviceId::Gpu(0)));
    let alone = machine(&[(Kind::Software, 1000)]);
    assert_eq!(alone.lease(request(50, Wish::Auto)).unwrap().device(), DeviceId::Gpu(0));
    let both = machine(&[(Kind::Software, 1000), (Kind::Virtual, 100)]);
    assert_eq!(both.lease(request(50, Wish::Gpu)).unwrap().device(), DeviceId::Gpu(1));
}

#[test]
fn a_wish_is_honoured() {
    let pool = machine(&[(Kind::Cpu, 100), (Kind::Discrete, 100), (Kind::Discrete, 100)]);
    let on = |wish| pool.lease(request(50, wish)).map(|lease| lease.device());
    assert_eq!(on(Wish::Cpu), Ok(CPU));
    assert_eq!(on(Wish::Gpu), Ok(DeviceId::Gpu(0)));
    assert_eq!(on(Wish::Exactly(DeviceId::Gpu(1))), Ok(DeviceId::Gpu(1)));
    let error = on(Wish::Exactly(DeviceId::Gpu(7))).unwrap_err();
    assert!(matches!(error, PoolError::NoSuchDevice { .. }));
    assert_eq!(error.to_string(), "there is no `gpu:7`; there are: `cpu`, `gpu:0`, `gpu:1`");
}

#[test]
fn affinity_wins_over_load_until_it_does_not_fit() {
    let pool = machine(&[(Kind::Cpu, 100), (Kind::Discrete, 100), (Kind::Discrete, 100)]);
    let near = Wish::Near(DeviceId::Gpu(1));
    let first = pool.lease(request(60, near)).unwrap();
    let second = pool.lease(request(30, near)).unwrap();
    let third = pool.lease(request(30, near)).unwrap();
    let gone = pool.lease(request(10, Wish::Near(DeviceId::Gpu(5)))).unwrap();
    let devices = [&first, &second, &third, &gone].map(|lease| lease.device().to_string());
    assert_eq!(devices, ["gpu:1", "gpu:1", "gpu:0", "gpu:0"]);
    let near_the_cpu = pool.lease(request(10, Wish::Near(CPU))).unwrap();
    assert_eq!(near_the_cpu.device(), CPU);
}

#[test]
fn nothing_fits_says_what_would() {
    let pool = machine(&[(Kind::Cpu, 100), (Kind::Discrete, 50)]);
    let _taken = pool.lease(request(30, Wish::Gpu)).unwrap();
    let error = pool.lease(request(101, Wish::Auto)).err().unwrap();
    let room = |device, free, capacity| Room { device, free: free * MEBIBYTE, capacity: capacity * MEBIBYTE };
    assert_eq!(
        error,
        PoolError::NothingFits {
            wanted: 101 * MEBIBYTE,
            wish: Wish::Auto,
            rooms: vec![room(CPU, 100, 100), room(DeviceId::Gpu(0), 20, 50)],
            fits: 100 * MEBIBYTE,
            largest: 100 * MEBIBYTE,
        }
    );
    let text = pool.lease(request(40, Wish::Gpu)).err().unwrap().to_string();
    assert_eq!(
        text,
        "no device for 41943040 bytes on a gpu: `gpu:0` has 20971520 of 52428800 free; at most 20971520 would fit now, \
         52428800 on an empty device"
    );
}

#[test]
fn numbers_that_make_no_sense_are_refused() {
    let pool = machine(&[(Kind::Cpu, 100)]);
    let refused = |request: Request| pool.lease(request).err().unwrap();
    assert_eq!(refused(Request { weight: 0, ..request(1, Wish::Auto) }), PoolError::NoWeight);
    assert_eq!(refused(request(0, Wish::Auto)), PoolError::NoBytes);
    assert!(matches!(refused(Request::new("ada", usize::MAX)), PoolError::NothingFits { .. }));
    assert_eq!(machine(&[]).lease(request(1, Wish::Auto)).err(), Some(PoolError::Empty));
}

#[test]
fn what_a_request_leaves_to_others_stays_free() {
    let pool = machine(&[(Kind::Cpu, 800)]);
    let spare = Spare::OneIn(NonZeroU32::new(8).unwrap());
    let _most = pool.lease(Request { spare, ..request(699, Wish::Auto) }).unwrap();
    let error = pool.lease(Request { spare, ..request(2, Wish::Auto) }).map(drop).unwrap_err();
    let PoolError::NothingFits { fits, largest, .. } = error else { panic!("{error}") };
    assert_eq!((fits, largest), (MEBIBYTE, 700 * MEBIBYTE));
    let _rest = pool.lease(request(51, Wish::Auto)).unwrap();
    let spare = Spare::Bytes(20 * MEBIBYTE);
    assert!(pool.lease(Request { spare, ..request(31, Wish::Auto) }).is_err());
    assert!(pool.lease(Request { spare, ..request(30, Wish::Auto) }).is_ok());
}

#[test]
fn whoever_waits_is_told_when_bytes_come_back() {
    let pool = machine(&[(Kind::Cpu, 100)]);
    let told = Arc::new(AtomicU32::new(0));
    let tell = told.clone();
    pool.when_freed(move || {
        tell.fetch_add(1, Relaxed);
    });
    let leases = [request(30, Wish::Auto), request(30, Wish::Auto)].map(|request| pool.lease(request).unwrap());
    assert!(pool.lease(request(60, Wish::Auto)).is_err());
    assert_eq!(told.load(Relaxed), 0, "nothing was given back");
    drop(leases);
    assert_eq!(told.load(Relaxed), 2);
}
