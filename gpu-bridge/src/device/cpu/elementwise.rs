//! Element by element: which function is applied for which operation.

use half::f16;

use super::math;
use super::memory::{Input, Output};
use super::simd::vectorized;
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::op::{Binary, BinaryGradient, Comparison, Side, Spec, Unary};
use crate::run::Run;

mod function;
mod map;
mod number;
mod stream;
mod walk;

use function::gradient;
use map::Work::{self, Heavy, Light};
pub(super) use map::gather;
use map::{map, map2, map3};
use number::Number;

/// Applies a function to every element, as a closure that becomes part of the loop whatever its size: see [`map`].
macro_rules! each {
    ($map:ident, $work:ident, $x:expr, $y:expr, $run:expr, |$($argument:tt: $type:ty),+| $body:expr) => {
        $map($work, $x, $y, $run, #[inline(always)] move |$($argument: $type),+| $body)
    };
}

/// What is done with the function of a unary operation.
trait Apply {
    type Result;

    fn apply(self, work: Work, function: impl Fn(f32) -> f32 + Copy + Sync) -> Self::Result;
}

/// The functions of the unary operations, each as a closure that becomes part of the loop it is given to.
#[inline(always)]
fn with_function<A: Apply>(unary: Unary, with: A) -> A::Result {
    macro_rules! apply {
        ($work:ident, |$x:ident| $body:expr) => {
            with.apply(
                $work,
                #[inline(always)]
                move |$x: f32| $body,
            )
        };
    }

    match unary {
        Unary::Neg => apply!(Light, |x| -x),
        Unary::Exp => apply!(Heavy, |x| math::exp(x)),
        Unary::Log => apply!(Heavy, |x| math::log(x)),
        Unary::Sqrt => apply!(Light, |x| f32::sqrt(x)),
        Unary::Rsqrt => apply!(Light, |x| math::rsqrt(x)),
        Unary::Abs => apply!(Light, |x| f32::abs(x)),
        Unary::Sign => apply!(Light, |x| function::sign(x)),
        Unary::Tanh => apply!(Heavy, |x| math::tanh(x)),
        Unary::Sigmoid => apply!(Heavy, |x| math::sigmoid(x)),
        Unary::Relu => apply!(Light, |x| function::relu(x)),
        Unary::Relu6 => apply!(Light, |x| function::relu6(x)),
        Unary::Leaky { slope } => apply!(Light, |x| if x > 0.0 { x } else { slope * x }),
        Unary::Gelu => apply!(Heavy, |x| function::gelu(x)),
        Unary::Silu => apply!(Heavy, |x| function::silu(x)),
        Unary::HardSwish => apply!(Light, |x| function::hard_swish(x)),
        Unary::HardSigmoid => apply!(Light, |x| function::hard_sigmoid(x)),
        Unary::Clamp { low, high } => apply!(Light, |x| function::clamp(x, low, high)),
        Unary::Pow { exponent: 2.0 } => apply!(Light, |x| x * x),
        Unary::Pow { exponent } => apply!(Heavy, |x| math::pow(x, exponent)),
        Unary::Affine { scale, offset } => apply!(Light, |x| scale * x + offset),
        Unary::SoftThreshold { threshold } => {
            apply!(Light, |x| function::soft_threshold(x, threshold))
        }
    }
}

/// To a tensor, giving another.
struct ToTensor<'a, 'x, 'y> {
    x: &'a Input<'x>,
    y: &'a mut Output<'y>,
    run: &'a Run<'a>,
}

impl Apply for ToTensor<'_, '_, '_> {
    type Result = Result<()>;

    fn apply(self, work: Work, function: impl Fn(f32) -> f32 + Copy + Sync) -> Result<()> {
        map(work, [self.x], self.y, self.run, function)
    }
}

/// Where the values lie.
struct InPlace<'a>(&'a mut [f32]);

impl Apply for InPlace<'_> {
    type Result = ();

    #[inline(always)]
    fn apply(self, _: Work, function: impl Fn(f32) -> f32 + Copy + Sync) {
        vectorized(
            #[inline(always)]
            move || self.0.iter_mut().for_each(|x| *x = function(*x)),
        );
    }
}

pub(super) fn unary(unary: Unary, inputs: &[Input<'_>], outputs: &mut [Output<'_>], run: &Run<'_>) -> Result<()> {
    with_function(unary, ToTensor { x: &inputs[0], y: &mut outputs[0], run })
}

/// Applies an activation where the values lie.
pub(super) fn activate(unary: Unary, values: &mut [f32]) {
    with_function(unary, InPlace(values));
}

pub(super) fn unary_gradient(
    unary: Unary,
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
) -> Result<()> {
    let (x, dx) = ([&inputs[0], &inputs[1]], &mut outputs[0]);
    match unary {
        Unary::Neg => each!(map2, Light, x, dx, run, |_: f32, dy: f32| -dy),
        Unary::Exp => each!(map2, Heavy, x, dx, run, |x: f32, dy: f32| gradient::exp(x, dy)),
        Unary::Log => each!(map2, Light, x, dx, run, |x: f32, dy: f32| dy / x),
        Unary::Sqrt => each!(map2, Light, x, dx, run, |x: f32, dy: f32| dy * 0.5 / x.sqrt()),
        Unary::Rsqrt => each!(map2, Light, x, dx, run, |x: f32, dy: f32| gradient::rsqrt(x, dy)),
        Unary::Abs => each!(map2, Light, x, dx, run, |x: f32, dy: f32| dy * function::sign(x)),
        Unary::Sign => each!(map2, Light, x, dx, run, |_: f32, _: f32| 0.0_f32),
        Unary::Tanh => each!(map2, Heavy, x, dx, run, |x: f32, dy: f32| gradient::tanh(x, dy)),
        Unary::Sigmoid => each!(map2, Heavy, x, dx, run, |x: f32, dy: f32| gradient::sigmoid(x, dy)),
        Unary::Relu => each!(map2, Light, x, dx, run, |x: f32, dy: f32| gradient::relu(x, dy)),
        Unary::Relu6 => each!(map2, Light, x, dx, run, |x: f32, dy: f32| gradient::relu6(x, dy)),
        Unary::Leaky { slope } => {
            each!(map2, Light, x, dx, run, |x: f32, dy: f32| if x > 0.0 { dy } else { slope * dy })
        }
        Unary::Gelu => each!(map2, Heavy, x, dx, run, |x: f32, dy: f32| gradient::gelu(x, dy)),
        Unary::Silu => each!(map2, Heavy, x, dx, run, |x: f32, dy: f32| gradient::silu(x, dy)),
        Unary::HardSwish => each!(map2, Light, x, dx, run, |x: f32, dy: f32| gradient::hard_swish(x, dy)),
        Unary::HardSigmoid => each!(map2, Light, x, dx, run, |x: f32, dy: f32| gradient::hard_sigmoid(x, dy)),
        Unary::Clamp { low, high } => {
            each!(map2, Light, x, dx, run, |x: f32, dy: f32| if (x < low) | (x > high) { 0.0 } else { dy })
        }
        Unary::Pow { exponent: 2.0 } => each!(map2, Light, x, dx, run, |x: f32, dy: f32| dy * 2.0 * x),
        Unary::Pow { exponent } => {
            each!(map2, Heavy, x, dx, run, |x: f32, dy: f32| gradient::pow_base(x, exponent, dy))
        }
        Unary::Affine { scale, .. } => each!(map2, Light, x, dx, run, |_: f32, dy: f32| scale * dy),
        Unary::SoftThreshold { threshold } => {
            each!(map2, Light, x, dx, run, |x: f32, dy: f32| if x.abs() <= threshold { 0.0 } else { dy })
        }
    }
}

pub(super) fn unary_gradient_from_output(
    unary: Unary,
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
) -> Result<()> {
    let (y, dx) = ([&inputs[0], &inputs[1]], &mut outputs[0]);
    match unary {
        Unary::Exp => each!(map2, Light, y, dx, run, |y: f32, dy: f32| dy * y),
        Unary::Sqrt => each!(map2, Light, y, dx, run, |y: f32, dy: f32| dy * 0.5 / y),
        Unary::Tanh => each!(map2, Light, y, dx, run, |x: f32, dy: f32| gradient::tanh_from_output(x, dy)),
        Unary::Sigmoid => each!(map2, Light, y, dx, run, |x: f32, dy: f32| gradient::sigmoid_from_output(x, dy)),
        // These only ask on which side of a kink it was, or nothing: the output says it as well as the input.
        Unary::Neg | Unary::Relu | Unary::Relu6 | Unary::Leaky { .. } | Unary::Affine { .. } => {
            unary_gradient(unary, inputs, outputs, run)
        }
        _ => Err(Error::Internal { op: unary.name(), reason: "its gradient needs its input".into() }),
    }
}

pub(super) fn binary(binary: Binary, inputs: &[Input<'_>], outputs: &mut [Output<'_>], run: &Run<'_>) -> Result<()> {
    let (x, y) = ([&inputs[0], &inputs[1]], &mut outputs[0]);
    match binary {
        Binary::Add => each!(map2, Light, x, y, run, |a: f32, b: f32| a + b),
        Binary::Sub => each!(map2, Light, x, y, run, |a: f32, b: f32| a - b),
        Binary::Mul => each!(map2, Light, x, y, run, |a: f32, b: f32| a * b),
        Binary::Div => each!(map2, Light, x, y, run, |a: f32, b: f32| a / b),
        Binary::Maximum => each!(map2, Light, x, y, run, |a: f32, b: f32| if (a > b) | a.is_nan() { a } else { b }),
        Binary::Minimum => each!(map2, Light, x, y, run, |a: f32, b: f32| if (a < b) | a.is_nan() { a } else { b }),
        Binary::Pow => each!(map2, Heavy, x, y, run, |a: f32, b: f32| math::pow(a, b)),
    }
}

pub(super) fn binary_gradient(
    op: &BinaryGradient,
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
) -> Result<()> {
    let (x, dx) = ([&inputs[0], &inputs[1], &inputs[2]], &mut outputs[0]);
    // The share of an operand in a gradient that goes to the larger one.
    #[inline(always)]
    fn share(above: bool, equal: bool, dy: f32) -> f32 {
        if above {
            dy
        } else if equal {
            0.5 * dy
        } else {
            0.0
        }
    }

    match (op.of, op.side) {
        (Binary::Add, _) | (Binary::Sub, Side::First) => each!(map3, Light, x, dx, run, |_: f32, _: f32, dy: f32| dy),
        (Binary::Sub, Side::Second) => each!(map3, Light, x, dx, run, |_: f32, _: f32, dy: f32| -dy),
        (Binary::Mul, Side::First) => each!(map3, Light, x, dx, run, |_: f32, b: f32, dy: f32| dy * b),
        (Binary::Mul, Side::Second) => each!(map3, Light, x, dx, run, |a: f32, _: f32, dy: f32| dy * a),
        (Binary::Div, Side::First) => each!(map3, Light, x, dx, run, |_: f32, b: f32, dy: f32| dy / b),
        (Binary::Div, Side::Second) => each!(map3, Light, x, dx, run, |a: f32, b: f32, dy: f32| -(dy / b) * (a / b)),
        (Binary::Maximum, Side::First) | (Binary::Minimum, Side::Second) => {
            each!(map3, Light, x, dx, run, |a: f32, b: f32, dy: f32| share(a > b, a == b, dy))
        }
        (Binary::Maximum, Side::Second) | (Binary::Minimum, Side::First) => {
            each!(map3, Light, x, dx, run, |a: f32, b: f32, dy: f32| share(a < b, a == b, dy))
        }
        (Binary::Pow, Side::First) => {
            each!(map3, Heavy, x, dx, run, |a: f32, b: f32, dy: f32| gradient::pow_base(a, b, dy))
        }
        (Binary::Pow, Side::Second) => {
            each!(map3, Heavy, x, dx, run, |a: f32, b: f32, dy: f32| gradient::pow_exponent(a, b, dy))
        }
    }
}

pub(super) fn compare(
    comparison: Comparison,
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
) -> Result<()> {
    match inputs[0].dtype {
        DType::F32 => compare_typed::<f32>(comparison, inputs, outputs, run),
        DType::F16 => compare_typed::<f16>(comparison, inputs, outputs, run),
        DType::U8 => compare_typed::<u8>(comparison, inputs, outputs, run),
        DType::I32 => compare_typed::<i32>(comparison, inputs, outputs, run),
        DType::U32 => compare_typed::<u32>(comparison, inputs, outputs, run),
    }
}

fn compare_typed<T: Element + PartialOrd>(
    comparison: Comparison,
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
) -> Result<()> {
    let (x, y) = ([&inputs[0], &inputs[1]], &mut outputs[0]);
    match comparison {
        Comparison::Eq => each!(map2, Light, x, y, run, |a: T, b: T| u8::from(a == b)),
        Comparison::Ne => each!(map2, Light, x, y, run, |a: T, b: T| u8::from(a != b)),
        Comparison::Lt => each!(map2, Light, x, y, run, |a: T, b: T| u8::from(a < b)),
        Comparison::Le => each!(map2, Light, x, y, run, |a: T, b: T| u8::from(a <= b)),
        Comparison::Gt => each!(map2, Light, x, y, run, |a: T, b: T| u8::from(a > b)),
        Comparison::Ge => each!(map2, Light, x, y, run, |a: T, b: T| u8::from(a >= b)),
    }
}

pub(super) fn select(inputs: &[Input<'_>], outputs: &mut [Output<'_>], run: &Run<'_>) -> Result<()> {
    match inputs[1].dtype {
        DType::F32 => select_typed::<f32>(inputs, outputs, run),
        DType::F16 => select_typed::<f16>(inputs, outputs, run),
        DType::U8 => select_typed::<u8>(inputs, outputs, run),
        DType::I32 => select_typed::<i32>(inputs, outputs, run),
        DType::U32 => select_typed::<u32>(inputs, outputs, run),
    }
}

fn select_typed<T: Element>(inputs: &[Input<'_>], outputs: &mut [Output<'_>], run: &Run<'_>) -> Result<()> {
    let operands = [&inputs[0], &inputs[1], &inputs[2]];
    each!(map3, Light, operands, &mut outputs[0], run, |condition: u8, a: T, b: T| if condition != 0 { a } else { b })
}

pub(super) fn cast(inputs: &[Input<'_>], outputs: &mut [Output<'_>], run: &Run<'_>) -> Result<()> {
    match inputs[0].dtype {
        DType::F32 => cast_from::<f32>(inputs, outputs, run),
        DType::F16 => cast_from::<f16>(inputs, outputs, run),
        DType::U8 => cast_from::<u8>(inputs, outputs, run),
        DType::I32 => cast_from::<i32>(inputs, outputs, run),
        DType::U32 => cast_from::<u32>(inputs, outputs, run),
    }
}

fn cast_from<T: Number>(inputs: &[Input<'_>], outputs: &mut [Output<'_>], run: &Run<'_>) -> Result<()> {
    let (x, y) = ([&inputs[0]], &mut outputs[0]);
    match y.dtype {
        DType::F32 => each!(map, Light, x, y, run, |x: T| x.to_f32()),
        DType::F16 => each!(map, Light, x, y, run, |x: T| f16::from_f32(x.to_f32())),
        DType::U8 => each!(map, Light, x, y, run, |x: T| x.to_u8()),
        DType::I32 => each!(map, Light, x, y, run, |x: T| x.to_i32()),
        DType::U32 => each!(map, Light, x, y, run, |x: T| x.to_u32()),
    }
}
