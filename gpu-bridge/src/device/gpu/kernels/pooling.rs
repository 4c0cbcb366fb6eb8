//! Windows of images to one element each.
//!
//! A gradient is gathered: each element of the input looks for the windows that cover it. For maxima a first kernel finds
//! out where each lies.

use super::Call;
use crate::device::View;
use crate::device::gpu::launch::Launch;
use crate::device::gpu::pipeline::Kernel;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::op::{Op, Window};
use crate::shape::{Layout, Shape};

pub(super) fn run(call: Call<'_>, op: &Op) -> Result<()> {
    let (input, output) = (&call.inputs[0].layout.shape, &call.outputs[0].layout.shape);
    match op {
        Op::MaxPool2d(op) => largest(call, &Pooling::strided(&call, &op.0, input, output)?),
        Op::AdaptiveMaxPool2d(_) => largest(call, &Pooling::adaptive(&call, input, output)?),
        Op::AveragePool2d(op) => mean(call, &Pooling::strided(&call, &op.0, input, output)?),
        Op::AdaptiveAveragePool2d(_) => mean(call, &Pooling::adaptive(&call, input, output)?),
        Op::MaxPool2dGradient(op) => {
            largest_gradient(call, &Pooling::strided(&call, &op.0, input, &call.inputs[1].layout.shape)?)
        }
        Op::AdaptiveMaxPool2dGradient(_) => {
            largest_gradient(call, &Pooling::adaptive(&call, input, &call.inputs[1].layout.shape)?)
        }
        Op::AveragePool2dGradient(op) => mean_gradient(call, &Pooling::strided(&call, &op.window, output, input)?),
        Op::AdaptiveAveragePool2dGradient(_) => mean_gradient(call, &Pooling::adaptive(&call, output, input)?),
        _ => super::misplaced(op),
    }
}

static LARGEST: Kernel = Kernel {
    name: "pool2d-largest",
    sources: &[include_str!("pooling/windows.wgsl"), include_str!("pooling/largest.wgsl")],
};
static MEAN: Kernel =
    Kernel { name: "pool2d-mean", sources: &[include_str!("pooling/windows.wgsl"), include_str!("pooling/mean.wgsl")] };
static GRADIENT: Kernel = Kernel {
    name: "pool2d-gradient",
    sources: &[include_str!("pooling/windows.wgsl"), include_str!("pooling/gradient.wgsl")],
};

/// `Body` in `windows.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Body {
    sizes: [u32; 2],
    pooled: [u32; 2],
    kernel: [u32; 2],
    stride: [u32; 2],
    padding: [u32; 2],
    count_padding: u32,
}

/// Windows on the images of an input.
struct Pooling {
    adaptive: bool,
    body: Body,
    /// Of all windows.
    pooled: Shape,
    /// Elements that all windows together cover, at most.
    looks: u64,
}

impl Pooling {
    fn strided(call: &Call<'_>, window: &Window, input: &Shape, pooled: &Shape) -> Result<Self> {
        let (sizes, results) = ([input[2], input[3]], [pooled[2], pooled[3]]);
        let reach = |axis: usize| sizes[axis] + 2 * window.padding[axis] + window.stride[axis];
        check(call, [0, 1].map(reach))?;
        let to_u32 = |pair: [usize; 2]| pair.map(|size| size as u32);
        let body = Body {
            sizes: to_u32(sizes),
            pooled: to_u32(results),
            kernel: to_u32(window.kernel),
            stride: to_u32(window.stride),
            padding: to_u32(window.padding),
            count_padding: u32::from(window.count_padding),
        };
        let area = [0, 1].map(|axis| window.kernel[axis].min(sizes[axis]) as u64);
        Ok(Self {
            adaptive: false,
            body,
            pooled: *pooled,
            looks: (pooled.elements() as u64).saturating_mul(area[0] * area[1]),
        })
    }

    fn adaptive(call: &Call<'_>, input: &Shape, pooled: &Shape) -> Result<Self> {
        let (sizes, results) = ([input[2], input[3]], [pooled[2], pooled[3]]);
        check(call, [0, 1].map(|axis| (sizes[axis] + 1) * (results[axis] + 1)))?;
        let to_u32 = |pair: [usize; 2]| pair.map(|size| size as u32);
        let nothing = [0; 2];
        let body = Body {
            sizes: to_u32(sizes),
            pooled: to_u32(results),
            kernel: nothing,
            stride: nothing,
            padding: nothing,
            count_padding: 0,
        };
        let looks = input.elements() as u64 + pooled.elements() as u64;
        Ok(Self { adaptive: true, body, pooled: *pooled, looks })
    }

    fn launch<'a>(&self, call: &Call<'a>, kernel: &'static Kernel) -> Launch<'a> {
        // Looking at an element takes far longer than adding it.
        call.launch(kernel).define("ADAPTIVE", self.adaptive).body(&self.body).flops(8 * self.looks)
    }
}

/// Refuses what cannot be counted in 32 bits.
fn check(call: &Call<'_>, counted: [usize; 2]) -> Result<()> {
    if counted.into_iter().any(|count| count > u32::MAX as usize) {
        return Err(Error::TooLarge { reason: format!("`{}`: images larger than a GPU can count", call.op) });
    }
    Ok(())
}

fn largest(call: Call<'_>, pooling: &Pooling) -> Result<()> {
    let launch = pooling.launch(&call, &LARGEST).define("TYPE", "f32").define("RESULT", "most");
    launch.bind("x", &call.inputs[0])?.map(&call.outputs[0])
}

fn mean(call: Call<'_>, pooling: &Pooling) -> Result<()> {
    pooling.launch(&call, &MEAN).bind("x", &call.inputs[0])?.map(&call.outputs[0])
}

fn largest_gradient(call: Call<'_>, pooling: &Pooling) -> Result<()> {
    let (x, dy) = (&call.inputs[0], &call.inputs[1]);
    let block = call.run.heap.take(4 * pooling.pooled.elements())?;
    let layout = Layout::contiguous(pooling.pooled);
    let positions = View { memory: block.memory(), layout: &layout, dtype: DType::U32 };
    let find = pooling.launch(&call, &LARGEST).define("TYPE", "u32").define("RESULT", "position");
    find.bind("x", x)?.map(&positions)?;
    pooling
        .launch(&call, &GRADIENT)
        .define("ADD", "if (positions_at(window) == i) { sum += dy_at(window); }")
        .bind("positions", &positions)?
        .bind("dy", dy)?
        .map(&call.outputs[0])
}

fn mean_gradient(call: Call<'_>, pooling: &Pooling) -> Result<()> {
    pooling
        .launch(&call, &GRADIENT)
        .define("ADD", "sum += dy_at(window) / (f32(covered(0u, row).count) * f32(covered(1u, column).count));")
        .bind("dy", &call.inputs[0])?
        .map(&call.outputs[0])
}
