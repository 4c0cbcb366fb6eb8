//! Elements moved as they are.

use super::memory::{Input, Output};
use crate::dtype::{DType, Element};
use crate::error::Result;
use crate::run::Run;

pub(super) fn copy(inputs: &[Input<'_>], outputs: &mut [Output<'_>], run: &Run<'_>) -> Result<()> {
    assign(inputs, outputs, run)
}

pub(super) fn assign(inputs: &[Input<'_>], outputs: &mut [Output<'_>], _: &Run<'_>) -> Result<()> {
    match inputs[0].dtype.size() {
        4 if inputs[0].dtype == DType::F32 => gather::<f32>(&inputs[0], &mut outputs[0]),
        4 if inputs[0].dtype == DType::I32 => gather::<i32>(&inputs[0], &mut outputs[0]),
        4 => gather::<u32>(&inputs[0], &mut outputs[0]),
        2 => gather::<half::f16>(&inputs[0], &mut outputs[0]),
        _ => gather::<u8>(&inputs[0], &mut outputs[0]),
    }
}

fn gather<T: Element>(input: &Input<'_>, output: &mut Output<'_>) -> Result<()> {
    let layout = input.layout.expand(&output.layout.shape);
    let from = input.elements::<T>()?;
    for (index, into) in output.elements::<T>()?.iter_mut().enumerate() {
        let mut rest = index;
        let mut at = 0;
        for (size, stride) in layout.shape.iter().zip(layout.strides()).rev() {
            at += rest % size * stride;
            rest /= size;
        }
        *into = from[at];
    }
    Ok(())
}
