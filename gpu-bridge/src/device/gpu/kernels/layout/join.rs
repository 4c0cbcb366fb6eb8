//! Tensors put together: with constants around them, and with each other.

use super::super::{Call, wgsl_type};
use super::bits;
use crate::device::View;
use crate::device::gpu::pipeline::Kernel;
use crate::dtype::DType;
use crate::error::Result;
use crate::op::{Concat, Pad};
use crate::shape::MAX_RANK;

static PAD: Kernel = Kernel { name: "pad", sources: &[include_str!("pad.wgsl")] };
static CONCAT: Kernel = Kernel { name: "concat", sources: &[include_str!("concat.wgsl")] };
static CONCAT_NARROW: Kernel = Kernel { name: "concat-narrow", sources: &[include_str!("concat_narrow.wgsl")] };

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct PadBody {
    rank: u32,
    value: u32,
    /// Of the result, per axis.
    sizes: [u32; MAX_RANK],
    before: [u32; MAX_RANK],
    steps: [u32; MAX_RANK],
    x_sizes: [u32; MAX_RANK],
    x_strides: [u32; MAX_RANK],
}

pub(super) fn pad(call: Call<'_>, op: &Pad) -> Result<()> {
    let (x, y) = (bits(&call.inputs[0]), bits(&call.outputs[0]));
    let value = match call.inputs[0].dtype {
        DType::F32 | DType::F16 => op.value.to_bits(),
        DType::U8 => u32::from(op.value as u8),
        DType::I32 => op.value as i32 as u32,
        DType::U32 => op.value as u32,
    };
    let rank = x.layout.shape.rank();
    // A step or a stride that is never taken may be anything.
    let saturated = |sizes: &[usize]| {
        let mut words = [0; MAX_RANK];
        for (word, &size) in words.iter_mut().zip(sizes) {
            *word = u32::try_from(size).unwrap_or(u32::MAX);
        }
        words
    };
    let body = PadBody {
        rank: rank as u32,
        value,
        sizes: saturated(&y.layout.shape),
        before: saturated(&op.before),
        steps: saturated(&op.steps),
        x_sizes: saturated(&x.layout.shape),
        x_strides: saturated(x.layout.strides()),
    };
    call.launch(&PAD).define("TYPE", wgsl_type(y.dtype)).bind("x", &x)?.body(&body).map(&y)
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct ConcatBody {
    /// Elements of an input, and of the result, for each element of the axes before the joined one.
    piece: u32,
    row: u32,
    /// Where the input begins in a row.
    start: u32,
}

pub(super) fn concat(call: Call<'_>, op: &Concat) -> Result<()> {
    let y = bits(&call.outputs[0]);
    let inner: usize = y.layout.shape[op.axis + 1..].iter().product();
    let row = y.layout.shape[op.axis] * inner;
    let mut start = 0;
    for input in call.inputs {
        let x: View<'_> = bits(input);
        let piece = x.layout.shape[op.axis] * inner;
        let elements = x.layout.shape.elements();
        if elements > 0 {
            let body = ConcatBody { piece: piece as u32, row: row as u32, start: start as u32 };
            if y.dtype.size() == 4 {
                let launch = call.launch(&CONCAT).walk("x", &x, &x.layout.shape)?.bind("y", &y)?;
                launch.body(&body).threads(elements as u64)?;
            } else {
                // Where one input ends and another begins in the middle of a word, the rest of the word must stay.
                let launch = call.launch(&CONCAT_NARROW).define("TYPE", wgsl_type(y.dtype));
                launch.walk("x", &x, &x.layout.shape)?.body(&body).map(&y)?;
            }
        }
        start += piece;
    }
    Ok(())
}
