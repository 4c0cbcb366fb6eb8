//! The GPU device on the first GPU there is; on a machine without one that is a software GPU, whose figures say how good
//! the kernels and their launches are beside simpler ones, not how fast a GPU is.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::time::{ClockId, clock_gettime};
use weft_gpu::device::gpu::{Adapter, Gpu, naive_matmul};
use weft_gpu::device::{Device, Shared, cpu::Cpu};
use weft_gpu::models::{Model, ModelKind};
use weft_gpu::{Context, Crew, Limits};

use crate::{Measurement, is_wanted, percentile};

const BENCH: &str = "gpu";
const SIZE: usize = 512;
const ROUNDS: usize = 5;
const BATCH: usize = 16;
const STEPS: usize = 50;

pub fn run() -> Result<()> {
    let adapter = Adapter::all().into_iter().next().context("there is no Vulkan device; `make setup` brings one")?;
    eprintln!("on {} ({})", adapter.name(), adapter.driver());
    let gpu = Gpu::open(adapter, None)?;
    if is_wanted("wgpu.matmul.512") {
        product(&gpu)?.print()?;
    }
    if is_wanted("wgpu.submissions_per_step") || is_wanted("wgpu.encode_us_per_op") {
        for figure in launches(&gpu)? {
            figure.print()?;
        }
    }
    if is_wanted("wgpu.lenet_step") {
        for figure in steps(&gpu)? {
            figure.print()?;
        }
    }
    ensure!(gpu.stats().uncaptured_errors == 0, "the GPU had errors that belong to no call");
    Ok(())
}

fn context(device: Arc<dyn Device>) -> Context {
    Context::new(device, Arc::new(Crew::new(2)), Limits::default())
}

fn on(gpu: &Gpu) -> Result<Context> {
    Ok(context(gpu.open(NonZeroU32::MIN)?))
}

/// A product of matrices beside the shader that everybody writes first: a thread for each element.
fn product(gpu: &Gpu) -> Result<Measurement> {
    let context = on(gpu)?;
    let values: Vec<f32> = (0..SIZE * SIZE).map(|index| (index % 251) as f32 / 125.0 - 1.0).collect();
    let (a, b) = (context.tensor(&[SIZE, SIZE], &values)?, context.tensor(&[SIZE, SIZE], &values)?);
    a.matmul(&b)?.read(0, &mut [])?;
    let (mut our_rounds, mut naive_rounds) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let start = Instant::now();
        a.matmul(&b)?.read(0, &mut [])?;
        our_rounds.push(start.elapsed().as_secs_f64());
        naive_rounds.push(naive_matmul(gpu, SIZE, 1)?.as_secs_f64());
    }
    let flops = 2.0 * (SIZE as f64).powi(3);
    let (ours, naive) = (percentile(&mut our_rounds, 0.5), percentile(&mut naive_rounds, 0.5));
    Ok(Measurement::beside(BENCH, "wgpu.matmul.512", "per_s", flops / ours, flops / naive))
}

/// What it takes to hand a training step to the GPU.
fn launches(gpu: &Gpu) -> Result<[Measurement; 3]> {
    let context = on(gpu)?;
    let mut model = Model::new(&context, ModelKind::LeNet, 0)?;
    let batch = ModelKind::LeNet.batch(&context, BATCH, 0)?;
    for _ in 0..3 {
        model.step(&batch, 0.01)?.item()?;
    }
    let before = gpu.stats();
    let mut recorded = Duration::ZERO;
    for _ in 0..STEPS {
        let start = thread_time();
        let loss = model.step(&batch, 0.01)?;
        recorded += thread_time() - start;
        loss.item()?;
    }
    let after = gpu.stats();
    let submissions = (after.submissions - before.submissions) as f64 / STEPS as f64;
    let encoded = Duration::from_nanos(after.encode_nanoseconds - before.encode_nanoseconds);
    let dispatches = (after.dispatches - before.dispatches) as f64;
    Ok([
        Measurement::alone(BENCH, "wgpu.submissions_per_step", "count", submissions),
        Measurement::alone(BENCH, "wgpu.encode_us_per_op", "us", encoded.as_secs_f64() * 1e6 / dispatches),
        // All of the caller's time: autograd, checks, memory, and writing it down.
        Measurement::alone(BENCH, "wgpu.record_us_per_op", "us", recorded.as_secs_f64() * 1e6 / dispatches),
    ])
}

/// Processor time of this thread.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Training steps on the GPU and on the cores, from the same start: how far their losses come apart, and how long a step
/// takes beside the cores'.
fn steps(gpu: &Gpu) -> Result<[Measurement; 2]> {
    let train = |context: &Context| -> Result<(Vec<f32>, f64)> {
        let mut model = Model::new(context, ModelKind::LeNet, 0)?;
        let batch = ModelKind::LeNet.batch(context, BATCH, 0)?;
        let (mut losses, mut seconds) = (Vec::new(), Vec::new());
        for _ in 0..STEPS {
            let start = Instant::now();
            losses.push(model.step(&batch, 0.01)?.item()?);
            seconds.push(start.elapsed().as_secs_f64());
        }
        Ok((losses, percentile(&mut seconds, 0.5)))
    };
    let (want, cores) = train(&context(Arc::new(Cpu::new())))?;
    let (got, ours) = train(&on(gpu)?)?;
    let apart = want.iter().zip(&got).map(|(want, got)| f64::from((want - got).abs())).fold(0.0, f64::max);
    Ok([
        Measurement::alone(BENCH, "wgpu.lenet_step", "loss", apart),
        Measurement::beside(BENCH, "wgpu.lenet_step_ms", "ms", ours * 1e3, cores * 1e3),
    ])
}
