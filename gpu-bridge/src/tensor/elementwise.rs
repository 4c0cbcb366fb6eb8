//! Element by element.

use super::Tensor;
use crate::dtype::DType;
use crate::error::Result;
use crate::op::{Binary, Cast, Compare, Comparison, Select, Unary};

impl Tensor {
    pub fn unary(&self, op: Unary) -> Result<Self> {
        self.context.run_one(op, &[self])
    }

    /// Both are broadcast to one shape.
    pub fn binary(&self, op: Binary, other: &Self) -> Result<Self> {
        self.context.run_one(op, &[self, other])
    }

    pub fn add(&self, other: &Self) -> Result<Self> {
        self.binary(Binary::Add, other)
    }

    pub fn sub(&self, other: &Self) -> Result<Self> {
        self.binary(Binary::Sub, other)
    }

    pub fn mul(&self, other: &Self) -> Result<Self> {
        self.binary(Binary::Mul, other)
    }

    pub fn div(&self, other: &Self) -> Result<Self> {
        self.binary(Binary::Div, other)
    }

    /// The larger; NaN if either is.
    pub fn maximum(&self, other: &Self) -> Result<Self> {
        self.binary(Binary::Maximum, other)
    }

    /// The smaller; NaN if either is.
    pub fn minimum(&self, other: &Self) -> Result<Self> {
        self.binary(Binary::Minimum, other)
    }

    /// Each to the power of the other's element.
    pub fn pow(&self, other: &Self) -> Result<Self> {
        self.binary(Binary::Pow, other)
    }

    /// `-x`
    pub fn neg(&self) -> Result<Self> {
        self.unary(Unary::Neg)
    }

    /// `e^x`
    pub fn exp(&self) -> Result<Self> {
        self.unary(Unary::Exp)
    }

    /// The natural logarithm.
    pub fn log(&self) -> Result<Self> {
        self.unary(Unary::Log)
    }

    pub fn sqrt(&self) -> Result<Self> {
        self.unary(Unary::Sqrt)
    }

    /// `1 / sqrt(x)`
    pub fn rsqrt(&self) -> Result<Self> {
        self.unary(Unary::Rsqrt)
    }

    pub fn abs(&self) -> Result<Self> {
        self.unary(Unary::Abs)
    }

    /// -1, 0 or 1; NaN stays NaN.
    pub fn sign(&self) -> Result<Self> {
        self.unary(Unary::Sign)
    }

    pub fn tanh(&self) -> Result<Self> {
        self.unary(Unary::Tanh)
    }

    /// `1 / (1 + e^-x)`
    pub fn sigmoid(&self) -> Result<Self> {
        self.unary(Unary::Sigmoid)
    }

    /// `x` where positive, else 0.
    pub fn relu(&self) -> Result<Self> {
        self.unary(Unary::Relu)
    }

    /// `x` between 0 and 6, and what is outside moved to the nearest of them.
    pub fn relu6(&self) -> Result<Self> {
        self.unary(Unary::Relu6)
    }

    /// `x * (1 + erf(x / sqrt 2)) / 2`
    pub fn gelu(&self) -> Result<Self> {
        self.unary(Unary::Gelu)
    }

    /// `x * sigmoid(x)`
    pub fn silu(&self) -> Result<Self> {
        self.unary(Unary::Silu)
    }

    /// `x * relu6(x + 3) / 6`
    pub fn hard_swish(&self) -> Result<Self> {
        self.unary(Unary::HardSwish)
    }

    /// `relu6(x + 3) / 6`
    pub fn hard_sigmoid(&self) -> Result<Self> {
        self.unary(Unary::HardSigmoid)
    }

    /// `x` where positive, else `slope * x`.
    pub fn leaky(&self, slope: f32) -> Result<Self> {
        self.unary(Unary::Leaky { slope })
    }

    pub fn clamp(&self, low: f32, high: f32) -> Result<Self> {
        self.unary(Unary::Clamp { low, high })
    }

    /// Each to the power of one number.
    pub fn powf(&self, exponent: f32) -> Result<Self> {
        self.unary(Unary::Pow { exponent })
    }

    /// `scale * x + offset`
    pub fn affine(&self, scale: f32, offset: f32) -> Result<Self> {
        self.unary(Unary::Affine { scale, offset })
    }

    /// Towards zero by `threshold`, and zero within it.
    pub fn soft_threshold(&self, threshold: f32) -> Result<Self> {
        self.unary(Unary::SoftThreshold { threshold })
    }

    /// 1 where it holds, else 0 (u8). Both are of one type and broadcast to one shape.
    pub fn compare(&self, comparison: Comparison, other: &Self) -> Result<Self> {
        self.context.run_one(Compare(comparison), &[self, other])
    }

    /// This tensor (u8) chooses: `a` where it is not 0, else `b`.
    pub fn select(&self, a: &Self, b: &Self) -> Result<Self> {
        self.context.run_one(Select, &[self, a, b])
    }

    /// As another type; see [`Cast`].
    pub fn cast(&self, dtype: DType) -> Result<Self> {
        self.context.run_one(Cast(dtype), &[self])
    }
}
