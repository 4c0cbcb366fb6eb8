//! The native device: the machine's own cores.
//!
//! SIMD is chosen at run time (in `simd`), so one binary runs everywhere and uses what is there. Kernels allocate
//! nothing of their own: results and room to work in come from the caller's heap. Work is cut into tiles by size alone,
//! so results do not depend on how many threads there are.

use smallvec::SmallVec;

use super::{Device, DeviceInfo, Kind, Memory, View};
use crate::error::Result;
use crate::op::Op;
use crate::pool::host_memory;
use crate::run::Run;

mod arena;
mod codec;
mod convolution;
mod eight;
mod elementwise;
mod fold;
mod gemm;
mod layout;
mod loss;
mod mapping;
mod math;
mod matrix;
mod memory;
mod normalization;
mod panel;
mod pooling;
mod random;
mod reduction;
mod shared;
mod simd;
mod sixteen;
mod sparse;

pub(crate) use memory::scratch_floats;
use memory::{HostMemory, Input, Output};
pub use shared::{GRACE, LONGEST_DELAY, QUANTUM, SharedCpu};
pub use simd::vectorized;

/// The machine's cores as a device.
#[derive(Debug, Default)]
pub struct Cpu;

impl Cpu {
    pub fn new() -> Self {
        Self
    }
}

/// Three quarters of what this process may use: the rest is for others.
fn machine_memory() -> usize {
    usize::try_from(host_memory() / 4 * 3).unwrap_or(usize::MAX)
}

impl Device for Cpu {
    fn info(&self) -> DeviceInfo {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        DeviceInfo { name: "cpu".into(), kind: Kind::Cpu, threads, memory: machine_memory() }
    }

    fn allocate(&self, bytes: usize) -> Result<Box<dyn Memory>> {
        Ok(Box::new(HostMemory::zeroed(bytes)?))
    }

    fn write(&self, memory: &dyn Memory, offset: usize, bytes: &[u8]) -> Result<()> {
        HostMemory::of(memory, "write")?.write(offset, bytes)
    }

    fn write_with(
        &self,
        memory: &dyn Memory,
        offset: usize,
        bytes: usize,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<()> {
        HostMemory::of(memory, "write")?.write_with(offset, bytes, fill)
    }

    fn read(&self, memory: &dyn Memory, offset: usize, bytes: &mut [u8]) -> Result<()> {
        HostMemory::of(memory, "read")?.read(offset, bytes)
    }

    fn run(&self, op: &Op, inputs: &[View<'_>], outputs: &[View<'_>], run: &Run<'_>) -> Result<()> {
        let name = op.name();
        // Pushed and not collected: a collected result is moved twice, which takes longer than adding two numbers.
        let (mut read, mut written) = (SmallVec::<[Input<'_>; 8]>::new(), SmallVec::<[Output<'_>; 4]>::new());
        for view in inputs {
            read.push(Input::borrow(name, view)?);
        }
        for view in outputs {
            written.push(Output::borrow(name, view)?);
        }
        let (inputs, outputs) = (&read[..], &mut written[..]);
        match op {
            // elementwise
            Op::Unary(unary) => elementwise::unary(*unary, inputs, outputs, run),
            Op::UnaryGradient(op) => elementwise::unary_gradient(op.0, inputs, outputs, run),
            Op::UnaryGradientFromOutput(op) => elementwise::unary_gradient_from_output(op.0, inputs, outputs, run),
            Op::Binary(binary) => elementwise::binary(*binary, inputs, outputs, run),
            Op::BinaryGradient(op) => elementwise::binary_gradient(op, inputs, outputs, run),
            Op::Compare(op) => elementwise::compare(op.0, inputs, outputs, run),
            Op::Select(_) => elementwise::select(inputs, outputs, run),
            Op::Cast(_) => elementwise::cast(inputs, outputs, run),
            // reduction
            Op::ArgReduce(op) => reduction::arg_reduce(op, inputs, outputs, run),
            Op::Reduce(reduce) => reduction::reduce(reduce, inputs, outputs, run),
            // layout
            Op::Reshape(_) | Op::Permute(_) | Op::Expand(_) | Op::Slice(_) => {
                layout::view(op.spec(), inputs, outputs, run)
            }
            Op::Copy(_) => layout::copy(inputs, outputs, run),
            Op::Pad(op) => layout::pad(op, inputs, outputs, run),
            Op::Concat(op) => layout::concat(op, inputs, outputs, run),
            Op::GatherRows(op) => layout::gather_rows(op, inputs, outputs, run),
            Op::ScatterAddRows(op) => layout::scatter_add_rows(op, inputs, outputs, run),
            Op::OneHot(op) => layout::one_hot(op, inputs, outputs, run),
            Op::TopK(op) => layout::top_k(op, inputs, outputs, run),
            Op::TopKGradient(op) => layout::top_k_gradient(op, inputs, outputs, run),
            Op::Resize(op) => layout::resize(op, inputs, outputs, run),
            Op::ResizeGradient(op) => layout::resize_gradient(op, inputs, outputs, run),
            // random
            Op::Fill(op) => random::fill(op, outputs, run),
            Op::Iota(op) => random::iota(op, outputs, run),
            Op::Uniform(op) => random::uniform(op, outputs, run),
            Op::Normal(op) => random::normal(op, outputs, run),
            Op::Dropout(op) => random::dropout(op, inputs, outputs, run),
            // matrix
            Op::MatMul(matmul) => matrix::matmul(matmul, inputs, outputs, run),
            Op::Linear(linear) => matrix::linear(linear, inputs, outputs, run),
            // convolution
            Op::Conv2d(conv) => convolution::forward(conv, inputs, outputs, run),
            Op::Conv2dGradientInput(op) => convolution::gradient_input(op, inputs, outputs, run),
            Op::Conv2dGradientWeight(op) => convolution::gradient_weight(op, inputs, outputs, run),
            // pooling
            Op::MaxPool2d(op) => pooling::max(&op.0, inputs, outputs, run),
            Op::MaxPool2dGradient(op) => pooling::max_gradient(&op.0, inputs, outputs, run),
            Op::AveragePool2d(op) => pooling::average(&op.0, inputs, outputs, run),
            Op::AveragePool2dGradient(op) => pooling::average_gradient(&op.window, inputs, outputs, run),
            Op::AdaptiveAveragePool2d(_) => pooling::adaptive_average(inputs, outputs, run),
            Op::AdaptiveAveragePool2dGradient(_) => pooling::adaptive_average_gradient(inputs, outputs, run),
            Op::AdaptiveMaxPool2d(_) => pooling::adaptive_max(inputs, outputs, run),
            Op::AdaptiveMaxPool2dGradient(_) => pooling::adaptive_max_gradient(inputs, outputs, run),
            // normalization
            Op::BatchNorm(op) => normalization::batch(op, inputs, outputs, run),
            Op::BatchNormGradient(op) => normalization::batch_gradient(op, inputs, outputs, run),
            Op::BatchNormInference(op) => normalization::batch_inference(op, inputs, outputs, run),
            Op::LayerNorm(op) => normalization::layer(op, inputs, outputs, run),
            Op::LayerNormGradient(_) => normalization::layer_gradient(inputs, outputs, run),
            Op::LocalResponseNorm(op) => normalization::local_response(op, inputs, outputs, run),
            Op::LocalResponseNormGradient(op) => normalization::local_response_gradient(&op.0, inputs, outputs, run),
            Op::Softmax(_) => normalization::softmax(inputs, outputs, run),
            Op::LogSoftmax(_) => normalization::log_softmax(inputs, outputs, run),
            Op::MaskedSoftmax(_) => normalization::masked_softmax(inputs, outputs, run),
            Op::SoftmaxGradient(_) => normalization::softmax_gradient(inputs, outputs, run),
            Op::LogSoftmaxGradient(_) => normalization::log_softmax_gradient(inputs, outputs, run),
            // loss
            Op::Loss(op) => loss::loss(op, inputs, outputs, run),
            // sparse
            Op::CsrMatMul(_) => sparse::matmul(inputs, outputs, run),
            Op::CsrTransposedMatMul(op) => sparse::transposed_matmul(op, inputs, outputs, run),
            Op::CsrValuesGradient(_) => sparse::values_gradient(inputs, outputs, run),
            Op::KMeansAssign(_) => sparse::kmeans_assign(inputs, outputs, run),
            Op::KMeansAccumulate(op) => sparse::kmeans_accumulate(op, inputs, outputs, run),
            // arena
            Op::Assign(_) => layout::assign(inputs, outputs, run),
            Op::Accumulate(op) => arena::accumulate(op, inputs, outputs, run),
            Op::Blend(op) => arena::blend(op, inputs, outputs, run),
            Op::Optimize(op) => arena::optimize(op, inputs, outputs, run),
            Op::ClipNorm(op) => arena::clip_norm(op, inputs, outputs, run),
            Op::AdmmGradient(op) => arena::admm_gradient(op, inputs, outputs, run),
            Op::AdmmDual(_) => arena::admm_dual(inputs, outputs, run),
            // codec
            Op::CastSaturating(_) => codec::cast_saturating(inputs, outputs, run),
            Op::Quantize(op) => codec::quantize(op, inputs, outputs, run),
            Op::Dequantize(op) => codec::dequantize(op, inputs, outputs, run),
            Op::Largest(op) => codec::largest(op, inputs, outputs, run),
            Op::Significant(op) => codec::significant(op, inputs, outputs, run),
            Op::AddAt(op) => codec::add_at(op, inputs, outputs, run),
        }
    }
}
