//! Tensors: arrays of numbers in the memory of the host's device.
//!
//! Every operation is a call to the host that can fail: shapes that do not fit, no memory left, a run that is being
//! stopped. So every operation gives a [`Result`], operators too: `(&a + &b)?`. A `?` per step costs a character, and says
//! which step it was that failed; the alternative, a panic, would take the reason away from the caller.
//!
//! What is computed from a weight is recorded by the host, and [`Tensor::backward`] goes back from a loss. Bytes cross
//! the sandbox's border only when something is made of a slice, read or written; a read waits for the device, so a step
//! that wants to be quick does without.
//!
//! ```
//! use weft_sdk::Tensor;
//!
//! # fn main() -> weft_sdk::Result<()> {
//! let a = Tensor::new(&[1.0, 2.0, 3.0, 4.0], &[2, 2])?;
//! let b = Tensor::full(&[2], 10.0)?;
//! let sums = (&a + &b)?;
//! assert_eq!(sums.to_vec::<f32>()?, [11.0, 12.0, 13.0, 14.0]);
//! assert_eq!((&a * 2.0)?.sum()?.item()?, 20.0);
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::rc::Rc;

use crate::host::tensor as host;
use crate::{Error, Result};

// The operations as methods, by family.
mod elementwise;
mod gradient;
mod layout;
mod normalization;
mod operators;
mod pooling;
mod product;
mod random;
mod reduction;

pub use crate::bindings::weft::train::kernels::{BinaryOp, Comparison, Reducer, Resampling, UnaryOp};
pub use crate::bindings::weft::train::tensor::TensorType;
pub use pooling::Window;
pub use product::Convolution;

/// A tensor on the device. Clones are the same tensor, and cost no call.
#[derive(Clone)]
pub struct Tensor(Rc<host::Tensor>);

/// A Rust type that tensors hold.
pub trait Element: Copy + sealed::Element {
    const TYPE: TensorType;
}

mod sealed {
    pub trait Element: Sized {
        fn append(self, bytes: &mut Vec<u8>);
        fn all(bytes: &[u8]) -> Vec<Self>;
    }
}

macro_rules! elements {
    ($($type:ty => $name:ident,)+) => {
        $(
            impl Element for $type {
                const TYPE: TensorType = TensorType::$name;
            }

            impl sealed::Element for $type {
                fn append(self, bytes: &mut Vec<u8>) {
                    bytes.extend_from_slice(&self.to_le_bytes());
                }

                fn all(bytes: &[u8]) -> Vec<Self> {
                    bytes.as_chunks().0.iter().map(|bytes| Self::from_le_bytes(*bytes)).collect()
                }
            }
        )+
    };
}

elements! {
    f32 => F32,
    u8 => U8,
    i32 => I32,
    u32 => U32,
}

impl Tensor {
    /// A tensor with these elements, row after row.
    pub fn new<T: Element>(elements: &[T], dimensions: &[u32]) -> Result<Self> {
        host::create(T::TYPE, dimensions, &to_bytes(elements)).map(Self::from)
    }

    /// A tensor of no axes: one number.
    pub fn scalar(value: f32) -> Result<Self> {
        Self::full(&[], value)
    }

    /// A tensor of f32 whose elements are all the same.
    pub fn full(dimensions: &[u32], value: f32) -> Result<Self> {
        Self::full_of(TensorType::F32, dimensions, f64::from(value))
    }

    /// A tensor of any type whose elements are all the same.
    pub fn full_of(ty: TensorType, dimensions: &[u32], value: f64) -> Result<Self> {
        host::full(ty, dimensions, value).map(Self::from)
    }

    pub fn zeros(dimensions: &[u32]) -> Result<Self> {
        Self::full(dimensions, 0.0)
    }

    pub fn ones(dimensions: &[u32]) -> Result<Self> {
        Self::full(dimensions, 1.0)
    }

    /// How many axes there are.
    pub fn rank(&self) -> u32 {
        self.0.rank()
    }

    /// How long an axis is; 0 for one that there is not.
    pub fn size(&self, axis: u32) -> u32 {
        self.0.size(axis)
    }

    pub fn dimensions(&self) -> Vec<u32> {
        self.0.dimensions()
    }

    pub fn ty(&self) -> TensorType {
        self.0.ty()
    }

    /// How many elements there are.
    pub fn elements(&self) -> u64 {
        self.dimensions().into_iter().map(u64::from).product()
    }

    /// All elements, row after row. `T` must be the type of the tensor. Waits for the device.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        self.read(0, self.elements())
    }

    /// `count` elements, row after row, from the one at `start`. `T` must be the type of the tensor. Waits for the device.
    pub fn read<T: Element>(&self, start: u64, count: u64) -> Result<Vec<T>> {
        let ty = self.ty();
        if ty != T::TYPE {
            return Err(Error::BadShape(format!("a tensor of {} read as {}", name(ty), name(T::TYPE))));
        }
        self.0.read(start, count).map(|bytes| T::all(&bytes))
    }

    /// The one element of an f32 tensor. Waits for the device.
    pub fn item(&self) -> Result<f32> {
        self.0.item()
    }

    /// Overwrites elements, row after row, from the one at `start`.
    pub fn write<T: Element>(&self, start: u64, elements: &[T]) -> Result<()> {
        let ty = self.ty();
        if ty != T::TYPE {
            return Err(Error::BadShape(format!("{} written to a tensor of {}", name(T::TYPE), name(ty))));
        }
        self.0.write(start, &to_bytes(elements))
    }

    pub(crate) fn raw(&self) -> &host::Tensor {
        &self.0
    }

    /// The host's own handle, another one if somebody here still holds this.
    #[cfg(target_arch = "wasm32")]
    pub(crate) fn into_raw(self) -> Result<host::Tensor> {
        Rc::try_unwrap(self.0).or_else(|shared| shared.share())
    }
}

impl From<host::Tensor> for Tensor {
    fn from(tensor: host::Tensor) -> Self {
        Self(Rc::new(tensor))
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Tensor({} {:?})", name(self.ty()), self.dimensions())
    }
}

fn to_bytes<T: Element>(elements: &[T]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size_of_val(elements));
    for element in elements {
        element.append(&mut bytes);
    }
    bytes
}

fn name(ty: TensorType) -> &'static str {
    match ty {
        TensorType::F32 => "f32",
        TensorType::F16 => "f16",
        TensorType::U8 => "u8",
        TensorType::I32 => "i32",
        TensorType::U32 => "u32",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_survive_the_way_to_bytes_and_back() {
        use sealed::Element;
        assert_eq!(to_bytes(&[1_u32, 0x0102]), [1, 0, 0, 0, 2, 1, 0, 0]);
        assert_eq!(f32::all(&to_bytes(&[1.5_f32, -0.25])), [1.5, -0.25]);
        assert_eq!(i32::all(&to_bytes(&[-7])), [-7]);
        assert_eq!(u8::all(&to_bytes(&[7_u8, 255])), [7, 255]);
    }
}
