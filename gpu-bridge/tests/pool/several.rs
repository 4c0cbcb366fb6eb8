//! Several GPUs. One software adapter, opened twice, is two.

use std::sync::Arc;

use weft_gpu::device::Shared;
use weft_gpu::device::cpu::SharedCpu;
use weft_gpu::pool::{DeviceId, Wish};
use weft_gpu::{Pool, Request};

use crate::support::{MEBIBYTE, context, pool};

fn lease(pool: &Pool, device: Wish) -> weft_gpu::Lease {
    pool.lease(Request { device, ..Request::new("tenant", 64 * MEBIBYTE) }).unwrap()
}

#[test]
fn leases_spread_over_gpus_and_stay_where_their_tensors_are() {
    let devices: [Arc<dyn Shared>; 3] = [Arc::new(SharedCpu::new()), Arc::new(crate::gpu()), Arc::new(crate::gpu())];
    let pool = pool(devices);
    let (first, second) = (lease(&pool, Wish::Gpu), lease(&pool, Wish::Gpu));
    assert_eq!([first.device(), second.device()], [DeviceId::Gpu(0), DeviceId::Gpu(1)]);
    assert_eq!(lease(&pool, Wish::Near(DeviceId::Gpu(1))).device(), DeviceId::Gpu(1));
    assert_eq!(lease(&pool, Wish::Cpu).device(), DeviceId::Cpu(0));
    // Both compute at once, and neither sees the other.
    let sums = std::thread::scope(|scope| {
        [&first, &second]
            .map(|lease| {
                let value = if lease.device() == DeviceId::Gpu(0) { 1.0 } else { 2.0 };
                scope.spawn(move || {
                    let context = context(lease, 1);
                    let x = context.full(&[1000], weft_gpu::DType::F32, value).unwrap();
                    (0..50).fold(0.0, |_, _| x.sum().unwrap().item().unwrap())
                })
            })
            .map(|thread| thread.join().unwrap())
    });
    assert_eq!(sums, [1000.0, 2000.0]);
}
