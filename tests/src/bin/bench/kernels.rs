//! Single operations of the native device, each beside what the machine can do.
//!
//! Products of matrices stand beside the `gemm` crate, called directly and on its own threads. What is bound by memory
//! stands beside a plain copy on two threads; on both sides every byte read and every byte written counts.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use gemm::Parallelism;
use weft_core::sync::merge;
use weft_gpu::device::cpu::Cpu;
use weft_gpu::op::{Optimize, Optimizer, Sgd};
use weft_gpu::{Context, Crew, DType, Limits};

use crate::{Measurement, is_wanted, percentile};

const BENCH: &str = "kernels";
const THREADS: usize = 2;
const ROUNDS: usize = 15;
/// How long one round repeats one operation.
const ROUND: Duration = Duration::from_millis(100);

const ADDED: usize = 16 << 20;
const AVERAGED: usize = 8;
const PARAMETERS: usize = 25_000_000;
/// Far more than any cache holds.
const COPIED: usize = 256 << 20;

pub fn run() -> Result<()> {
    let context = Context::new(Arc::new(Cpu::new()), Arc::new(Crew::new(THREADS)), Limits::default());
    for (metric, size) in [("gemm.512", 512), ("gemm.1024", 1024)] {
        if is_wanted(metric) {
            product(&context, metric, size)?.print()?;
        }
    }
    let mut copy = Copy::default();
    if is_wanted("add.16m") {
        add(&context, &mut copy)?.print()?;
    }
    if is_wanted("average.8x25m") {
        average(&mut copy)?.print()?;
    }
    if is_wanted("sgd.25m") {
        sgd(&context, &mut copy)?.print()?;
    }
    if is_wanted("small_op") {
        small(&context)?.print()?;
    }
    Ok(())
}

/// Rounds of one and the other by turns: the median of how often each ran per second.
fn in_turns(mut ours: impl FnMut() -> Result<()>, mut baseline: impl FnMut()) -> Result<(f64, f64)> {
    ours()?;
    baseline();
    let (mut our_rounds, mut base_rounds) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        our_rounds.push(per_second(&mut ours)?);
        base_rounds.push(per_second(&mut || {
            baseline();
            Ok(())
        })?);
    }
    Ok((percentile(&mut our_rounds, 0.5), percentile(&mut base_rounds, 0.5)))
}

fn per_second(work: &mut dyn FnMut() -> Result<()>) -> Result<f64> {
    // Once without the clock: threads that sleep wake up, and the other side's work leaves the cache.
    work()?;
    let (start, mut times) = (Instant::now(), 0);
    while times == 0 || start.elapsed() < ROUND {
        work()?;
        times += 1;
    }
    Ok(f64::from(times) / start.elapsed().as_secs_f64())
}

/// Numbers that are none of the easy ones.
fn values(count: usize) -> Vec<f32> {
    (0..count).map(|index| (index % 251) as f32 / 125.0 - 1.0).collect()
}

fn product(context: &Context, metric: &'static str, size: usize) -> Result<Measurement> {
    let (left, right) = (values(size * size), values(size * size));
    let (a, b) = (context.tensor(&[size, size], &left)?, context.tensor(&[size, size], &right)?);
    let mut into = vec![0.0_f32; size * size];
    let (ours, baseline) = in_turns(
        || {
            black_box(a.matmul(&b)?);
            Ok(())
        },
        || multiply(size, &left, &right, &mut into),
    )?;
    let apart = a.matmul(&b)?.to_vec::<f32>()?.iter().zip(&into).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max);
    ensure!(apart < 1e-2, "{metric}: the two products differ by {apart}");
    let flops = 2.0 * (size as f64).powi(3);
    Ok(Measurement::beside(BENCH, metric, "per_s", ours * flops, baseline * flops))
}

/// `into = left right`, all of them square and row after row.
fn multiply(size: usize, left: &[f32], right: &[f32], into: &mut [f32]) {
    let row = size as isize;
    assert!([left.len(), right.len(), into.len()] == [size * size; 3], "the matrices are square");
    // SAFETY: all three have the elements that sizes and strides reach, just asserted.
    unsafe {
        gemm::gemm(
            size,
            size,
            size,
            into.as_mut_ptr(),
            1,
            row,
            false,
            left.as_ptr(),
            1,
            row,
            right.as_ptr(),
            1,
            row,
            0.0_f32,
            1.0_f32,
            false,
            false,
            false,
            Parallelism::Rayon(0),
        );
    }
}

/// Two buffers, and the copy of one to the other on two threads.
#[derive(Default)]
struct Copy {
    from: Vec<u8>,
    into: Vec<u8>,
}

impl Copy {
    /// Takes its memory when it is first needed.
    fn run(&mut self) {
        if self.from.is_empty() {
            self.from = vec![1; COPIED];
            self.into = vec![2; COPIED];
        }
        let half = COPIED / 2;
        let (first, second) = self.into.split_at_mut(half);
        std::thread::scope(|scope| {
            scope.spawn(|| first.copy_from_slice(&self.from[..half]));
            second.copy_from_slice(&self.from[half..]);
        });
        black_box(&self.into);
    }
}

/// An operation that moves `bytes`, beside a copy: both in bytes per second.
fn beside_copy(
    metric: &'static str,
    bytes: usize,
    copy: &mut Copy,
    work: impl FnMut() -> Result<()>,
) -> Result<Measurement> {
    let (ours, baseline) = in_turns(work, || copy.run())?;
    Ok(Measurement::beside(BENCH, metric, "per_s", ours * bytes as f64, baseline * (2 * COPIED) as f64))
}

fn add(context: &Context, copy: &mut Copy) -> Result<Measurement> {
    let (a, b) = (context.tensor(&[ADDED], &values(ADDED))?, context.tensor(&[ADDED], &values(ADDED))?);
    beside_copy("add.16m", 3 * 4 * ADDED, copy, || {
        black_box(a.add(&b)?);
        Ok(())
    })
}

/// The mean of workers' weights, as jobs make it: on one thread.
fn average(copy: &mut Copy) -> Result<Measurement> {
    let workers: Vec<Vec<f32>> = (0..AVERAGED).map(|_| values(PARAMETERS)).collect();
    let parts: Vec<(&[f32], u64)> = workers.iter().map(|weights| (&weights[..], 64)).collect();
    let mut into = vec![0.0; PARAMETERS];
    beside_copy("average.8x25m", (AVERAGED + 1) * 4 * PARAMETERS, copy, || {
        merge::mean(&mut into, &parts);
        black_box(&into);
        Ok(())
    })
}

fn sgd(context: &Context, copy: &mut Copy) -> Result<Measurement> {
    let weights = context.tensor(&[PARAMETERS], &values(PARAMETERS))?;
    let gradients = context.tensor(&[PARAMETERS], &values(PARAMETERS))?;
    let momentum = context.full(&[PARAMETERS], DType::F32, 0.0)?;
    let optimizer = Optimizer::Sgd(Sgd { momentum: 0.9, weight_decay: 1e-4, ..Sgd::default() });
    let mut step = 0;
    // Three are read, two of them written.
    beside_copy("sgd.25m", 5 * 4 * PARAMETERS, copy, || {
        step += 1;
        Ok(weights.optimize(Optimize { optimizer, rate: 1e-6, step }, &[&momentum], &gradients)?)
    })
}

/// What an operation costs that is too small for its work to count.
fn small(context: &Context) -> Result<Measurement> {
    let (a, b) = (context.tensor(&[16], &values(16))?, context.tensor(&[16], &values(16))?);
    let mut add = || {
        black_box(a.add(&b)?);
        Ok(())
    };
    let mut rounds = (0..ROUNDS).map(|_| Ok(1e9 / per_second(&mut add)?)).collect::<Result<Vec<f64>>>()?;
    Ok(Measurement::alone(BENCH, "small_op", "ns", percentile(&mut rounds, 0.5)))
}
