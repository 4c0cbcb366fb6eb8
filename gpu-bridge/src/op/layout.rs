//! The same elements elsewhere. Here: views, which move no bytes where the layout allows, and the copy. In the files
//! beside: tensors put together ([`join`]), rows by index ([`rows`]), the largest elements ([`top`]), images of another
//! size ([`resize`]).

use smallvec::smallvec;

mod join;
mod resize;
mod rows;
mod top;

pub use join::{Concat, MAX_CONCAT, Pad};
pub use resize::{Resampling, Resize, ResizeGradient};
pub use rows::{GatherRows, OneHot, ScatterAddRows};
pub use top::{TopK, TopKGradient};

use super::{Inputs, Meta, Outputs, Spec};
use crate::error::{Error, Result};
use crate::shape::{Layout, MAX_RANK, Shape};
use crate::tape::Backward;

/// `x` under other sizes, the elements in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reshape(pub Shape);

impl Spec for Reshape {
    fn name(&self) -> &'static str {
        "reshape"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [x] = inputs.exactly()?;
        if x.shape.elements() != self.0.elements() {
            return Err(Error::mismatch(inputs.op, "the number of elements differs", &x.shape, &self.0));
        }
        Ok(smallvec![Meta::new(self.0, x.dtype)])
    }

    fn flops(&self, _: &[Meta], _: &[Meta]) -> u64 {
        0
    }

    fn view(&self, input: &Layout) -> Option<Layout> {
        input.reshape(&self.0)
    }

    fn differentiable(&self) -> bool {
        true
    }

    fn gradient(&self, backward: &mut Backward<'_>) -> Result<()> {
        let dy = backward.gradient(0)?;
        let shape = backward.input_shape(0);
        backward.emit(0, Self(shape), &[&dy])
    }
}

/// `x` with its axes in another order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permute {
    order: [u8; MAX_RANK],
    rank: u8,
}

impl Permute {
    /// Axis `i` of the result is axis `order[i]` of the input. Refuses what is no permutation.
    pub fn new(order: &[usize]) -> Result<Self> {
        let mut permute = Self { order: [0; MAX_RANK], rank: order.len() as u8 };
        let mut seen = [false; MAX_RANK];
        for (to, &from) in order.iter().enumerate() {
            if order.len() > MAX_RANK || from >= order.len() || seen[from] {
                return Err(Error::argument("permute", format!("{order:?} is not a permutation of the axes")));
            }
            seen[from] = true;
            permute.order[to] = from as u8;
        }
        Ok(permute)
    }

    fn order(&self) -> [usize; MAX_RANK] {
        self.order.map(usize::from)
    }
}

impl Spec for Permute {
    fn name(&self) -> &'static str {
        "permute"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [x] = inputs.exactly()?;
        inputs.ranked(0, self.rank as usize)?;
        let permuted = Layout::contiguous(x.shape).permute(&self.order()[..self.rank as usize]);
        Ok(smallvec![Meta::new(permuted.shape, x.dtype)])
    }

    fn flops(&self, _: &[Meta], _: &[Meta]) -> u64 {
        0
    }

    fn view(&self, input: &Layout) -> Option<Layout> {
        Some(input.permute(&self.order()[..self.rank as usize]))
    }

    fn differentiable(&self) -> bool {
        true
    }

    fn gradient(&self, backward: &mut Backward<'_>) -> Result<()> {
        let dy = backward.gradient(0)?;
        let mut inverse = *self;
        for to in 0..self.rank {
            inverse.order[self.order[to as usize] as usize] = to;
        }
        backward.emit(0, inverse, &[&dy])
    }
}

/// Axes of size 1, and axes that are not there, repeated to fill a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expand(pub Shape);

impl Spec for Expand {
    fn name(&self) -> &'static str {
        "expand"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [x] = inputs.exactly()?;
        if x.shape.broadcast(&self.0) != Some(self.0) {
            return Err(Error::mismatch(inputs.op, "does not expand", &x.shape, &self.0));
        }
        Ok(smallvec![Meta::new(self.0, x.dtype)])
    }

    fn flops(&self, _: &[Meta], _: &[Meta]) -> u64 {
        0
    }

    fn view(&self, input: &Layout) -> Option<Layout> {
        Some(input.expand(&self.0))
    }

    fn differentiable(&self) -> bool {
        true
    }

    fn gradient(&self, backward: &mut Backward<'_>) -> Result<()> {
        let dy = backward.gradient(0)?;
        backward.pass_reduced(0, &dy)
    }
}

/// Per axis, every `steps`-th element from `starts` on, `sizes` of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    pub starts: Shape,
    pub sizes: Shape,
    pub steps: Shape,
}

impl Spec for Slice {
    fn name(&self) -> &'static str {
        "slice"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [x] = inputs.exactly()?;
        let Self { starts, sizes, steps } = self;
        let rank = x.shape.rank();
        if starts.rank() != rank || sizes.rank() != rank || steps.rank() != rank {
            let reason =
                format!("starts {starts:?}, sizes {sizes:?} and steps {steps:?} must have the axes of {:?}", x.shape);
            return Err(Error::argument(inputs.op, reason));
        }
        let inside = |axis: usize| {
            let end = starts[axis].checked_add(spread(sizes[axis], steps[axis])?)?;
            Some(end <= x.shape[axis])
        };
        if let Some(axis) = (0..rank).find(|&axis| steps[axis] == 0 || inside(axis) != Some(true)) {
            let (start, size, step) = (starts[axis], sizes[axis], steps[axis]);
            let reason = format!("{size} from {start} in steps of {step} do not fit axis {axis} of {:?}", x.shape);
            return Err(Error::shape(inputs.op, reason));
        }
        Ok(smallvec![Meta::new(*sizes, x.dtype)])
    }

    fn flops(&self, _: &[Meta], _: &[Meta]) -> u64 {
        0
    }

    fn view(&self, input: &Layout) -> Option<Layout> {
        Some(input.slice(&self.starts, &self.sizes, &self.steps))
    }

    fn differentiable(&self) -> bool {
        true
    }

    fn gradient(&self, backward: &mut Backward<'_>) -> Result<()> {
        let dy = backward.gradient(0)?;
        let shape = backward.input_shape(0);
        let mut after = [0; MAX_RANK];
        for axis in 0..shape.rank() {
            let used = spread(self.sizes[axis], self.steps[axis]).unwrap_or(0);
            after[axis] = shape[axis].saturating_sub(self.starts[axis].saturating_add(used));
        }
        let after = Shape::new(&after[..shape.rank()])?;
        backward.emit(0, Pad { before: self.starts, after, steps: self.steps, value: 0.0 }, &[&dy])
    }
}

/// How many places `size` elements take, `step` apart. Nothing if that overflows.
fn spread(size: usize, step: usize) -> Option<usize> {
    if size == 0 { Some(0) } else { (size - 1).checked_mul(step)?.checked_add(1) }
}

/// `x` in a buffer of its own, row after row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy;

impl Spec for Copy {
    fn name(&self) -> &'static str {
        "copy"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [x] = inputs.exactly()?;
        Ok(smallvec![*x])
    }

    fn flops(&self, _: &[Meta], _: &[Meta]) -> u64 {
        0
    }

    fn strided(&self) -> bool {
        true
    }

    fn differentiable(&self) -> bool {
        true
    }

    fn gradient(&self, backward: &mut Backward<'_>) -> Result<()> {
        let dy = backward.gradient(0)?;
        backward.pass(0, dy)
    }
}
