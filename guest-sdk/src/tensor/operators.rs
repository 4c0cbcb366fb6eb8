//! `+ - * /` and negation, of references: what is computed with lives on. The other operand may be a number.

use std::ops::{Add, Div, Mul, Neg, Sub};

use super::{BinaryOp, Tensor};
use crate::Result;

macro_rules! operators {
    ($($trait:ident::$method:ident => $op:ident, $number:expr;)+) => {
        $(
            impl $trait for &Tensor {
                type Output = Result<Tensor>;

                fn $method(self, other: Self) -> Self::Output {
                    self.binary(BinaryOp::$op, other)
                }
            }

            impl $trait<f32> for &Tensor {
                type Output = Result<Tensor>;

                fn $method(self, number: f32) -> Self::Output {
                    let (scale, offset) = $number(number);
                    self.affine(scale, offset)
                }
            }
        )+
    };
}

operators! {
    Add::add => Add, |number: f32| (1.0, number);
    Sub::sub => Sub, |number: f32| (1.0, -number);
    Mul::mul => Mul, |number: f32| (number, 0.0);
    Div::div => Div, |number: f32| (1.0 / number, 0.0);
}

impl Neg for &Tensor {
    type Output = Result<Tensor>;

    fn neg(self) -> Self::Output {
        Tensor::neg(self)
    }
}
