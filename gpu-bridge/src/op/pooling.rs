//! Windows to one element: maxima and means of images `[n, c, h, w]`.
//!
//! Sizes are those of PyTorch. A maximum takes the first of equals; a NaN in a window is its maximum.

use smallvec::smallvec;

use super::{Inputs, Meta, Outputs, Saves, Spec};
use crate::error::{Error, Result};
use crate::shape::Shape;
use crate::tape::Backward;

/// The largest height, width, kernel or stride: products of two of them do not overflow.
const LARGEST: usize = 1 << 31;

/// How windows lie on an image: `[vertical, horizontal]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub kernel: [usize; 2],
    pub stride: [usize; 2],
    /// On both sides; at most half the kernel.
    pub padding: [usize; 2],
    /// Whether a last window that does not fit whole counts. It must start inside the image or the padding before it.
    pub ceil: bool,
    /// Whether a mean counts the padding (as zeros). Maxima never do.
    pub count_padding: bool,
}

impl Window {
    /// Windows of this size side by side, without padding.
    pub fn square(kernel: usize) -> Self {
        let both = [kernel, kernel];
        Self { kernel: both, stride: both, padding: [0, 0], ceil: false, count_padding: true }
    }

    /// How many windows lie along an axis of this size; an error for `op` if none does.
    fn count(&self, op: &'static str, axis: usize, size: usize) -> Result<usize> {
        let (kernel, stride, padding) = (self.kernel[axis], self.stride[axis], self.padding[axis]);
        if [kernel, stride].iter().any(|&value| value == 0 || value > LARGEST) {
            return Err(Error::argument(op, format!("kernel {kernel} and stride {stride} must be 1 to {LARGEST}")));
        }
        if padding > kernel / 2 {
            return Err(Error::argument(op, format!("padding {padding} must be at most half the kernel {kernel}")));
        }
        let extra = if self.ceil { stride - 1 } else { 0 };
        let Some(room) = (size + 2 * padding + extra).checked_sub(kernel) else {
            return Err(Error::shape(op, format!("kernel {kernel} does not fit {size} with padding {padding}")));
        };
        let count = room / stride + 1;
        // The last window may begin too late only where it was rounded up.
        Ok(if self.ceil && (count - 1) * stride >= size + padding { count - 1 } else { count })
    }

    fn pooled(&self, op: &'static str, input: &Shape) -> Result<Shape> {
        let [images, channels, height, width] = sizes(op, input)?;
        Shape::new(&[images, channels, self.count(op, 0, height)?, self.count(op, 1, width)?])
    }

    fn infer(&self, inputs: &Inputs<'_>) -> Result<Outputs> {
        let [x] = inputs.exactly()?;
        inputs.all_f32()?;
        Ok(smallvec![Meta::f32(self.pooled(inputs.op, &x.shape)?)])
    }

    /// One for each element of each window.
    fn flops(&self, pooled: &[Meta]) -> u64 {
        elements(pooled).saturating_mul(self.kernel[0].saturating_mul(self.kernel[1]) as u64)
    }
}

/// The four sizes of what is pooled.
fn sizes(op: &'static str, input: &Shape) -> Result<[usize; 4]> {
    let Ok(sizes) = <[usize; 4]>::try_from(&**input) else {
        return Err(Error::shape(op, format!("{input:?} must be [n, c, h, w]")));
    };
    if sizes[2..].iter().any(|&size| size == 0 || size > LARGEST) {
        return Err(Error::shape(op, format!("{input:?}: height and width must be 1 to {LARGEST}")));
    }
    Ok(sizes)
}

/// What is left of an input when its images are pooled to these sizes.
fn adapted(op: &'static str, input: &Shape, height: usize, width: usize) -> Result<Shape> {
    let [images, channels, ..] = sizes(op, input)?;
    if [height, width].iter().any(|&size| size == 0 || size > LARGEST) {
        return Err(Error::argument(op, format!("output of {height} by {width}: must be 1 to {LARGEST}")));
    }
    Shape::new(&[images, channels, height, width])
}

fn infer_adaptive(inputs: &Inputs<'_>, height: usize, width: usize) -> Result<Outputs> {
    let [x] = inputs.exactly()?;
    inputs.all_f32()?;
    Ok(smallvec![Meta::f32(adapted(inputs.op, &x.shape, height, width)?)])
}

/// Refuses a gradient, the input of this index, that cannot have come back for an `input` that was pooled to its size.
fn check_adapted(inputs: &Inputs<'_>, index: usize, input: &Shape) -> Result<()> {
    inputs.all_f32()?;
    inputs.ranked(index, 4)?;
    let pooled = &inputs.metas[index].shape;
    inputs.shaped(index, &adapted(inputs.op, input, pooled[2], pooled[3])?)
}

/// Windows share an image, so each element of it counts about once.
fn flops_adaptive(inputs: &[Meta], outputs: &[Meta]) -> u64 {
    elements(inputs) + elements(outputs)
}

/// The elements of the first of these.
fn elements(metas: &[Meta]) -> u64 {
    metas.first().map_or(0, |meta| meta.shape.elements() as u64)
}

/// `x [n, c, h, w]`: the largest of each window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxPool2d(pub Window);

impl Spec for MaxPool2d {
    fn name(&self) -> &'static str {
        "max-pool2d"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        self.0.infer(&inputs)
    }

    fn flops(&self, _: &[Meta], outputs: &[Meta]) -> u64 {
        self.0.flops(outputs)
    }

    fn differentiable(&self) -> bool {
        true
    }

    fn saves(&self, _: u32) -> Saves {
        Saves::inputs(1)
    }

    fn gradient(&self, backward: &mut Backward<'_>) -> Result<()> {
        let (x, dy) = (backward.input(0)?, backward.gradient(0)?);
        backward.emit(0, MaxPool2dGradient(self.0), &[&x, &dy])
    }
}

/// `x, dy`: the gradient of [`MaxPool2d`]. The first of equal maxima gets it all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxPool2dGradient(pub Window);

impl Spec for MaxPool2dGradient {
    fn name(&self) -> &'static str {
        "max-pool2d-gradient"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [x, _] = inputs.exactly()?;
        inputs.all_f32()?;
        inputs.shaped(1, &self.0.pooled(inputs.op, &x.shape)?)?;
        Ok(smallvec![*x])
    }

    fn flops(&self, inputs: &[Meta], _: &[Meta]) -> u64 {
        self.0.flops(&inputs[1..])
    }
}

/// `x [n, c, h, w]`: the mean of each window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AveragePool2d(pub Window);

impl Spec for AveragePool2d {
    fn name(&self) -> &'static str {
        "average-pool2d"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        self.0.infer(&inputs)
    }

    fn flops(&self, _: &[Meta], outputs: &[Meta]) -> u64 {
        self.0.flops(outputs)
    }

    fn differentiable(&self) -> bool {
        true
    }

    fn gradient(&self, backward: &mut Backward<'_>) -> Result<()> {
        let (input, dy) = (backward.input_shape(0), backward.gradient(0)?);
        backward.emit(0, AveragePool2dGradient { window: self.0, input }, &[&dy])
    }
}

/// `dy`: the gradient of [`AveragePool2d`] for an input of this shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AveragePool2dGradient {
    pub window: Window,
    pub input: Shape,
}

impl Spec for AveragePool2dGradient {
    fn name(&self) -> &'static str {
        "average-pool2d-gradient"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [_] = inputs.exactly()?;
        inputs.all_f32()?;
        inputs.shaped(0, &self.window.pooled(inputs.op, &self.input)?)?;
        Ok(smallvec![Meta::f32(self.input)])
    }

    fn flops(&self, inputs: &[Meta], _: &[Meta]) -> u64 {
        self.window.flops(inputs)
    }
}

/// `x [n, c, h, w]`: the mean of `height` by `width` windows that share the image as evenly as they can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdaptiveAveragePool2d {
    pub height: usize,
    pub width: usize,
}

impl Spec for AdaptiveAveragePool2d {
    fn name(&self) -> &'static str {
        "adaptive-average-pool2d"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        infer_adaptive(&inputs, self.height, self.width)
    }

    fn flops(&self, inputs: &[Meta], outputs: &[Meta]) -> u64 {
        flops_adaptive(inputs, outputs)
    }

    fn differentiable(&self) -> bool {
        true
    }

    fn gradient(&self, backward: &mut Backward<'_>) -> Result<()> {
        let (input, dy) = (backward.input_shape(0), backward.gradient(0)?);
        backward.emit(0, AdaptiveAveragePool2dGradient { input }, &[&dy])
    }
}

/// `dy`: the gradient of [`AdaptiveAveragePool2d`] for an input of this shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdaptiveAveragePool2dGradient {
    pub input: Shape,
}

impl Spec for AdaptiveAveragePool2dGradient {
    fn name(&self) -> &'static str {
        "adaptive-average-pool2d-gradient"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [_] = inputs.exactly()?;
        check_adapted(&inputs, 0, &self.input)?;
        Ok(smallvec![Meta::f32(self.input)])
    }

    fn flops(&self, inputs: &[Meta], outputs: &[Meta]) -> u64 {
        flops_adaptive(inputs, outputs)
    }
}

/// `x [n, c, h, w]`: the largest of `height` by `width` windows that share the image as evenly as they can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdaptiveMaxPool2d {
    pub height: usize,
    pub width: usize,
}

impl Spec for AdaptiveMaxPool2d {
    fn name(&self) -> &'static str {
        "adaptive-max-pool2d"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        infer_adaptive(&inputs, self.height, self.width)
    }

    fn flops(&self, inputs: &[Meta], outputs: &[Meta]) -> u64 {
        flops_adaptive(inputs, outputs)
    }

    fn differentiable(&self) -> bool {
        true
    }

    fn saves(&self, _: u32) -> Saves {
        Saves::inputs(1)
    }

    fn gradient(&self, backward: &mut Backward<'_>) -> Result<()> {
        let (x, dy) = (backward.input(0)?, backward.gradient(0)?);
        backward.emit(0, AdaptiveMaxPool2dGradient, &[&x, &dy])
    }
}

/// `x, dy`: the gradient of [`AdaptiveMaxPool2d`]; the sizes are those of `dy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdaptiveMaxPool2dGradient;

impl Spec for AdaptiveMaxPool2dGradient {
    fn name(&self) -> &'static str {
        "adaptive-max-pool2d-gradient"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [x, _] = inputs.exactly()?;
        check_adapted(&inputs, 1, &x.shape)?;
        Ok(smallvec![*x])
    }

    fn flops(&self, inputs: &[Meta], outputs: &[Meta]) -> u64 {
        flops_adaptive(inputs, outputs)
    }
}
