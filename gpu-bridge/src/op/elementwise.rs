//! Element by element: functions of one and of two tensors.

use smallvec::smallvec;

use super::{Inputs, Meta, Outputs, Saves, Spec};
use crate::error::{Error, Result};
use crate::tape::Backward;

/// `x` to `f(x)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unary {
    Neg,
    Exp,
    Log,
    Sqrt,
    /// `1 / sqrt(x)`
    Rsqrt,
    Abs,
    /// -1, 0 or 1; NaN stays NaN.
    Sign,
    Tanh,
    Sigmoid,
    Relu,
    Relu6,
    /// `x` where positive, else `slope * x`.
    Leaky {
        slope: f32,
    },
    /// `x * (1 + erf(x / sqrt 2)) / 2`
    Gelu,
    /// `x * sigmoid(x)`
    Silu,
    /// `x * relu6(x + 3) / 6`
    HardSwish,
    /// `relu6(x + 3) / 6`
    HardSigmoid,
    Clamp {
        low: f32,
        high: f32,
    },
    Pow {
        exponent: f32,
    },
    /// `scale * x + offset`
    Affine {
        scale: f32,
        offset: f32,
    },
    /// Towards zero by `threshold`, and zero within it.
    SoftThreshold {
        threshold: f32,
    },
}

impl Unary {
    /// Whether the gradient can be computed from the output alone, so that the input need not be kept.
    pub fn from_output(self) -> bool {
        match self {
            Self::Neg | Self::Exp | Self::Sqrt | Self::Tanh | Self::Sigmoid | Self::Relu | Self::Relu6 => true,
            Self::Affine { .. } => true,
            Self::Leaky { slope } => slope > 0.0,
            _ => false,
        }
    }
}

impl Spec for Unary {
    fn name(&self) -> &'static str {
        match self {
            Self::Neg => "neg",
            Self::Exp => "exp",
            Self::Log => "log",
            Self::Sqrt => "sqrt",
            Self::Rsqrt => "rsqrt",
            Self::Abs => "abs",
            Self::Sign => "sign",
            Self::Tanh => "tanh",
            Self::Sigmoid => "sigmoid",
            Self::Relu => "relu",
            Self::Relu6 => "relu6",
            Self::Leaky { .. } => "leaky",
            Self::Gelu => "gelu",
            Self::Silu => "silu",
            Self::HardSwish => "hard-swish",
            Self::HardSigmoid => "hard-sigmoid",
            Self::Clamp { .. } => "clamp",
            Self::Pow { .. } => "pow",
            Self::Affine { .. } => "affine",
            Self::SoftThreshold { .. } => "soft-threshold",
        }
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [x] = inputs.exactly()?;
        inputs.all_f32()?;
        match *self {
            Self::Clamp { low, high } if !(low <= high) => {
                return Err(Error::argument(inputs.op, format!("low {low} must be at most high {high}")));
            }
            Self::SoftThreshold { threshold } if !(threshold >= 0.0) => {
                return Err(Error::argument(inputs.op, format!("threshold {threshold} must not be negative")));
            }
            _ => {}
        }
        Ok(smallvec![*x])
    }

    fn flops(&self, _: &[Meta], outputs: &[Meta]) -> u64 {
        let each = match self {
            Self::Neg | Self::Abs | Self::Sign | Self::Relu => 1,
            Self::Relu6 | Self::Leaky { .. } | Self::Clamp { .. } | Self::Affine { .. } => 2,
            Self::HardSwish | Self::HardSigmoid | Self::Sqrt | Self::Rsqrt | Self::SoftThreshold { .. } => 4,
            Self::Exp | Self::Log | Self::Tanh | Self::Sigmoid | Self::Silu => 12,
            Self::Gelu | Self::Pow { .. } => 24,
        };
        each * outputs.iter().map(|output| output.shape.elements() as u64).sum::<u64>()
    }

    fn differentiable(&self) -> bool {
        true
    }

    fn saves(&self, _: u32) -> Saves {
        if self.from_output() { Saves::outputs(1) } else { Saves::inputs(1) }
    }

    fn gradient(&self, backward: &mut Backward<'_>) -> Result<()> {
        let dy = backward.gradient(0)?;
        if self.from_output() {
            let y = backward.output(0)?;
            backward.emit(0, UnaryGradientFromOutput(*self), &[&y, &dy])
        } else {
            let x = backward.input(0)?;
            backward.emit(0, UnaryGradient(*self), &[&x, &dy])
        }
    }
}

/// `x, dy`: the gradient of a [`Unary`] from its input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UnaryGradient(pub Unary);

impl Spec for UnaryGradient {
    fn name(&self) -> &'static str {
        "unary-gradient"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [x, _] = inputs.exactly()?;
        inputs.all_f32()?;
        inputs.same_shape(0, 1)?;
        Ok(smallvec![*x])
    }

    fn flops(&self, inputs: &[Meta], outputs: &[Meta]) -> u64 {
        2 * self.0.flops(inputs, outputs)
    }
}

/// `y, dy`: the gradient of a [`Unary`] from its output, for those that allow it ([`Unary::from_output`]).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UnaryGradientFromOutput(pub Unary);

impl Spec for UnaryGradientFromOutput {
    fn name(&self) -> &'static str {
        "unary-gradient-from-output"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [y, _] = inputs.exactly()?;
        inputs.all_f32()?;
        inputs.same_shape(0, 1)?;
        if !self.0.from_output() {
            return Err(Error::argument(inputs.op, format!("the gradient of `{}` needs its input", self.0.name())));
        }
        Ok(smallvec![*y])
    }
}

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

    fn differentiable(&self) -> bool {
        true
    }

    fn saves(&self, _: u32) -> Saves {
        match self {
            Self::Add | Self::Sub => Saves::NOTHING,
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
                if backward.wants(1) {
                    let negative = backward.run(Unary::Neg, &[&dy])?;
                    backward.pass_reduced(1, &negative)?;
                }
                Ok(())
            }
            Self::Mul => {
                let (a, b) = (backward.input(0)?, backward.input(1)?);
                for (input, other) in [(0, b), (1, a)] {
                    if backward.wants(input) {
                        let product = backward.run(Self::Mul, &[&dy, &other])?;
                        backward.pass_reduced(input, &product)?;
                    }
                }
                Ok(())
            }
            _ => Err(Error::NotDifferentiable { op: self.name(), input: 0 }),
        }
    }
}
