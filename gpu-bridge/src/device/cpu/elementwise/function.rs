//! The functions of one number and their derivatives.
//!
//! Comparisons are chosen so that NaN stays NaN.

use std::f32::consts::PI;

use crate::device::cpu::math::{exp, normal_share, pow, rsqrt, sigmoid, tanh};

#[inline(always)]
pub(super) fn sign(x: f32) -> f32 {
    if x > 0.0 {
        1.0
    } else if x < 0.0 {
        -1.0
    } else {
        x
    }
}

#[inline(always)]
pub(super) fn clamp(x: f32, low: f32, high: f32) -> f32 {
    let x = if x < low { low } else { x };
    if x > high { high } else { x }
}

#[inline(always)]
pub(super) fn relu(x: f32) -> f32 {
    if x <= 0.0 { 0.0 } else { x }
}

#[inline(always)]
pub(super) fn relu6(x: f32) -> f32 {
    clamp(x, 0.0, 6.0)
}

#[inline(always)]
pub(super) fn gelu(x: f32) -> f32 {
    // Minus infinity would be multiplied by zero.
    let x = if x < -20.0 { -20.0 } else { x };
    x * normal_share(x)
}

#[inline(always)]
pub(super) fn silu(x: f32) -> f32 {
    let x = if x < -200.0 { -200.0 } else { x };
    x * sigmoid(x)
}

#[inline(always)]
pub(super) fn hard_sigmoid(x: f32) -> f32 {
    relu6(x + 3.0) / 6.0
}

#[inline(always)]
pub(super) fn hard_swish(x: f32) -> f32 {
    let x = if x < -3.0 { -3.0 } else { x };
    x * hard_sigmoid(x)
}

#[inline(always)]
pub(super) fn soft_threshold(x: f32, threshold: f32) -> f32 {
    x - clamp(x, -threshold, threshold)
}

/// The derivatives: the gradient from the input and the gradient of the result.
pub(super) mod gradient {
    use super::*;

    #[inline(always)]
    pub(in super::super) fn exp(x: f32, dy: f32) -> f32 {
        dy * super::exp(x)
    }

    #[inline(always)]
    pub(in super::super) fn rsqrt(x: f32, dy: f32) -> f32 {
        dy * -0.5 * super::rsqrt(x) / x
    }

    #[inline(always)]
    pub(in super::super) fn tanh(x: f32, dy: f32) -> f32 {
        tanh_from_output(super::tanh(x), dy)
    }

    #[inline(always)]
    pub(in super::super) fn tanh_from_output(y: f32, dy: f32) -> f32 {
        dy * (1.0 - y * y)
    }

    #[inline(always)]
    pub(in super::super) fn sigmoid(x: f32, dy: f32) -> f32 {
        sigmoid_from_output(super::sigmoid(x), dy)
    }

    #[inline(always)]
    pub(in super::super) fn sigmoid_from_output(y: f32, dy: f32) -> f32 {
        dy * y * (1.0 - y)
    }

    /// From the input or the output: they have the same sign.
    #[inline(always)]
    pub(in super::super) fn relu(x: f32, dy: f32) -> f32 {
        if x <= 0.0 { 0.0 } else { dy }
    }

    /// From the input or the output.
    #[inline(always)]
    pub(in super::super) fn relu6(x: f32, dy: f32) -> f32 {
        if (x <= 0.0) | (x >= 6.0) { 0.0 } else { dy }
    }

    #[inline(always)]
    pub(in super::super) fn gelu(x: f32, dy: f32) -> f32 {
        let x = clamp(x, -20.0, 20.0);
        let density = super::exp(-0.5 * x * x) * (1.0 / (2.0 * PI).sqrt());
        dy * (normal_share(x) + x * density)
    }

    #[inline(always)]
    pub(in super::super) fn silu(x: f32, dy: f32) -> f32 {
        let x = clamp(x, -200.0, 200.0);
        let share = super::sigmoid(x);
        dy * share * (1.0 + x * (1.0 - share))
    }

    #[inline(always)]
    pub(in super::super) fn hard_sigmoid(x: f32, dy: f32) -> f32 {
        if (x <= -3.0) | (x >= 3.0) { 0.0 } else { dy / 6.0 }
    }

    #[inline(always)]
    pub(in super::super) fn hard_swish(x: f32, dy: f32) -> f32 {
        let slope = if x >= 3.0 { 1.0 } else { (2.0 * x + 3.0) / 6.0 };
        if x <= -3.0 { 0.0 } else { dy * slope }
    }

    /// By the base. To the power 0 everything is 1, so nothing changes.
    #[inline(always)]
    pub(in super::super) fn pow_base(x: f32, exponent: f32, dy: f32) -> f32 {
        if exponent == 0.0 { 0.0 } else { dy * exponent * pow(x, exponent - 1.0) }
    }

    /// By the exponent. Where the base is 0 the power is, too, and stays it.
    #[inline(always)]
    pub(in super::super) fn pow_exponent(x: f32, exponent: f32, dy: f32) -> f32 {
        let slope = dy * pow(x, exponent) * crate::device::cpu::math::log(x);
        if (x == 0.0) & (exponent >= 0.0) { 0.0 } else { slope }
    }
}
