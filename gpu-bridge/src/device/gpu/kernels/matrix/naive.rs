//! The simplest product there is: what benchmarks measure the others against.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use crate::device::gpu::Gpu;
use crate::device::gpu::launch::Launch;
use crate::device::gpu::pipeline::Kernel;
use crate::device::gpu::session::{Mode, Session};
use crate::device::{Device, Shared, View};
use crate::dtype::DType;
use crate::error::Result;
use crate::shape::{Layout, Shape};

static NAIVE: Kernel = Kernel { name: "matmul-naive", sources: &[include_str!("naive.wgsl")] };

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Body {
    size: u32,
}

/// How long a product of square matrices takes with one thread per element: the shortest of `times`, after one to warm up.
pub fn naive_matmul(gpu: &Gpu, size: usize, times: usize) -> Result<Duration> {
    let session = Session::open(&gpu.engine()?, &"naive".into(), NonZeroU32::MIN, gpu.info(), Mode::Run)?;
    let layout = Layout::contiguous(Shape::new(&[size, size])?);
    let bytes = 4 * size * size;
    let (a, b, y) = (session.allocate(bytes)?, session.allocate(bytes)?, session.allocate(bytes)?);
    let [a, b, y] = [&a, &b, &y].map(|memory| View { memory: memory.as_ref(), layout: &layout, dtype: DType::F32 });
    let mut best = Duration::MAX;
    for time in 0..=times {
        let start = Instant::now();
        Launch::new(session.core(), "matmul", &NAIVE)
            .bind("a", &a)?
            .bind("b", &b)?
            .body(&Body { size: size as u32 })
            .flops(2 * (size * size * size) as u64)
            .map(&y)?;
        session.read(y.memory, 0, &mut [])?;
        if time > 0 {
            best = best.min(start.elapsed());
        }
    }
    Ok(best)
}
