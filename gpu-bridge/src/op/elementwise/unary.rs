//! Functions of one tensor.

use smallvec::smallvec;

use crate::error::{Error, Result};
use crate::op::{Inputs, Meta, Outputs, Saves, Spec};
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

    /// Refuses attributes that say nothing.
    fn check(self, op: &'static str) -> Result<()> {
        let refuse = |reason: String| Err(Error::argument(op, reason));
        match self {
            Self::Clamp { low, high } if low.is_nan() || high.is_nan() || low > high => {
                refuse(format!("low {low} must be at most high {high}"))
            }
            Self::SoftThreshold { threshold } if threshold.is_nan() || threshold < 0.0 => {
                refuse(format!("threshold {threshold} must not be negative"))
            }
            Self::Leaky { slope } if slope.is_nan() => refuse("the slope is NaN".into()),
            Self::Pow { exponent } if exponent.is_nan() => refuse("the exponent is NaN".into()),
            Self::Affine { scale, offset } if scale.is_nan() || offset.is_nan() => {
                refuse(format!("scale {scale} and offset {offset} must be numbers"))
            }
            _ => Ok(()),
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
        self.check(inputs.op)?;
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

    fn strided(&self) -> bool {
        true
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
        self.0.check(inputs.op)?;
        Ok(smallvec![*x])
    }

    fn flops(&self, inputs: &[Meta], outputs: &[Meta]) -> u64 {
        2 * self.0.flops(inputs, outputs)
    }

    fn strided(&self) -> bool {
        true
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
        self.0.check(inputs.op)?;
        if !self.0.from_output() {
            return Err(Error::argument(inputs.op, format!("the gradient of `{}` needs its input", self.0.name())));
        }
        Ok(smallvec![*y])
    }

    fn flops(&self, _: &[Meta], outputs: &[Meta]) -> u64 {
        3 * outputs.iter().map(|output| output.shape.elements() as u64).sum::<u64>()
    }

    fn strided(&self) -> bool {
        true
    }
}
