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
/// Launches are measured in rounds of a few steps.
const LAUNCH_ROUNDS: usize = 40;
const ROUND_STEPS: usize = 5;

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
    Ok(context(gpu.open(&"bench".into(), NonZeroU32::MIN)?))
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
struct Launches {
    submissions: f64,
    /// Microseconds a dispatch, by round: of the thread that encodes, and of the caller's.
    encoded: Vec<f64>,
    recorded: Vec<f64>,
}

impl Launches {
    fn of(gpu: &Gpu, samples: usize) -> Result<Self> {
        let context = on(gpu)?;
        let mut model = Model::new(&context, ModelKind::LeNet, 0)?;
        let batch = ModelKind::LeNet.batch(&context, samples, 0)?;
        for _ in 0..3 {
            model.step(&batch, 0.01)?.item()?;
        }
        let (mut encoded, mut recorded) = (Vec::new(), Vec::new());
        let first = gpu.stats();
        for _ in 0..LAUNCH_ROUNDS {
            let (before, mut recording) = (gpu.stats(), Duration::ZERO);
            for _ in 0..ROUND_STEPS {
                let start = thread_time();
                let loss = model.step(&batch, 0.01)?;
                recording += thread_time() - start;
                loss.item()?;
            }
            let after = gpu.stats();
            let dispatches = (after.dispatches - before.dispatches) as f64;
            let encoding = Duration::from_nanos(after.encode_nanoseconds - before.encode_nanoseconds);
            encoded.push(encoding.as_secs_f64() * 1e6 / dispatches);
            recorded.push(recording.as_secs_f64() * 1e6 / dispatches);
        }
        let steps = (LAUNCH_ROUNDS * ROUND_STEPS) as f64;
        let submissions = (gpu.stats().submissions - first.submissions) as f64 / steps;
        Ok(Self { submissions, encoded, recorded })
    }
}

/// A software GPU takes cores and caches from the thread that encodes for it, the more the more it computes. What
/// encoding itself takes is therefore measured on steps of one sample, in the round that was disturbed least; beside it
/// stands what it comes to in the middle round, and with the batch of the other figures.
fn launches(gpu: &Gpu) -> Result<[Measurement; 5]> {
    let mut small = Launches::of(gpu, 1)?;
    let mut usual = Launches::of(gpu, BATCH)?;
    let alone = |metric, unit, value| Measurement::alone(BENCH, metric, unit, value);
    Ok([
        alone("wgpu.submissions_per_step", "count", usual.submissions),
        alone("wgpu.encode_us_per_op", "us", percentile(&mut small.encoded, 0.0)),
        alone("wgpu.encode_us_per_op.median", "us", percentile(&mut small.encoded, 0.5)),
        alone("wgpu.encode_us_per_op.16.median", "us", percentile(&mut usual.encoded, 0.5)),
        // All of the caller's time: autograd, checks, memory, and writing it down.
        alone("wgpu.record_us_per_op", "us", percentile(&mut usual.recorded, 0.5)),
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
