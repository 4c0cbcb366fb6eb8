//! Element by element. Two shapes broadcast as in numpy.

use super::{BinaryOp, Comparison, Tensor, TensorType, UnaryOp};
use crate::Result;
use crate::host::kernels;

/// Methods for the cases of [`UnaryOp`].
macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident => $op:ident,)+) => {
        impl Tensor {
            $($(#[$doc])*
            pub fn $name(&self) -> Result<Self> {
                self.unary(UnaryOp::$op)
            })+
        }
    };
}

/// Methods for the cases of [`BinaryOp`].
macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident => $op:ident,)+) => {
        impl Tensor {
            $($(#[$doc])*
            pub fn $name(&self, other: &Self) -> Result<Self> {
                self.binary(BinaryOp::$op, other)
            })+
        }
    };
}

/// Methods for the cases of [`Comparison`].
macro_rules! compare {
    ($($(#[$doc:meta])* $name:ident => $op:ident,)+) => {
        impl Tensor {
            $($(#[$doc])*
            pub fn $name(&self, other: &Self) -> Result<Self> {
                self.compare(Comparison::$op, other)
            })+
        }
    };
}

unary! {
    /// `-x`
    neg => Neg,
    /// `e^x`
    exp => Exp,
    /// The natural logarithm.
    log => Log,
    sqrt => Sqrt,
    /// `1 / sqrt(x)`
    rsqrt => Rsqrt,
    abs => Abs,
    /// -1, 0 or 1.
    sign => Sign,
    tanh => Tanh,
    /// `1 / (1 + e^-x)`
    sigmoid => Sigmoid,
    /// `x` where positive, else 0.
    relu => Relu,
    /// `x` moved to the nearest number from 0 to 6.
    relu6 => Relu6,
    /// `x * (1 + erf(x / sqrt 2)) / 2`
    gelu => Gelu,
    /// `x * sigmoid(x)`
    silu => Silu,
    /// `x * relu6(x + 3) / 6`
    hard_swish => HardSwish,
    /// `relu6(x + 3) / 6`
    hard_sigmoid => HardSigmoid,
}

binary! {
    add => Add,
    sub => Sub,
    mul => Mul,
    div => Div,
    /// The larger.
    maximum => Maximum,
    /// The smaller.
    minimum => Minimum,
    /// Each to the power of the other's element.
    pow => Pow,
}

compare! {
    /// 1 (u8) where they are equal, 0 elsewhere; so for those that follow.
    equal => Equal,
    not_equal => NotEqual,
    less => Less,
    less_or_equal => LessOrEqual,
    greater => Greater,
    greater_or_equal => GreaterOrEqual,
}

impl Tensor {
    pub fn unary(&self, op: UnaryOp) -> Result<Self> {
        kernels::unary(op, self.raw()).map(Self::from)
    }

    pub fn binary(&self, op: BinaryOp, other: &Self) -> Result<Self> {
        kernels::binary(op, self.raw(), other.raw()).map(Self::from)
    }

    /// 1 (u8) where it holds, 0 elsewhere. Both are of one type.
    pub fn compare(&self, op: Comparison, other: &Self) -> Result<Self> {
        kernels::compare(op, self.raw(), other.raw()).map(Self::from)
    }

    /// This tensor (u8) chooses: `a` where it is not 0, else `b`.
    pub fn select(&self, a: &Self, b: &Self) -> Result<Self> {
        kernels::select(self.raw(), a.raw(), b.raw()).map(Self::from)
    }

    /// As another type.
    pub fn cast(&self, ty: TensorType) -> Result<Self> {
        kernels::cast(self.raw(), ty).map(Self::from)
    }

    /// `scale * x + offset`
    pub fn affine(&self, scale: f32, offset: f32) -> Result<Self> {
        kernels::affine(self.raw(), scale, offset).map(Self::from)
    }

    /// Moved to the nearest number from `low` to `high`.
    pub fn clamp(&self, low: f32, high: f32) -> Result<Self> {
        kernels::clamp(self.raw(), low, high).map(Self::from)
    }

    /// `x` where positive, else `slope * x`.
    pub fn leaky_relu(&self, slope: f32) -> Result<Self> {
        kernels::leaky_relu(self.raw(), slope).map(Self::from)
    }

    /// Each to the power of one number.
    pub fn powf(&self, exponent: f32) -> Result<Self> {
        kernels::power(self.raw(), exponent).map(Self::from)
    }

    /// Towards zero by the threshold, and no further.
    pub fn soft_threshold(&self, threshold: f32) -> Result<Self> {
        kernels::soft_threshold(self.raw(), threshold).map(Self::from)
    }
}
