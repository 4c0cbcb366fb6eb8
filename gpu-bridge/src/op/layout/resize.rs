//! Images of another size.
//!
//! Where the pixels of the result lie in the input is defined in integers, so that it is the same on every device. Along
//! an axis of `from` pixels that becomes `to` pixels, pixel `i` of the result is:
//! - nearest: pixel `i * from / to`, rounded down;
//! - bilinear: with `p = max(0, (2 i + 1) * from - to)` and `q = 2 * to`, between pixel `l = p / q` (rounded down) and
//!   the next, `min(l + 1, from - 1)`, of which the latter weighs `(p mod q) / q`. A weight of 0 leaves it out, whatever
//!   it holds. Both axes in turn.
//!
//! These are PyTorch's `interpolate` with `align_corners=False` and no antialiasing.

use smallvec::smallvec;

use super::super::{Inputs, Meta, Outputs, Spec};
use crate::error::{Error, Result};
use crate::shape::Shape;
use crate::tape::Backward;

/// The longest side of an image: its square and a little more fit 64 bits.
const MAX_SIDE: usize = i32::MAX as usize;

/// What becomes of pixels that lie between others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resampling {
    Nearest,
    Bilinear,
}

impl Resampling {
    fn flops(self, pixels: u64) -> u64 {
        match self {
            Self::Nearest => 0,
            Self::Bilinear => 8 * pixels,
        }
    }
}

/// `x [n, c, h, w]` to `[n, c, height, width]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resize {
    pub mode: Resampling,
    pub height: usize,
    pub width: usize,
}

/// Planes of images under another size, both sizes checked.
fn resized(inputs: Inputs<'_>, height: usize, width: usize) -> Result<Outputs> {
    let [x] = inputs.exactly()?;
    inputs.all_f32()?;
    inputs.ranked(0, 4)?;
    if [x.shape[2], x.shape[3], height, width].iter().any(|side| !(1..=MAX_SIDE).contains(side)) {
        let reason = format!("images of {:?} to {height} x {width}: a side is 1 to {MAX_SIDE}", x.shape);
        return Err(Error::argument(inputs.op, reason));
    }
    Ok(smallvec![Meta::f32(Shape::new(&[x.shape[0], x.shape[1], height, width])?)])
}

impl Spec for Resize {
    fn name(&self) -> &'static str {
        "resize"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        resized(inputs, self.height, self.width)
    }

    fn flops(&self, _: &[Meta], outputs: &[Meta]) -> u64 {
        outputs.iter().map(|y| self.mode.flops(y.shape.elements() as u64)).sum()
    }

    fn differentiable(&self) -> bool {
        true
    }

    fn gradient(&self, backward: &mut Backward<'_>) -> Result<()> {
        let dy = backward.gradient(0)?;
        let shape = backward.input_shape(0);
        backward.emit(0, ResizeGradient { mode: self.mode, height: shape[2], width: shape[3] }, &[&dy])
    }
}

/// `dy`: the gradient of [`Resize`] for an input of this height and width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResizeGradient {
    pub mode: Resampling,
    pub height: usize,
    pub width: usize,
}

impl Spec for ResizeGradient {
    fn name(&self) -> &'static str {
        "resize-gradient"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        resized(inputs, self.height, self.width)
    }

    fn flops(&self, inputs: &[Meta], _: &[Meta]) -> u64 {
        inputs.iter().map(|dy| self.mode.flops(dy.shape.elements() as u64)).sum()
    }
}
