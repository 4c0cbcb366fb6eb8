//! The same elements elsewhere.
//!
//! Elements are moved as bits: all types of four bytes are one to the kernels here.

use super::Call;
use crate::device::View;
use crate::device::gpu::pipeline::Kernel;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::op::{Op, Spec};
use crate::shape::{Layout, Shape};

mod join;
mod resize;
mod rows;
mod scatter;
mod scratch;
mod top;

pub(super) use scatter::{Cut, Scatter, Source};
pub(super) use scratch::Scratch;

pub(super) fn run(call: Call<'_>, op: &Op) -> Result<()> {
    match op {
        // The context makes a view of these; one that is asked for all the same is copied.
        Op::Reshape(op) => view(call, op),
        Op::Permute(op) => view(call, op),
        Op::Expand(op) => view(call, op),
        Op::Slice(op) => view(call, op),
        Op::Copy(_) | Op::Assign(_) => {
            let layout = call.inputs[0].layout.expand(&call.outputs[0].layout.shape);
            copy(call, &layout)
        }
        Op::Pad(op) => join::pad(call, op),
        Op::Concat(op) => join::concat(call, op),
        Op::GatherRows(_) => rows::gather(call),
        Op::ScatterAddRows(op) => rows::scatter_add(call, op),
        Op::OneHot(op) => rows::one_hot(call, op),
        Op::TopK(op) => top::top_k(call, op),
        Op::TopKGradient(op) => top::top_k_gradient(call, op),
        Op::Resize(op) => resize::resize(call, op),
        Op::ResizeGradient(op) => resize::resize_gradient(call, op),
        _ => super::misplaced(op),
    }
}

static COPY: Kernel = Kernel { name: "copy", sources: &[include_str!("layout/copy.wgsl")] };
static COPY_ROW: Kernel = Kernel { name: "copy-row", sources: &[include_str!("layout/copy_row.wgsl")] };
static ZERO: Kernel = Kernel { name: "zero", sources: &[include_str!("layout/zero.wgsl")] };

fn view(call: Call<'_>, spec: &dyn Spec) -> Result<()> {
    let layout = spec
        .view(call.inputs[0].layout)
        .ok_or_else(|| Error::Internal { op: call.op, reason: "its input must be contiguous".into() })?;
    copy(call, &layout)
}

/// Copies the input, seen under another layout of its memory, to the result.
fn copy(call: Call<'_>, layout: &Layout) -> Result<()> {
    let y = &call.outputs[0];
    let x = View { layout, ..call.inputs[0] };
    if let (Some(from), Some(into)) = (words(&x), words(y)) {
        let (x, y) = (View { layout: &from, dtype: DType::U32, ..x }, View { layout: &into, dtype: DType::U32, ..*y });
        if is_fours(&x) && is_fours(&y) {
            let fours = from.shape.elements() as u64 / 4;
            return call.launch(&COPY_ROW).bind_fours("x", &x)?.bind_fours("y", &y)?.threads(fours);
        }
        return call.launch(&COPY).define("TYPE", "u32").define("AT", "at").bind("x", &x)?.map(&y);
    }
    let (x, y) = (bits(&x), bits(y));
    call.launch(&COPY)
        .define("TYPE", super::wgsl_type(y.dtype))
        .define("AT", "of")
        .walk("x", &x, &y.layout.shape)?
        .map(&y)
}

/// The whole words that a view is, where it is that.
fn words(view: &View<'_>) -> Option<Layout> {
    let (offset, bytes) = (view.layout.offset * view.dtype.size(), view.layout.shape.elements() * view.dtype.size());
    if !view.layout.is_contiguous() || !offset.is_multiple_of(4) || !bytes.is_multiple_of(4) {
        return None;
    }
    Some(Layout::contiguous_at(Shape::new(&[bytes / 4]).ok()?, offset / 4))
}

/// The same view, its elements of four bytes as u32.
fn bits<'a>(view: &View<'a>) -> View<'a> {
    if view.dtype.size() == 4 { View { dtype: DType::U32, ..*view } } else { *view }
}

/// Whether a view can be bound by fours, with nothing left at its end.
pub(super) fn is_fours(view: &View<'_>) -> bool {
    view.dtype.size() == 4
        && view.layout.is_contiguous()
        && view.layout.offset.is_multiple_of(4)
        && view.layout.shape.elements().is_multiple_of(4)
}

/// Sets all elements of a view of f32 or u32 to zero.
pub(super) fn zero(call: &Call<'_>, y: &View<'_>) -> Result<()> {
    let elements = y.layout.shape.elements() as u64;
    if is_fours(y) {
        let launch = call.launch(&ZERO).define("PUT", "y_put4").define("TYPE", "vec4<f32>");
        return launch.bind_fours("y", y)?.threads(elements / 4);
    }
    let y = bits(y);
    call.launch(&ZERO).define("PUT", "y_put").define("TYPE", "u32").bind("y", &y)?.threads(elements)
}
