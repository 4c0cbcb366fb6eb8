//! Every operation with random attributes, and the inputs that would suit it.
//!
//! [`Kind`] is the list of operations. An operation that is missing in it does not compile, and neither does one that is
//! in it and cannot be made up ([`Generate`]).

use weft_gpu::op::{self, Meta, Op};
use weft_gpu::{DType, Shape};

use crate::bytes::Bytes;
use crate::contents::Contents;

mod arena;
mod codec;
mod elementwise;
mod images;
mod layout;
mod matrix;
mod normalization;
mod reduction;
mod sparse;

pub use arena::optimizer;
pub use layout::order;

/// An operation and what it is to be given.
pub struct Call {
    pub op: Op,
    pub inputs: Vec<Want>,
}

/// An input that an operation would take.
#[derive(Clone, Debug)]
pub struct Want {
    pub meta: Meta,
    pub contents: Contents,
}

/// The most elements of most tensors, and of some that are larger than a tile.
const SMALL: usize = 2_000;
const LARGE: usize = 40_000;

/// Lists the operations.
macro_rules! kinds {
    ($($name:ident)+) => {
        /// Which operation, whatever its attributes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Kind {
            $($name,)+
        }

        impl Kind {
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            pub fn of(op: &Op) -> Self {
                match op {
                    $(Op::$name(_) => Self::$name,)+
                }
            }

            /// A call of it, or nothing if the sizes that came up are no shape.
            pub fn call(self, make: &mut Make<'_, '_>) -> Option<Call> {
                match self {
                    $(Self::$name => <op::$name as Generate>::generate(make),)+
                }
            }
        }
    };
}

kinds! {
    Unary UnaryGradient UnaryGradientFromOutput Binary BinaryGradient Compare Select Cast
    Reduce ArgReduce
    Reshape Permute Expand Slice Copy Pad Concat GatherRows ScatterAddRows OneHot TopK TopKGradient Resize
    ResizeGradient Fill Iota Uniform Normal Dropout
    MatMul Linear
    Conv2d Conv2dGradientInput Conv2dGradientWeight MaxPool2d MaxPool2dGradient AveragePool2d
    AveragePool2dGradient AdaptiveAveragePool2d AdaptiveAveragePool2dGradient AdaptiveMaxPool2d
    AdaptiveMaxPool2dGradient
    BatchNorm BatchNormGradient BatchNormInference LayerNorm LayerNormGradient LocalResponseNorm
    LocalResponseNormGradient Softmax LogSoftmax MaskedSoftmax SoftmaxGradient LogSoftmaxGradient Loss
    CsrMatMul CsrTransposedMatMul CsrValuesGradient KMeansAssign KMeansAccumulate
    Assign Accumulate Blend Optimize ClipNorm AdmmGradient AdmmDual
    CastSaturating Quantize Dequantize Largest Significant AddAt
}

/// An operation that can be made up.
pub trait Generate {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call>;
}

/// What a call is made from.
pub struct Make<'a, 'b> {
    pub bytes: &'a mut Bytes<'b>,
    /// The tensors that there are already.
    pub known: &'a [Meta],
}

impl Make<'_, '_> {
    /// The size of an axis.
    pub fn side(&mut self) -> usize {
        match self.bytes.byte() {
            0..4 => 0,
            4..40 => 1,
            40..200 => self.bytes.within(2, 9),
            200..240 => self.bytes.pick(&[15, 16, 17, 31, 33]),
            _ => self.bytes.within(2, 100),
        }
    }

    /// A shape of so many axes: often one that a tensor has already, mostly small, sometimes larger than a tile, empty,
    /// or empty with an axis that is not.
    pub fn shape(&mut self, low: usize, high: usize) -> Vec<usize> {
        if self.bytes.flip()
            && let Some(known) = self.known_shape(low, high)
        {
            return known;
        }
        let rank = self.bytes.within(low, high);
        let mut room = if self.bytes.once_in(24) { LARGE } else { SMALL };
        let mut sizes: Vec<usize> = Vec::new();
        for _ in 0..rank {
            let mut side = self.side();
            if room > SMALL && self.bytes.flip() {
                side = self.bytes.within(2, 20_000);
            }
            let side = side.min(room);
            room /= side.max(1);
            sizes.push(side);
        }
        if rank > 1 && self.bytes.once_in(50) {
            let empty = self.bytes.below(rank);
            sizes[empty] = 0;
            sizes[(empty + 1) % rank] = self.bytes.pick(&[1 << 16, 1 << 25, 1 << 36]);
        }
        sizes
    }

    fn known_shape(&mut self, low: usize, high: usize) -> Option<Vec<usize>> {
        let fits = |meta: &&Meta| {
            let shape = &meta.shape;
            meta.dtype == DType::F32 && (low..=high).contains(&shape.rank()) && shape.elements() <= LARGE
        };
        let fit: Vec<&Meta> = self.known.iter().filter(fits).collect();
        // The latest make longer chains.
        let back = self.bytes.below(fit.len().min(8));
        fit.get(fit.len().wrapping_sub(1 + back)).map(|meta| meta.shape.to_vec())
    }

    /// A shape that broadcasts to this one.
    pub fn narrower(&mut self, shape: &[usize]) -> Vec<usize> {
        let missing = if self.bytes.once_in(4) { self.bytes.within(0, shape.len()) } else { 0 };
        shape[missing..].iter().map(|&size| if self.bytes.once_in(4) { 1 } else { size }).collect()
    }

    pub fn seed(&mut self) -> u64 {
        u64::from(self.bytes.byte())
    }

    /// A tensor of a type.
    pub fn of(&mut self, shape: &[usize], dtype: DType) -> Option<Want> {
        let seed = self.seed();
        let contents = if self.bytes.once_in(16) { Contents::Hostile(seed) } else { Contents::Noise(seed) };
        Some(Want { meta: Meta::new(Shape::new(shape).ok()?, dtype), contents })
    }

    pub fn f32(&mut self, shape: &[usize]) -> Option<Want> {
        self.of(shape, DType::F32)
    }

    /// Labels, rows or columns below a count.
    pub fn index(&mut self, shape: &[usize], below: usize, dtype: DType) -> Option<Want> {
        let mut want = self.of(shape, dtype)?;
        if let Contents::Noise(seed) = want.contents {
            want.contents = Contents::Below(below, seed);
        }
        Some(want)
    }

    pub fn index_type(&mut self) -> DType {
        self.bytes.pick(&[DType::U32, DType::I32, DType::U8])
    }

    pub fn any_type(&mut self) -> DType {
        if self.bytes.flip() { DType::F32 } else { self.bytes.pick(&DType::ALL) }
    }

    /// The shape of a result of an operation, or any of this rank if it takes no such inputs.
    pub fn result(&mut self, op: &Op, inputs: &[&Want], rank: usize) -> Vec<usize> {
        let metas: Vec<Meta> = inputs.iter().map(|want| want.meta).collect();
        match op.infer(&metas) {
            Ok(outputs) if !outputs.is_empty() => outputs[0].shape.to_vec(),
            _ => self.shape(rank, rank),
        }
    }
}

/// A call of an operation on these inputs.
pub fn call(op: impl Into<Op>, inputs: impl IntoIterator<Item = Want>) -> Option<Call> {
    Some(Call { op: op.into(), inputs: inputs.into_iter().collect() })
}
