//! The operations as kernels: which kernel, on what, with which parameters. The WGSL lies beside the Rust of its family.

use super::launch::Launch;
use super::memory::GpuMemory;
use super::pipeline::Kernel;
use super::session::Core;
use crate::device::{Memory, View};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::op::Op;
use crate::run::Run;
use crate::shape::{Layout, Shape};

mod arena;
mod codec;
mod convolution;
mod elementwise;
mod fold;
mod layout;
mod loss;
mod matrix;
mod normalization;
mod pooling;
mod random;
mod reduction;
mod sparse;

pub use matrix::naive::naive_matmul;

/// What a kernel is launched with.
#[derive(Clone, Copy)]
struct Call<'a> {
    core: &'a Core,
    op: &'static str,
    inputs: &'a [View<'a>],
    outputs: &'a [View<'a>],
    run: &'a Run<'a>,
}

impl<'a> Call<'a> {
    fn launch(&self, kernel: &'static Kernel) -> Launch<'a> {
        Launch::new(self.core, self.op, kernel)
    }

    /// Whether the kernels for a GPU that runs on the machine's cores are to be used.
    fn is_software(&self) -> bool {
        self.core.live().class.software
    }

    /// The most rounds of a loop in one thread.
    fn longest_loop(&self) -> usize {
        self.core.live().class.longest_loop as usize
    }
}

pub(super) fn run(core: &Core, op: &Op, inputs: &[View<'_>], outputs: &[View<'_>], run: &Run<'_>) -> Result<()> {
    let call = Call { core, op: op.name(), inputs, outputs, run };
    match op {
        Op::Unary(_)
        | Op::UnaryGradient(_)
        | Op::UnaryGradientFromOutput(_)
        | Op::Binary(_)
        | Op::BinaryGradient(_)
        | Op::Compare(_)
        | Op::Select(_)
        | Op::Cast(_) => elementwise::run(call, op),
        Op::Reduce(_) | Op::ArgReduce(_) => reduction::run(call, op),
        Op::Reshape(_)
        | Op::Permute(_)
        | Op::Expand(_)
        | Op::Slice(_)
        | Op::Copy(_)
        | Op::Pad(_)
        | Op::Concat(_)
        | Op::GatherRows(_)
        | Op::ScatterAddRows(_)
        | Op::OneHot(_)
        | Op::TopK(_)
        | Op::TopKGradient(_)
        | Op::Resize(_)
        | Op::ResizeGradient(_)
        | Op::Assign(_) => layout::run(call, op),
        Op::Fill(_) | Op::Iota(_) | Op::Uniform(_) | Op::Normal(_) | Op::Dropout(_) => random::run(call, op),
        Op::MatMul(_) | Op::Linear(_) => matrix::run(call, op),
        Op::Conv2d(_) | Op::Conv2dGradientInput(_) | Op::Conv2dGradientWeight(_) => convolution::run(call, op),
        Op::MaxPool2d(_)
        | Op::MaxPool2dGradient(_)
        | Op::AveragePool2d(_)
        | Op::AveragePool2dGradient(_)
        | Op::AdaptiveAveragePool2d(_)
        | Op::AdaptiveAveragePool2dGradient(_)
        | Op::AdaptiveMaxPool2d(_)
        | Op::AdaptiveMaxPool2dGradient(_) => pooling::run(call, op),
        Op::BatchNorm(_)
        | Op::BatchNormGradient(_)
        | Op::BatchNormInference(_)
        | Op::LayerNorm(_)
        | Op::LayerNormGradient(_)
        | Op::LocalResponseNorm(_)
        | Op::LocalResponseNormGradient(_)
        | Op::Softmax(_)
        | Op::LogSoftmax(_)
        | Op::MaskedSoftmax(_)
        | Op::SoftmaxGradient(_)
        | Op::LogSoftmaxGradient(_) => normalization::run(call, op),
        Op::Loss(_) => loss::run(call, op),
        Op::CsrMatMul(_)
        | Op::CsrTransposedMatMul(_)
        | Op::CsrValuesGradient(_)
        | Op::KMeansAssign(_)
        | Op::KMeansAccumulate(_) => sparse::run(call, op),
        Op::Accumulate(_)
        | Op::Blend(_)
        | Op::Optimize(_)
        | Op::ClipNorm(_)
        | Op::AdmmGradient(_)
        | Op::AdmmDual(_) => arena::run(call, op),
        Op::CastSaturating(_)
        | Op::Quantize(_)
        | Op::Dequantize(_)
        | Op::Largest(_)
        | Op::Significant(_)
        | Op::AddAt(_) => codec::run(call, op),
    }
}

/// For an operation of another family: the table in [`run`] is wrong.
fn misplaced(op: &Op) -> Result<()> {
    Err(Error::Internal { op: op.name(), reason: "it has no kernel here".into() })
}

/// What an element of this type is in a kernel.
fn wgsl_type(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 | DType::F16 => "f32",
        DType::I32 => "i32",
        DType::U8 | DType::U32 => "u32",
    }
}

static PATCH: Kernel = Kernel { name: "patch", sources: &[include_str!("kernels/patch.wgsl")] };

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct PatchBody {
    word: u32,
    value: u32,
    mask: u32,
}

/// Writes fewer bytes than a word, all in one.
pub(super) fn patch(core: &Core, memory: &dyn Memory, offset: usize, bytes: &[u8]) -> Result<()> {
    let words = GpuMemory::of(memory, "write")?.region().bytes / 4;
    let layout = Layout::contiguous(Shape::new(&[words as usize])?);
    let view = View { memory, layout: &layout, dtype: DType::U32 };
    let (mut value, mut mask) = ([0; 4], [0; 4]);
    let first = offset % 4;
    value[first..first + bytes.len()].copy_from_slice(bytes);
    mask[first..first + bytes.len()].fill(0xff);
    let body =
        PatchBody { word: (offset / 4) as u32, value: u32::from_le_bytes(value), mask: u32::from_le_bytes(mask) };
    Launch::new(core, "write", &PATCH).bind("y", &view)?.body(&body).threads(1)
}
