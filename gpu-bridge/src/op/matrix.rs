//! Products of matrices.

use smallvec::smallvec;

use super::{
    Inputs, Meta, Outputs, Reduce, Reducer, Reshape, Saves, Spec, Unary, UnaryGradient, UnaryGradientFromOutput,
};
use crate::error::{Error, Result};
use crate::shape::{Axes, MAX_RANK, Shape};
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
        outputs.iter().map(|output| multiply_adds(output.shape.elements(), depth)).sum()
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

/// `x [..., in], weight [out, in], bias [out] (optional)`: `x weight^T + bias`, then the activation. Gives the value
/// before the activation as a second output where the gradient of the activation needs it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Linear {
    pub activation: Option<Unary>,
}

impl Spec for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let (&[x, weight] | &[x, weight, _]) = inputs.metas else {
            return Err(inputs.wrong_count("2 or 3"));
        };
        inputs.all_f32()?;
        inputs.ranked(1, 2)?;
        let rank = x.shape.rank();
        if rank == 0 || x.shape[rank - 1] != weight.shape[1] {
            return Err(Error::mismatch(
                inputs.op,
                "the last axis is not what the weight takes",
                &x.shape,
                &weight.shape,
            ));
        }
        inputs.shaped(2, &weight.shape[..1])?;
        if let Some(activation) = self.activation {
            activation.infer(Inputs { op: inputs.op, metas: &[x] })?;
        }
        let y = Meta::f32(x.shape.with(rank - 1, weight.shape[0])?);
        match self.activation {
            Some(activation) if !activation.from_output() => Ok(smallvec![y, y]),
            _ => Ok(smallvec![y]),
        }
    }

    fn flops(&self, inputs: &[Meta], outputs: &[Meta]) -> u64 {
        let depth = inputs.get(1).map_or(0, |weight| weight.shape.from_end(0));
        let out = outputs.first().map_or(0, |y| y.shape.elements());
        let activation = self.activation.map_or(0, |activation| activation.flops(&[], &outputs[..1]));
        multiply_adds(out, depth).saturating_add(activation)
    }

    fn differentiable(&self) -> bool {
        true
    }

    fn saves(&self, wanted: u32) -> Saves {
        let inputs = ((wanted & 1) << 1) | ((wanted >> 1) & 1);
        let outputs = match self.activation {
            None => 0,
            Some(activation) if activation.from_output() => 0b01,
            Some(_) => 0b10,
        };
        Saves { inputs, outputs }
    }

    fn gradient(&self, backward: &mut Backward<'_>) -> Result<()> {
        let dy = backward.gradient(0)?;
        let dz = match self.activation {
            None => dy,
            Some(activation) if activation.from_output() => {
                let y = backward.output(0)?;
                backward.run(UnaryGradientFromOutput(activation), &[&y, &dy])?
            }
            Some(activation) => {
                let z = backward.output(1)?;
                backward.run(UnaryGradient(activation), &[&z, &dy])?
            }
        };
        let (shape, weight) = (backward.input_shape(0), backward.input_shape(1));
        let rows = shape.iter().rev().skip(1).product();
        let flat = backward.run(Reshape(Shape::new(&[rows, weight[0]])?), &[&dz])?;
        if backward.wants(0) {
            let weight = backward.input(1)?;
            if shape.rank() == 2 {
                backward.emit(0, MatMul { scale: 1.0 }, &[&flat, &weight])?;
            } else {
                let dx = backward.run(MatMul { scale: 1.0 }, &[&flat, &weight])?;
                backward.emit(0, Reshape(shape), &[&dx])?;
            }
        }
        if backward.wants(1) {
            let x = backward.input(0)?;
            let x = backward.run(Reshape(Shape::new(&[rows, weight[1]])?), &[&x])?;
            backward.emit(1, MatMul { scale: 1.0 }, &[&flat.transposed()?, &x])?;
        }
        if backward.inputs() > 2 && backward.wants(2) {
            backward.emit(2, Reduce { reducer: Reducer::Sum, axes: Axes::new(&[0])?, keep: false }, &[&flat])?;
        }
        Ok(())
    }
}

/// Two operations for each step of the depth of each element: at most what fits, as an axis that is repeated takes no
/// memory and may be of any size.
fn multiply_adds(elements: usize, depth: usize) -> u64 {
    (elements as u64).saturating_mul(depth as u64).saturating_mul(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_of_any_depth_are_counted_without_overflowing() {
        let (a, b) = (Shape::new(&[256, 1 << 32]).unwrap(), Shape::new(&[1 << 32, 256]).unwrap());
        let y = Meta::f32(Shape::new(&[1 << 20, 1 << 20]).unwrap());
        assert_eq!(MatMul { scale: 1.0 }.flops(&[Meta::f32(a), Meta::f32(b)], &[y]), u64::MAX);
    }
}
