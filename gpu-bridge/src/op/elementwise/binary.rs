//! Functions of two tensors, broadcast to one shape.

use smallvec::smallvec;

use crate::error::{Error, Result};
use crate::op::{Inputs, Meta, Outputs, Saves, Spec, Unary};
use crate::tape::Backward;

/// `a, b`, broadcast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    /// The larger; NaN if either is.
    Maximum,
    /// The smaller; NaN if either is.
    Minimum,
    /// `a` to the power `b`. A negative number has integer powers only: the others are NaN.
    Pow,
}

impl Spec for Binary {
    fn name(&self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Sub => "sub",
            Self::Mul => "mul",
            Self::Div => "div",
            Self::Maximum => "maximum",
            Self::Minimum => "minimum",
            Self::Pow => "pow",
        }
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [_, _] = inputs.exactly()?;
        inputs.all_f32()?;
        Ok(smallvec![Meta::f32(inputs.broadcast()?)])
    }

    fn flops(&self, _: &[Meta], outputs: &[Meta]) -> u64 {
        let each = if *self == Self::Pow { 24 } else { 1 };
        each * outputs.iter().map(|output| output.shape.elements() as u64).sum::<u64>()
    }

    fn strided(&self) -> bool {
        true
    }

    fn differentiable(&self) -> bool {
        true
    }

    fn saves(&self, wanted: u32) -> Saves {
        match self {
            Self::Add | Self::Sub => Saves::NOTHING,
            // The gradient of each factor needs the other one.
            Self::Mul => Saves::inputs(((wanted & 1) << 1) | ((wanted >> 1) & 1)),
            Self::Div if wanted & 0b10 == 0 => Saves::inputs(0b10),
            _ => Saves::inputs(0b11),
        }
    }

    fn gradient(&self, backward: &mut Backward<'_>) -> Result<()> {
        let dy = backward.gradient(0)?;
        match self {
            Self::Add => {
                backward.pass_reduced(0, &dy)?;
                backward.pass_reduced(1, &dy)
            }
            Self::Sub => {
                backward.pass_reduced(0, &dy)?;
                backward.emit_reduced(1, Unary::Neg, &[&dy])
            }
            Self::Mul => {
                for (input, other) in [(0, 1), (1, 0)] {
                    if backward.wants(input) {
                        let other = backward.input(other)?;
                        backward.emit_reduced(input, Self::Mul, &[&dy, &other])?;
                    }
                }
                Ok(())
            }
            Self::Div if !backward.wants(1) => {
                let b = backward.input(1)?;
                backward.emit_reduced(0, Self::Div, &[&dy, &b])
            }
            Self::Div | Self::Maximum | Self::Minimum | Self::Pow => {
                let (a, b) = (backward.input(0)?, backward.input(1)?);
                for side in [Side::First, Side::Second] {
                    let op = BinaryGradient { of: *self, side };
                    backward.emit_reduced(side as usize, op, &[&a, &b, &dy])?;
                }
                Ok(())
            }
        }
    }
}

/// Which of two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    First,
    Second,
}

/// `a, b, dy`, broadcast: the gradient of a [`Binary`] by one operand, before it is summed to that operand's shape.
/// Where two are equal, each has half of the gradient of their maximum or minimum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BinaryGradient {
    pub of: Binary,
    pub side: Side,
}

impl Spec for BinaryGradient {
    fn name(&self) -> &'static str {
        "binary-gradient"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [a, b, dy] = inputs.exactly()?;
        inputs.all_f32()?;
        let shape = Inputs { op: inputs.op, metas: &[*a, *b] }.broadcast()?;
        if dy.shape != shape {
            return Err(Error::mismatch(inputs.op, "the gradient is not of the result's shape", &dy.shape, &shape));
        }
        Ok(smallvec![*dy])
    }

    fn flops(&self, inputs: &[Meta], outputs: &[Meta]) -> u64 {
        2 * self.of.flops(inputs, outputs)
    }

    fn strided(&self) -> bool {
        true
    }
}

/// How two numbers are compared. NaN is not equal to anything, and neither above nor below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// `a, b` of one type, broadcast; gives `u8`, 0 or 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compare(pub Comparison);

impl Spec for Compare {
    fn name(&self) -> &'static str {
        match self.0 {
            Comparison::Eq => "equal",
            Comparison::Ne => "not-equal",
            Comparison::Lt => "less",
            Comparison::Le => "less-or-equal",
            Comparison::Gt => "greater",
            Comparison::Ge => "greater-or-equal",
        }
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [a, _] = inputs.exactly()?;
        inputs.typed(1, a.dtype)?;
        Ok(smallvec![Meta::new(inputs.broadcast()?, crate::DType::U8)])
    }

    fn strided(&self) -> bool {
        true
    }
}
