//! Each element by its neighbours in the channels around it.

use super::super::Call;
use super::super::fold::text;
use crate::device::View;
use crate::device::gpu::launch::Launch;
use crate::device::gpu::pipeline::Kernel;
use crate::error::Result;
use crate::op::LocalResponseNorm;
use crate::shape::Layout;

const WINDOW: &str = include_str!("local_response.wgsl");

static FORWARD: Kernel =
    Kernel { name: "local-response-norm", sources: &[text::MATH, WINDOW, include_str!("local_response_forward.wgsl")] };

static INDIRECT: Kernel = Kernel {
    name: "local-response-norm-indirect",
    sources: &[text::MATH, WINDOW, include_str!("local_response_indirect.wgsl")],
};

static BACKWARD: Kernel = Kernel {
    name: "local-response-norm-gradient",
    sources: &[text::MATH, WINDOW, include_str!("local_response_backward.wgsl")],
};

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Body {
    channels: u32,
    plane: u32,
    before: u32,
    after: u32,
    share: f32,
    beta: f32,
    k: f32,
}

/// A launch that looks at the channels around each element.
fn windows<'a>(call: &Call<'a>, kernel: &'static Kernel, op: &LocalResponseNorm) -> Result<Launch<'a>> {
    let x = &call.inputs[0];
    let shape = &x.layout.shape;
    let channels = shape[1];
    let body = Body {
        channels: channels as u32,
        plane: shape[2..].iter().product::<usize>() as u32,
        before: (op.size / 2).min(channels) as u32,
        after: ((op.size - 1) / 2).min(channels) as u32,
        share: op.alpha / op.size as f32,
        beta: op.beta,
        k: op.k,
    };
    let neighbours = u64::from(body.before) + u64::from(body.after) + 1;
    let flops = (shape.elements() as u64).saturating_mul(4 * neighbours + 48);
    call.launch(kernel).bind("x", x)?.body(&body).flops(flops).looping(neighbours, "neighbouring channels")
}

pub(super) fn forward(call: Call<'_>, op: &LocalResponseNorm) -> Result<()> {
    windows(&call, &FORWARD, op)?.map(&call.outputs[0])
}

/// In two passes, or the work for an element would grow with the square of the size.
pub(super) fn gradient(call: Call<'_>, op: &LocalResponseNorm) -> Result<()> {
    let dy = &call.inputs[1];
    let block = call.run.heap.take(dy.layout.shape.elements() * 4)?;
    let layout = Layout::contiguous(dy.layout.shape);
    let indirect = View { memory: block.memory(), layout: &layout, dtype: dy.dtype };
    let dx = &call.outputs[0];
    windows(&call, &INDIRECT, op)?.bind("dy", dy)?.bind("dx", dx)?.map(&indirect)?;
    windows(&call, &BACKWARD, op)?.bind("indirect", &indirect)?.map(dx)
}
