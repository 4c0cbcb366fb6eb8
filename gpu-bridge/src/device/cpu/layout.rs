//! Elements moved as they are.
//!
//! All of it comes down to [`transfer`]: elements that lie somewhere are put somewhere else, in any order of axes.
//! Elements are moved as bits, so three widths serve all types.

use bytemuck::Pod;

use super::memory::{Input, Output};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::op::{Concat, Pad, Spec};
use crate::run::{Parts, Run};
use crate::shape::{Layout, MAX_RANK};

mod resize;
mod rows;
mod top;
mod transfer;

pub(super) use resize::{resize, resize_gradient};
pub(super) use rows::{gather_rows, one_hot, scatter_add_rows};
pub(super) use top::{top_k, top_k_gradient};
use transfer::{Walk, transfer};

/// Elements per tile.
const TILE: usize = 1 << 15;

/// The bits of an element, by width.
trait Bits: Pod + Send + Sync {
    /// From the first to the last element that the layout uses.
    fn read<'a>(input: &'a Input<'_>) -> Result<&'a [Self]>;

    fn write<'a>(output: &'a mut Output<'_>) -> Result<&'a mut [Self]>;
}

impl Bits for u8 {
    fn read<'a>(input: &'a Input<'_>) -> Result<&'a [Self]> {
        input.elements()
    }

    fn write<'a>(output: &'a mut Output<'_>) -> Result<&'a mut [Self]> {
        output.elements()
    }
}

impl Bits for u16 {
    fn read<'a>(input: &'a Input<'_>) -> Result<&'a [Self]> {
        input.elements::<half::f16>().map(bytemuck::cast_slice)
    }

    fn write<'a>(output: &'a mut Output<'_>) -> Result<&'a mut [Self]> {
        output.elements::<half::f16>().map(bytemuck::cast_slice_mut)
    }
}

impl Bits for u32 {
    fn read<'a>(input: &'a Input<'_>) -> Result<&'a [Self]> {
        match input.dtype {
            DType::F32 => input.elements::<f32>().map(bytemuck::cast_slice),
            DType::I32 => input.elements::<i32>().map(bytemuck::cast_slice),
            _ => input.elements(),
        }
    }

    fn write<'a>(output: &'a mut Output<'_>) -> Result<&'a mut [Self]> {
        match output.dtype {
            DType::F32 => output.elements::<f32>().map(bytemuck::cast_slice_mut),
            DType::I32 => output.elements::<i32>().map(bytemuck::cast_slice_mut),
            _ => output.elements(),
        }
    }
}

/// Calls a function that is generic over [`Bits`] for the width of a type.
macro_rules! by_width {
    ($dtype:expr, $function:ident($($argument:expr),*)) => {
        match $dtype {
            DType::U8 => $function::<u8>($($argument),*),
            DType::F16 => $function::<u16>($($argument),*),
            DType::F32 | DType::I32 | DType::U32 => $function::<u32>($($argument),*),
        }
    };
}
use by_width;

pub(super) fn copy(inputs: &[Input<'_>], outputs: &mut [Output<'_>], run: &Run<'_>) -> Result<()> {
    assign(inputs, outputs, run)
}

pub(super) fn assign(inputs: &[Input<'_>], outputs: &mut [Output<'_>], run: &Run<'_>) -> Result<()> {
    let layout = inputs[0].layout.expand(&outputs[0].layout.shape);
    by_width!(inputs[0].dtype, copy_from(&inputs[0], &layout, &mut outputs[0], run))
}

/// A view is made without a device; one that is asked for all the same is copied.
pub(super) fn view(spec: &dyn Spec, inputs: &[Input<'_>], outputs: &mut [Output<'_>], run: &Run<'_>) -> Result<()> {
    let layout = spec
        .view(inputs[0].layout)
        .ok_or_else(|| Error::Internal { op: spec.name(), reason: "its input must be contiguous".into() })?;
    by_width!(inputs[0].dtype, copy_from(&inputs[0], &layout, &mut outputs[0], run))
}

/// Copies an input, seen under another layout of its memory, to an output that is contiguous.
fn copy_from<T: Bits>(input: &Input<'_>, layout: &Layout, output: &mut Output<'_>, run: &Run<'_>) -> Result<()> {
    let start = layout.offset - input.layout.offset;
    let walk = Walk::new(&layout.shape, layout.strides(), output.layout.strides());
    transfer(&walk, &T::read(input)?[start..], &Parts::new(T::write(output)?), 0, run)
}

pub(super) fn pad(op: &Pad, inputs: &[Input<'_>], outputs: &mut [Output<'_>], run: &Run<'_>) -> Result<()> {
    let (input, output) = (&inputs[0], &mut outputs[0]);
    match input.dtype {
        DType::F32 => pad_with::<u32>(op, op.value.to_bits(), input, output, run),
        DType::F16 => pad_with::<u16>(op, half::f16::from_f32(op.value).to_bits(), input, output, run),
        DType::U8 => pad_with::<u8>(op, op.value as u8, input, output, run),
        DType::I32 => pad_with::<u32>(op, op.value as i32 as u32, input, output, run),
        DType::U32 => pad_with::<u32>(op, op.value as u32, input, output, run),
    }
}

fn pad_with<T: Bits>(op: &Pad, value: T, input: &Input<'_>, output: &mut Output<'_>, run: &Run<'_>) -> Result<()> {
    let layout = output.layout.slice(&op.before, &input.layout.shape, &op.steps);
    let start = layout.offset - output.layout.offset;
    let walk = Walk::new(&input.layout.shape, input.layout.strides(), layout.strides());
    let into = T::write(output)?;
    if into.len() != input.layout.shape.elements() {
        run.chunks(into, TILE, |_, into| into.fill(value))?;
    }
    transfer(&walk, T::read(input)?, &Parts::new(into), start, run)
}

pub(super) fn concat(op: &Concat, inputs: &[Input<'_>], outputs: &mut [Output<'_>], run: &Run<'_>) -> Result<()> {
    by_width!(outputs[0].dtype, concat_of(op.axis, inputs, &mut outputs[0], run))
}

fn concat_of<T: Bits>(axis: usize, inputs: &[Input<'_>], output: &mut Output<'_>, run: &Run<'_>) -> Result<()> {
    let mut strides = [0; MAX_RANK];
    let rank = output.layout.shape.rank();
    strides[..rank].copy_from_slice(output.layout.strides());
    let into = Parts::new(T::write(output)?);
    let mut start = 0;
    for input in inputs {
        let walk = Walk::new(&input.layout.shape, input.layout.strides(), &strides[..rank]);
        transfer(&walk, T::read(input)?, &into, start, run)?;
        start += input.layout.shape[axis] * strides[axis];
    }
    Ok(())
}
