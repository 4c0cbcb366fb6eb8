//! Which expression is which function.
//!
//! A GPU's own division and root may be off by a few units of the last place; a software GPU's are those of the machine.

use super::{Attributes, Function};
use crate::op::{Binary, BinaryGradient, Side, Unary};

fn plain(text: &'static str) -> Function {
    with(text, 0.0, 0.0)
}

fn with(text: &'static str, p: f32, q: f32) -> Function {
    Function { text, attributes: Attributes { p, q } }
}

/// Of `a`.
pub(super) fn unary(unary: Unary, software: bool) -> Function {
    match unary {
        Unary::Neg => plain("-a"),
        Unary::Exp => plain("exp_(a)"),
        Unary::Log => plain("log_(a)"),
        Unary::Sqrt if software => plain("sqrt(a)"),
        Unary::Sqrt => plain("sqrt_(a)"),
        Unary::Rsqrt if software => plain("1.0 / sqrt(a)"),
        Unary::Rsqrt => plain("rsqrt_(a)"),
        Unary::Abs => plain("abs(a)"),
        Unary::Sign => plain("sign_(a)"),
        Unary::Tanh => plain("tanh_(a)"),
        Unary::Sigmoid => plain("sigmoid_(a)"),
        Unary::Relu => plain("relu(a)"),
        Unary::Relu6 => plain("relu6(a)"),
        Unary::Leaky { slope } => with("leaky(a, p)", slope, 0.0),
        Unary::Gelu => plain("gelu(a)"),
        Unary::Silu => plain("silu(a)"),
        Unary::HardSwish => plain("hard_swish(a)"),
        Unary::HardSigmoid => plain("hard_sigmoid(a)"),
        Unary::Clamp { low, high } => with("clamp_(a, p, q)", low, high),
        Unary::Pow { exponent: 2.0 } => plain("a * a"),
        Unary::Pow { exponent } => with("pow_(a, p)", exponent, 0.0),
        Unary::Affine { scale, offset } => with("p * a + q", scale, offset),
        Unary::SoftThreshold { threshold } => with("soft_threshold(a, p)", threshold, 0.0),
    }
}

/// From the input `a` and the gradient of the result `b`.
pub(super) fn unary_gradient(unary: Unary, software: bool) -> Function {
    match unary {
        Unary::Neg => plain("-b"),
        Unary::Exp => plain("b * exp_(a)"),
        Unary::Log => plain("b / a"),
        Unary::Sqrt if software => plain("b * 0.5 / sqrt(a)"),
        Unary::Sqrt => plain("b * 0.5 * rsqrt_(a)"),
        Unary::Rsqrt if software => plain("b * -0.5 / sqrt(a) / a"),
        Unary::Rsqrt => plain("b * -0.5 * rsqrt_(a) / a"),
        Unary::Abs => plain("b * sign_(a)"),
        Unary::Sign => plain("0.0"),
        Unary::Tanh => plain("tanh_gradient(tanh_(a), b)"),
        Unary::Sigmoid => plain("sigmoid_gradient(sigmoid_(a), b)"),
        Unary::Relu => plain("relu_gradient(a, b)"),
        Unary::Relu6 => plain("relu6_gradient(a, b)"),
        Unary::Leaky { slope } => with("select(p * b, b, a > 0.0)", slope, 0.0),
        Unary::Gelu => plain("gelu_gradient(a, b)"),
        Unary::Silu => plain("silu_gradient(a, b)"),
        Unary::HardSwish => plain("hard_swish_gradient(a, b)"),
        Unary::HardSigmoid => plain("hard_sigmoid_gradient(a, b)"),
        Unary::Clamp { low, high } => with("clamp_gradient(a, b, p, q)", low, high),
        Unary::Pow { exponent: 2.0 } => plain("b * 2.0 * a"),
        Unary::Pow { exponent } => with("pow_base_gradient(a, p, b)", exponent, 0.0),
        Unary::Affine { scale, .. } => with("p * b", scale, 0.0),
        Unary::SoftThreshold { threshold } => with("soft_threshold_gradient(a, b, p)", threshold, 0.0),
    }
}

/// From the output `a` and its gradient `b`.
pub(super) fn unary_gradient_from_output(unary: Unary, software: bool) -> Function {
    match unary {
        Unary::Exp => plain("b * a"),
        Unary::Sqrt => plain("b * 0.5 / a"),
        Unary::Tanh => plain("tanh_gradient(a, b)"),
        Unary::Sigmoid => plain("sigmoid_gradient(a, b)"),
        // These only ask on which side of a kink it was, or nothing: the output says it as well as the input.
        _ => unary_gradient(unary, software),
    }
}

/// Of `a` and `b`.
pub(super) fn binary(binary: Binary, software: bool) -> Function {
    plain(match binary {
        Binary::Add => "a + b",
        Binary::Sub => "a - b",
        Binary::Mul => "a * b",
        Binary::Div if software => "a / b",
        Binary::Div => "divide_(a, b)",
        Binary::Maximum => "larger(a, b)",
        Binary::Minimum => "smaller(a, b)",
        Binary::Pow => "pow_(a, b)",
    })
}

/// By one of `a` and `b`, from the gradient of the result `c`.
pub(super) fn binary_gradient(op: &BinaryGradient, software: bool) -> Function {
    plain(match (op.of, op.side) {
        (Binary::Add, _) | (Binary::Sub, Side::First) => "c",
        (Binary::Sub, Side::Second) => "-c",
        (Binary::Mul, Side::First) => "c * b",
        (Binary::Mul, Side::Second) => "c * a",
        (Binary::Div, Side::First) if software => "c / b",
        (Binary::Div, Side::First) => "divide_(c, b)",
        (Binary::Div, Side::Second) => "-(c / b) * (a / b)",
        (Binary::Maximum, Side::First) => "larger_gradient(a, b, c)",
        (Binary::Maximum, Side::Second) => "larger_gradient(b, a, c)",
        // The smaller of two is the larger of their negatives.
        (Binary::Minimum, Side::First) => "larger_gradient(-a, -b, c)",
        (Binary::Minimum, Side::Second) => "larger_gradient(-b, -a, c)",
        (Binary::Pow, Side::First) => "pow_base_gradient(a, b, c)",
        (Binary::Pow, Side::Second) => "pow_exponent_gradient(a, b, c)",
    })
}
