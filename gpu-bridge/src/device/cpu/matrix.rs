//! Products of matrices.

use super::memory::{Input, Output};
use crate::error::Result;
use crate::op::MatMul;
use crate::run::Run;

pub(super) fn matmul(op: &MatMul, inputs: &[Input<'_>], outputs: &mut [Output<'_>], _: &Run<'_>) -> Result<()> {
    let (a, b) = (&inputs[0], &inputs[1]);
    let (m, k, n) = (a.layout.shape[0], a.layout.shape[1], b.layout.shape[1]);
    let (x, y) = (a.floats()?, b.floats()?);
    let out = outputs[0].floats()?;
    for row in 0..m {
        for column in 0..n {
            let mut sum = 0.0;
            for inner in 0..k {
                sum += x[row * a.layout.strides()[0] + inner * a.layout.strides()[1]]
                    * y[inner * b.layout.strides()[0] + column * b.layout.strides()[1]];
            }
            out[row * n + column] = op.scale * sum;
        }
    }
    Ok(())
}
