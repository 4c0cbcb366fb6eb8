//! What autograd, contexts, memory and crews promise, whatever the operations are.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use weft_gpu::device::cpu::Cpu;
use weft_gpu::{Context, Crew, DType, Limits, Tensor};

mod backward;
mod contexts;
mod crews;
mod gradients;
mod in_place;
mod long_chains;
mod memory;
mod recording;

fn context_with(threads: usize, limits: Limits) -> Context {
    Context::new(Arc::new(Cpu::new()), Arc::new(Crew::new(threads)), limits)
}

fn context() -> Context {
    context_with(2, Limits::default())
}

fn full(context: &Context, shape: &[usize], value: f64) -> Tensor {
    context.full(shape, DType::F32, value).unwrap()
}

/// A matrix of one element.
fn one(context: &Context, value: f64) -> Tensor {
    full(context, &[1, 1], value)
}

fn parameter(context: &Context, shape: &[usize], value: f64) -> Tensor {
    full(context, shape, value).parameter(None).unwrap()
}

fn gradient(parameter: &Tensor) -> Vec<f32> {
    parameter.gradient().expect("a gradient").to_vec().unwrap()
}

/// Bytes that tensors hold.
fn live(context: &Context) -> usize {
    context.heap().used() - context.heap().kept()
}
