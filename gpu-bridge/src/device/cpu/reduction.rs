//! Sums, means and extremes.

use super::memory::{Input, Output};
use crate::error::{Error, Result};
use crate::op::{Reduce, Spec};
use crate::run::Run;

pub(super) fn reduce(reduce: &Reduce, inputs: &[Input<'_>], outputs: &mut [Output<'_>], _: &Run<'_>) -> Result<()> {
    let y = outputs[0].floats()?;
    if y.len() != 1 {
        return Err(Error::Internal { op: reduce.name(), reason: "to come".into() });
    }
    y[0] = inputs[0].floats()?.iter().sum();
    Ok(())
}
