//! Many elements to one: sums, means and extremes over any axes.

use smallvec::smallvec;

use super::{Binary, Cast, Compare, Comparison, Inputs, Meta, Outputs, Reshape, Saves, Spec, Unary};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::{Axes, MAX_RANK, Shape};
use crate::tape::Backward;
use crate::tensor::Tensor;

/// How elements are folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reducer {
    /// Of nothing it is 0.
    Sum,
    /// Of nothing it is NaN.
    Mean,
    /// NaN if any is. There is none of nothing.
    Max,
    /// NaN if any is. There is none of nothing.
    Min,
    SumSquares,
    /// The mean square distance from the mean, with the count lowered by `correction`; NaN if nothing is left of it.
    Variance {
        correction: u32,
    },
}

/// `x` over some axes, which stay with size 1 if `keep`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reduce {
    pub reducer: Reducer,
    pub axes: Axes,
    pub keep: bool,
}

/// The shape that is left when some axes are folded.
pub(super) fn reduced_shape(op: &'static str, shape: &Shape, axes: Axes, keep: bool) -> Result<Shape> {
    if axes.rank() > shape.rank() {
        return Err(Error::shape(op, format!("{shape:?} has no axis {}", axes.rank() - 1)));
    }
    let mut sizes = [0; MAX_RANK];
    let mut rank = 0;
    for (axis, &size) in shape.iter().enumerate() {
        if !axes.contains(axis) || keep {
            sizes[rank] = if axes.contains(axis) { 1 } else { size };
            rank += 1;
        }
    }
    Shape::new(&sizes[..rank])
}

/// How many elements are folded into one.
fn folded(shape: &Shape, axes: Axes) -> usize {
    shape.iter().enumerate().filter(|&(axis, _)| axes.contains(axis)).map(|(_, size)| size).product()
}

impl Reduce {
    /// The gradient, or the result, with the folded axes back as axes of size 1.
    fn kept(&self, backward: &Backward<'_>, tensor: &Tensor) -> Result<Tensor> {
        let shape = reduced_shape(self.name(), &backward.input_shape(0), self.axes, true)?;
        backward.run(Reshape(shape), &[tensor])
    }

    /// Each element that is the extreme has an equal share.
    fn extreme_gradient(&self, backward: &mut Backward<'_>, dy: &Tensor) -> Result<()> {
        let (x, y) = (backward.input(0)?, self.kept(backward, &backward.output(0)?)?);
        let hits = backward.run(Compare(Comparison::Eq), &[&x, &y])?;
        let hits = backward.run(Cast(DType::F32), &[&hits])?;
        let count = backward.run(Self { reducer: Reducer::Sum, axes: self.axes, keep: true }, &[&hits])?;
        let share = backward.run(Binary::Div, &[dy, &count])?;
        backward.emit(0, Binary::Mul, &[&hits, &share])
    }
}

impl Spec for Reduce {
    fn name(&self) -> &'static str {
        match self.reducer {
            Reducer::Sum => "sum",
            Reducer::Mean => "mean",
            Reducer::Max => "max",
            Reducer::Min => "min",
            Reducer::SumSquares => "sum-squares",
            Reducer::Variance { .. } => "variance",
        }
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [x] = inputs.exactly()?;
        inputs.all_f32()?;
        let shape = reduced_shape(inputs.op, &x.shape, self.axes, self.keep)?;
        let extreme = matches!(self.reducer, Reducer::Max | Reducer::Min);
        if extreme && folded(&x.shape, self.axes) == 0 && shape.elements() > 0 {
            return Err(Error::shape(inputs.op, format!("there is none of nothing: {:?}", x.shape)));
        }
        Ok(smallvec![Meta::f32(shape)])
    }

    fn flops(&self, inputs: &[Meta], _: &[Meta]) -> u64 {
        let each = match self.reducer {
            Reducer::Sum | Reducer::Mean | Reducer::Max | Reducer::Min => 1,
            Reducer::SumSquares => 2,
            Reducer::Variance { .. } => 4,
        };
        each * inputs.iter().map(|input| input.shape.elements() as u64).sum::<u64>()
    }

    fn differentiable(&self) -> bool {
        true
    }

    fn saves(&self, _: u32) -> Saves {
        match self.reducer {
            Reducer::Sum | Reducer::Mean => Saves::NOTHING,
            Reducer::Max | Reducer::Min => Saves { inputs: 1, outputs: 1 },
            Reducer::SumSquares | Reducer::Variance { .. } => Saves::inputs(1),
        }
    }

    fn gradient(&self, backward: &mut Backward<'_>) -> Result<()> {
        let shape = backward.input_shape(0);
        let count = folded(&shape, self.axes) as f32;
        let dy = self.kept(backward, &backward.gradient(0)?)?;
        let scaled = |scale: f32| backward.run(Unary::Affine { scale, offset: 0.0 }, &[&dy]);
        match self.reducer {
            Reducer::Sum => backward.emit(0, super::Expand(shape), &[&dy]),
            Reducer::Mean => {
                let share = scaled(1.0 / count)?;
                backward.emit(0, super::Expand(shape), &[&share])
            }
            Reducer::Max | Reducer::Min => self.extreme_gradient(backward, &dy),
            Reducer::SumSquares => {
                let twice = scaled(2.0)?;
                let x = backward.input(0)?;
                backward.emit(0, Binary::Mul, &[&x, &twice])
            }
            Reducer::Variance { correction } => {
                let share = scaled(2.0 / (count - correction as f32).max(0.0))?;
                let x = backward.input(0)?;
                let mean = backward.run(Self { reducer: Reducer::Mean, axes: self.axes, keep: true }, &[&x])?;
                let distance = backward.run(Binary::Sub, &[&x, &mean])?;
                backward.emit(0, Binary::Mul, &[&distance, &share])
            }
        }
    }
}

/// Which end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extreme {
    Max,
    Min,
}

/// `x` over one axis: the index (u32) of the first extreme. NaN counts as most extreme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArgReduce {
    pub extreme: Extreme,
    pub axis: usize,
    pub keep: bool,
}

impl Spec for ArgReduce {
    fn name(&self) -> &'static str {
        match self.extreme {
            Extreme::Max => "arg-max",
            Extreme::Min => "arg-min",
        }
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [x] = inputs.exactly()?;
        inputs.all_f32()?;
        let Some(&size) = x.shape.get(self.axis) else {
            return Err(Error::shape(inputs.op, format!("{:?} has no axis {}", x.shape, self.axis)));
        };
        if size == 0 {
            return Err(Error::shape(inputs.op, format!("axis {} of {:?} is empty", self.axis, x.shape)));
        }
        if u32::try_from(size).is_err() {
            return Err(Error::shape(inputs.op, format!("axis {} of {:?} is too long for u32", self.axis, x.shape)));
        }
        let shape = reduced_shape(inputs.op, &x.shape, Axes::new(&[self.axis])?, self.keep)?;
        Ok(smallvec![Meta::new(shape, DType::U32)])
    }

    fn flops(&self, inputs: &[Meta], _: &[Meta]) -> u64 {
        inputs.iter().map(|input| input.shape.elements() as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::device::cpu::Cpu;
    use crate::{Context, Crew, Limits};

    #[test]
    fn equal_extremes_share_the_gradient() {
        let context = Context::new(Arc::new(Cpu::new()), Arc::new(Crew::new(1)), Limits::default());
        let x = context.tensor(&[2, 3], &[1.0_f32, 3.0, 3.0, -1.0, -1.0, -1.0]).unwrap().parameter(None).unwrap();
        x.reduce(Reducer::Max, &[1], false).unwrap().sum().unwrap().backward().unwrap();
        let third = 1.0 / 3.0;
        assert_eq!(x.gradient().unwrap().to_vec::<f32>().unwrap(), [0.0, 0.5, 0.5, third, third, third]);
        x.clear_gradient();
        x.reduce(Reducer::Min, &[0], true).unwrap().sum().unwrap().backward().unwrap();
        assert_eq!(x.gradient().unwrap().to_vec::<f32>().unwrap(), [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
    }
}
