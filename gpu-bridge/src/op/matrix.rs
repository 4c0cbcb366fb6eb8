//! Products of matrices.

use smallvec::smallvec;

use super::{Inputs, Meta, Outputs, Saves, Spec};
use crate::error::{Error, Result};
use crate::shape::{MAX_RANK, Shape};
use crate::tape::Backward;

/// `a [..., m, k], b [..., k, n]`: their product times `scale`; batch axes broadcast. Transposes are views.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MatMul {
    pub scale: f32,
}

impl Spec for MatMul {
    fn name(&self) -> &'static str {
        "matmul"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [a, b] = inputs.exactly()?;
        inputs.all_f32()?;
        let (rank_a, rank_b) = (a.shape.rank(), b.shape.rank());
        if rank_a < 2 || rank_b < 2 || a.shape[rank_a - 1] != b.shape[rank_b - 2] {
            return Err(Error::mismatch(inputs.op, "cannot be multiplied", &a.shape, &b.shape));
        }
        let batch_a = Shape::new(&a.shape[..rank_a - 2])?;
        let batch = batch_a
            .broadcast(&Shape::new(&b.shape[..rank_b - 2])?)
            .ok_or_else(|| Error::mismatch(inputs.op, "batch axes do not broadcast", &a.shape, &b.shape))?;
        let mut sizes = [0; MAX_RANK];
        let rank = batch.rank() + 2;
        sizes[..batch.rank()].copy_from_slice(&batch);
        sizes[rank - 2] = a.shape[rank_a - 2];
        sizes[rank - 1] = b.shape[rank_b - 1];
        Ok(smallvec![Meta::f32(Shape::new(&sizes[..rank])?)])
    }

    fn flops(&self, inputs: &[Meta], outputs: &[Meta]) -> u64 {
        let depth = inputs.first().map_or(0, |a| a.shape.from_end(0));
        outputs.iter().map(|output| 2 * (output.shape.elements() * depth) as u64).sum()
    }

    fn strided(&self) -> bool {
        true
    }

    fn differentiable(&self) -> bool {
        true
    }

    fn saves(&self, wanted: u32) -> Saves {
        Saves::inputs(((wanted & 1) << 1) | ((wanted >> 1) & 1))
    }

    fn gradient(&self, backward: &mut Backward<'_>) -> Result<()> {
        let dy = backward.gradient(0)?;
        if backward.wants(0) {
            let b = backward.input(1)?.transposed()?;
            backward.emit_reduced(0, *self, &[&dy, &b])?;
        }
        if backward.wants(1) {
            let a = backward.input(0)?.transposed()?;
            backward.emit_reduced(1, *self, &[&a, &dy])?;
        }
        Ok(())
    }
}
