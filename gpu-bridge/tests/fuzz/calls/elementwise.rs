//! Functions of one and two tensors, choices and conversions.

use weft_gpu::op::{
    Binary, BinaryGradient, Cast, Compare, Comparison, Select, Side, Unary, UnaryGradient, UnaryGradientFromOutput,
};
use weft_gpu::{DType, MAX_RANK};

use super::{Call, Generate, Make, call};

/// Any function of one tensor.
pub fn unary(make: &mut Make<'_, '_>) -> Unary {
    let bytes = &mut *make.bytes;
    match bytes.below(20) {
        0 => Unary::Neg,
        1 => Unary::Exp,
        2 => Unary::Log,
        3 => Unary::Sqrt,
        4 => Unary::Rsqrt,
        5 => Unary::Abs,
        6 => Unary::Sign,
        7 => Unary::Tanh,
        8 => Unary::Sigmoid,
        9 => Unary::Relu,
        10 => Unary::Relu6,
        11 => Unary::Leaky { slope: bytes.float(-0.5, 0.5) },
        12 => Unary::Gelu,
        13 => Unary::Silu,
        14 => Unary::HardSwish,
        15 => Unary::HardSigmoid,
        16 => Unary::Clamp { low: bytes.float(-1.0, 0.0), high: bytes.float(0.0, 1.0) },
        17 => Unary::Pow { exponent: bytes.float(-3.0, 3.0) },
        18 => Unary::Affine { scale: bytes.float(-2.0, 2.0), offset: bytes.float(-2.0, 2.0) },
        _ => Unary::SoftThreshold { threshold: bytes.float(0.0, 1.0) },
    }
}

fn binary(make: &mut Make<'_, '_>) -> Binary {
    make.bytes.pick(&[
        Binary::Add,
        Binary::Sub,
        Binary::Mul,
        Binary::Div,
        Binary::Maximum,
        Binary::Minimum,
        Binary::Pow,
    ])
}

impl Generate for Unary {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let shape = make.shape(0, MAX_RANK);
        call(unary(make), [make.f32(&shape)?])
    }
}

impl Generate for UnaryGradient {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let shape = make.shape(0, MAX_RANK);
        call(Self(unary(make)), [make.f32(&shape)?, make.f32(&shape)?])
    }
}

impl Generate for UnaryGradientFromOutput {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let shape = make.shape(0, MAX_RANK);
        call(Self(unary(make)), [make.f32(&shape)?, make.f32(&shape)?])
    }
}

impl Generate for Binary {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let shape = make.shape(0, MAX_RANK);
        let (a, b) = (make.narrower(&shape), make.narrower(&shape));
        call(binary(make), [make.f32(&a)?, make.f32(&b)?])
    }
}

impl Generate for BinaryGradient {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let shape = make.shape(0, MAX_RANK);
        let (of, side) = (binary(make), make.bytes.pick(&[Side::First, Side::Second]));
        let (a, b) = (make.narrower(&shape), make.narrower(&shape));
        let (a, b) = (make.f32(&a)?, make.f32(&b)?);
        let result = make.result(&of.into(), &[&a, &b], 2);
        call(Self { of, side }, [a, b, make.f32(&result)?])
    }
}

impl Generate for Compare {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        use Comparison::{Eq, Ge, Gt, Le, Lt, Ne};
        let (shape, dtype) = (make.shape(0, MAX_RANK), make.any_type());
        let (a, b) = (make.narrower(&shape), make.narrower(&shape));
        call(Self(make.bytes.pick(&[Eq, Ne, Lt, Le, Gt, Ge])), [make.of(&a, dtype)?, make.of(&b, dtype)?])
    }
}

impl Generate for Select {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let (shape, dtype) = (make.shape(0, MAX_RANK), make.any_type());
        let (condition, a, b) = (make.narrower(&shape), make.narrower(&shape), make.narrower(&shape));
        call(Self, [make.index(&condition, 2, DType::U8)?, make.of(&a, dtype)?, make.of(&b, dtype)?])
    }
}

impl Generate for Cast {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let (shape, from, to) = (make.shape(0, MAX_RANK), make.any_type(), make.any_type());
        call(Self(to), [make.of(&shape, from)?])
    }
}
