//! The same elements elsewhere: views, copies, rows by index.

use smallvec::smallvec;

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
