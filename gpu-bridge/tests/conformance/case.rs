//! What is run, and what must come of it.

use weft_gpu::op::{Meta, Op};
use weft_gpu::{DType, Shape};

use crate::array::Array;

pub type Reference = Box<dyn Fn(&[Array]) -> Vec<Array>>;

/// One operation on some inputs.
pub struct Case {
    pub op: Op,
    pub inputs: Vec<Array>,
    /// The results, or for an operation that writes in place what its first inputs are afterwards.
    pub reference: Reference,
    pub tolerance: Tolerance,
    /// The inputs whose gradient is compared with finite differences, through the first result.
    pub gradients: Vec<usize>,
}

/// How far a result may be from the reference: `absolute + relative * |reference|`.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    pub absolute: f64,
    pub relative: f64,
}

/// Bit for bit what the reference says, rounded to the type.
pub const EXACT: Tolerance = Tolerance { absolute: 0.0, relative: 0.0 };

/// One rounding.
pub const ROUNDED: Tolerance = Tolerance { absolute: 0.0, relative: 1.2e-7 };

pub const fn within(absolute: f64, relative: f64) -> Tolerance {
    Tolerance { absolute, relative }
}

impl Case {
    pub fn new(
        op: impl Into<Op>,
        inputs: &[Array],
        tolerance: Tolerance,
        reference: impl Fn(&[Array]) -> Vec<Array> + 'static,
    ) -> Self {
        Self { op: op.into(), inputs: inputs.to_vec(), reference: Box::new(reference), tolerance, gradients: vec![] }
    }

    /// Compares the gradients of these inputs too. The case must be small, and away from kinks.
    pub fn differentiated(mut self, inputs: &[usize]) -> Self {
        self.gradients = inputs.to_vec();
        self
    }
}

/// One operation that must be refused, with an error that names it and says this.
pub struct Refusal {
    pub op: Op,
    pub inputs: Vec<Meta>,
    pub says: &'static str,
}

impl Refusal {
    pub fn new(op: impl Into<Op>, inputs: &[Meta], says: &'static str) -> Self {
        Self { op: op.into(), inputs: inputs.to_vec(), says }
    }
}

pub fn f32(shape: &[usize]) -> Meta {
    of(shape, DType::F32)
}

pub fn of(shape: &[usize], dtype: DType) -> Meta {
    Meta::new(Shape::new(shape).unwrap(), dtype)
}
