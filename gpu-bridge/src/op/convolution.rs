//! Convolution in two dimensions and its two gradients.

use smallvec::smallvec;

use super::{Inputs, Meta, Outputs, Reduce, Reducer, Saves, Spec};
use crate::error::{Error, Result};
use crate::shape::{Axes, Shape};
use crate::tape::Backward;

/// The largest stride, padding or dilation: a product of one with a size does not overflow.
const LARGEST: usize = 1 << 31;

/// `x [n, c, h, w], weight [o, c / groups, kh, kw], bias [o] (optional)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conv2d {
    /// Down and across, as are all pairs here.
    pub stride: [usize; 2],
    /// Zeros on each side.
    pub padding: [usize; 2],
    pub dilation: [usize; 2],
    /// Each group of output channels sees its own group of input channels only.
    pub groups: usize,
}

impl Default for Conv2d {
    fn default() -> Self {
        Self { stride: [1, 1], padding: [0, 0], dilation: [1, 1], groups: 1 }
    }
}

impl Conv2d {
    /// Zeros on each side.
    pub fn padded(padding: usize) -> Self {
        Self { padding: [padding; 2], ..Self::default() }
    }

    pub fn strided(stride: usize, padding: usize) -> Self {
        Self { stride: [stride; 2], padding: [padding; 2], ..Self::default() }
    }

    /// The shape of the result, for an input and a weight of four axes each.
    fn output(&self, op: &'static str, x: &Shape, weight: &Shape) -> Result<Shape> {
        let [stride, padding, dilation] = [self.stride, self.padding, self.dilation];
        let attributes = stride.into_iter().chain(dilation).chain([self.groups]);
        if attributes.into_iter().any(|size| size == 0) {
            return Err(Error::argument(
                op,
                format!("strides {stride:?}, dilations {dilation:?} and groups {} must be at least 1", self.groups),
            ));
        }
        if [stride, padding, dilation].as_flattened().iter().any(|&size| size > LARGEST) {
            return Err(Error::argument(
                op,
                format!(
                    "strides {stride:?}, paddings {padding:?} and dilations {dilation:?} must be at most {LARGEST}"
                ),
            ));
        }
        let (Ok(&[n, c, h, w]), Ok(&[o, per_group, kh, kw])) =
            (<&[usize; 4]>::try_from(&**x), <&[usize; 4]>::try_from(&**weight))
        else {
            return Err(Error::mismatch(op, "both must have 4 axes", x, weight));
        };
        if c != per_group.saturating_mul(self.groups) || o % self.groups != 0 {
            return Err(Error::mismatch(op, &format!("channels do not fit {} groups", self.groups), x, weight));
        }
        let size = |input: usize, kernel: usize, axis: usize| -> Option<usize> {
            let reach = kernel.checked_sub(1)?.checked_mul(dilation[axis])?.checked_add(1)?;
            let padded = padding[axis].checked_mul(2)?.checked_add(input)?;
            Some(padded.checked_sub(reach)? / stride[axis] + 1)
        };
        match (size(h, kh, 0), size(w, kw, 1)) {
            (Some(height), Some(width)) => Shape::new(&[n, o, height, width]),
            _ => Err(Error::mismatch(op, "the kernel does not fit into the padded input", x, weight)),
        }
    }
}

impl Spec for Conv2d {
    fn name(&self) -> &'static str {
        "conv2d"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let (&[x, weight] | &[x, weight, _]) = inputs.metas else {
            return Err(inputs.wrong_count("2 or 3"));
        };
        inputs.all_f32()?;
        let y = self.output(inputs.op, &x.shape, &weight.shape)?;
        inputs.shaped(2, &weight.shape[..1])?;
        Ok(smallvec![Meta::f32(y)])
    }

    fn flops(&self, inputs: &[Meta], outputs: &[Meta]) -> u64 {
        product(outputs.first(), inputs.get(1))
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
            let weight = backward.input(1)?;
            let input = backward.input_shape(0);
            backward.emit(0, Conv2dGradientInput { conv: *self, input }, &[&dy, &weight])?;
        }
        if backward.wants(1) {
            let x = backward.input(0)?;
            let weight = backward.input_shape(1);
            backward.emit(1, Conv2dGradientWeight { conv: *self, weight }, &[&x, &dy])?;
        }
        if backward.inputs() > 2 && backward.wants(2) {
            backward.emit(2, Reduce { reducer: Reducer::Sum, axes: Axes::new(&[0, 2, 3])?, keep: false }, &[&dy])?;
        }
        Ok(())
    }
}

/// `dy, weight`: the gradient of the input of a [`Conv2d`], which has this shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conv2dGradientInput {
    pub conv: Conv2d,
    pub input: Shape,
}

impl Spec for Conv2dGradientInput {
    fn name(&self) -> &'static str {
        "conv2d-gradient-input"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [_, weight] = inputs.exactly()?;
        inputs.all_f32()?;
        inputs.shaped(0, &self.conv.output(inputs.op, &self.input, &weight.shape)?)?;
        Ok(smallvec![Meta::f32(self.input)])
    }

    fn flops(&self, inputs: &[Meta], _: &[Meta]) -> u64 {
        product(inputs.first(), inputs.get(1))
    }
}

/// `x, dy`: the gradient of the weight of a [`Conv2d`], which has this shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conv2dGradientWeight {
    pub conv: Conv2d,
    pub weight: Shape,
}

impl Spec for Conv2dGradientWeight {
    fn name(&self) -> &'static str {
        "conv2d-gradient-weight"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [x, _] = inputs.exactly()?;
        inputs.all_f32()?;
        inputs.shaped(1, &self.conv.output(inputs.op, &x.shape, &self.weight)?)?;
        Ok(smallvec![Meta::f32(self.weight)])
    }

    fn flops(&self, inputs: &[Meta], _: &[Meta]) -> u64 {
        product(inputs.get(1), Some(&Meta::f32(self.weight)))
    }
}

/// A multiply-add for every element of the result and of the kernel that it sees.
fn product(y: Option<&Meta>, weight: Option<&Meta>) -> u64 {
    let (Some(y), Some(weight)) = (y, weight) else { return 0 };
    let kernel: usize = weight.shape.iter().skip(1).product();
    (2 * y.shape.elements() as u64).saturating_mul(kernel as u64)
}
