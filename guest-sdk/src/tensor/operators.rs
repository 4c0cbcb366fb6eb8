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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_take_tensors_and_numbers() {
        let a = Tensor::new(&[1.0, -2.0], &[2]).unwrap();
        let b = Tensor::scalar(4.0).unwrap();
        let values = |tensor: Result<Tensor>| tensor.unwrap().to_vec::<f32>().unwrap();
        assert_eq!(values(&a + &b), [5.0, 2.0]);
        assert_eq!(values(&a - &b), [-3.0, -6.0]);
        assert_eq!(values(&a * &b), [4.0, -8.0]);
        assert_eq!(values(&a / &b), [0.25, -0.5]);
        assert_eq!(values(&a + 1.0), [2.0, -1.0]);
        assert_eq!(values(&a - 1.0), [0.0, -3.0]);
        assert_eq!(values(&a * 3.0), [3.0, -6.0]);
        assert_eq!(values(&a / 2.0), [0.5, -1.0]);
        assert_eq!(values(-&a), [-1.0, 2.0]);
    }

    #[test]
    fn shapes_that_do_not_fit_are_an_error() {
        let error = (&Tensor::zeros(&[2]).unwrap() + &Tensor::zeros(&[3]).unwrap()).unwrap_err();
        assert!(matches!(error, crate::Error::BadShape(_)), "{error:?}");
    }
}
