//! The operations: what there is to compute, said once for every device.
//!
//! An [`Op`] is one operation with its attributes, a struct that lives in the file of its family and implements
//! [`Spec`]: what shapes and types it takes, what comes out, how much work it is, and its rule for autograd. A device
//! holds the kernels. Gradients are operations too, so a device that runs every `Op` trains every model.

use smallvec::SmallVec;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::{Layout, Shape};
use crate::tape::Backward;

mod arena;
pub(crate) mod codec;
mod convolution;
mod elementwise;
mod layout;
mod loss;
mod matrix;
mod normalization;
mod pooling;
mod random;
mod reduction;
mod sparse;

pub use arena::{
    Accumulate, Adagrad, Adam, AdmmDual, AdmmGradient, Assign, Blend, ClipNorm, Optimize, Optimizer, RmsProp, Sgd,
};
pub use codec::{AddAt, CastSaturating, Dequantize, Largest, Quantize, Significant};
pub use convolution::{Conv2d, Conv2dGradientInput, Conv2dGradientWeight};
pub use elementwise::{
    Binary, BinaryGradient, Cast, Compare, Comparison, Select, Side, Unary, UnaryGradient, UnaryGradientFromOutput,
};
pub use layout::{
    Concat, Copy, Expand, GatherRows, MAX_CONCAT, OneHot, Pad, Permute, Resampling, Reshape, Resize, ResizeGradient,
    ScatterAddRows, Slice, TopK, TopKGradient,
};
pub use loss::{Loss, LossKind, Reduction};
pub use matrix::{Linear, MatMul};
pub use normalization::{
    BatchNorm, BatchNormGradient, BatchNormInference, LayerNorm, LayerNormGradient, LocalResponseNorm,
    LocalResponseNormGradient, LogSoftmax, LogSoftmaxGradient, MaskedSoftmax, Softmax, SoftmaxGradient, Statistics,
};
pub use pooling::{
    AdaptiveAveragePool2d, AdaptiveAveragePool2dGradient, AdaptiveMaxPool2d, AdaptiveMaxPool2dGradient, AveragePool2d,
    AveragePool2dGradient, MaxPool2d, MaxPool2dGradient, Window,
};
pub use random::{Dropout, Fill, Iota, Normal, Stream, Uniform};
pub use reduction::{ArgReduce, Extreme, Reduce, Reducer};
pub use sparse::{CsrMatMul, CsrTransposedMatMul, CsrValuesGradient, KMeansAccumulate, KMeansAssign};

/// Lists the operations: each is a struct of this name that implements [`Spec`].
macro_rules! operations {
    ($($name:ident,)+) => {
        /// One operation with its attributes.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Op {
            $($name($name),)+
        }

        impl Op {
            /// The names of all operations: of each, what [`std::fmt::Debug`] writes first.
            pub const KINDS: &[&str] = &[$(stringify!($name)),+];

            /// The device-neutral part of the operation.
            pub fn spec(&self) -> &dyn Spec {
                match self {
                    $(Self::$name(spec) => spec,)+
                }
            }
        }

        $(impl From<$name> for Op {
            fn from(spec: $name) -> Self {
                Self::$name(spec)
            }
        })+
    };
}

operations! {
    // elementwise
    Unary,
    UnaryGradient,
    UnaryGradientFromOutput,
    Binary,
    BinaryGradient,
    Compare,
    Select,
    Cast,
    // reduction
    Reduce,
    ArgReduce,
    // layout
    Reshape,
    Permute,
    Expand,
    Slice,
    Copy,
    Pad,
    Concat,
    GatherRows,
    ScatterAddRows,
    OneHot,
    TopK,
    TopKGradient,
    Resize,
    ResizeGradient,
    // random
    Fill,
    Iota,
    Uniform,
    Normal,
    Dropout,
    // matrix
    MatMul,
    Linear,
    // convolution
    Conv2d,
    Conv2dGradientInput,
    Conv2dGradientWeight,
    // pooling
    MaxPool2d,
    MaxPool2dGradient,
    AveragePool2d,
    AveragePool2dGradient,
    AdaptiveAveragePool2d,
    AdaptiveAveragePool2dGradient,
    AdaptiveMaxPool2d,
    AdaptiveMaxPool2dGradient,
    // normalization
    BatchNorm,
    BatchNormGradient,
    BatchNormInference,
    LayerNorm,
    LayerNormGradient,
    LocalResponseNorm,
    LocalResponseNormGradient,
    Softmax,
    LogSoftmax,
    MaskedSoftmax,
    SoftmaxGradient,
    LogSoftmaxGradient,
    // loss
    Loss,
    // sparse
    CsrMatMul,
    CsrTransposedMatMul,
    CsrValuesGradient,
    KMeansAssign,
    KMeansAccumulate,
    // arena
    Assign,
    Accumulate,
    Blend,
    Optimize,
    ClipNorm,
    AdmmGradient,
    AdmmDual,
    // codec
    CastSaturating,
    Quantize,
    Dequantize,
    Largest,
    Significant,
    AddAt,
}

/// What every device and autograd must know of an operation.
pub trait Spec {
    fn name(&self) -> &'static str;

    /// Checks number, shapes and types of the inputs and all attributes, and says what comes out. After this has
    /// passed, a device may rely on all of it.
    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs>;

    /// Floating-point operations; a transcendental counts as several.
    fn flops(&self, inputs: &[Meta], outputs: &[Meta]) -> u64 {
        let _ = inputs;
        outputs.iter().map(|output| output.shape.elements() as u64).sum()
    }

    /// How many of the first inputs are written in place. Such an operation has no outputs.
    fn writes(&self) -> usize {
        0
    }

    /// Whether the kernels take inputs whose elements lie apart. The others get a copy that is contiguous.
    fn strided(&self) -> bool {
        false
    }

    /// For an operation that only looks at the same bytes in another way: where they lie then.
    fn view(&self, input: &Layout) -> Option<Layout> {
        let _ = input;
        None
    }

    /// Whether it has a gradient. What has none refuses inputs that descend from a parameter, unless all that comes
    /// out is integers.
    fn differentiable(&self) -> bool {
        false
    }

    /// What the gradient of these inputs (one bit each) will need.
    fn saves(&self, wanted: u32) -> Saves {
        let _ = wanted;
        Saves::NOTHING
    }

    /// Computes the gradient of every input that wants one.
    fn gradient(&self, backward: &mut Backward<'_>) -> Result<()> {
        let _ = backward;
        Err(Error::NotDifferentiable { op: self.name(), input: 0 })
    }
}

impl Op {
    pub fn name(&self) -> &'static str {
        self.spec().name()
    }

    pub fn infer(&self, inputs: &[Meta]) -> Result<Outputs> {
        let spec = self.spec();
        spec.infer(Inputs { op: spec.name(), metas: inputs })
    }

    /// An estimate of the work: operations, and bytes with each operand counted once.
    pub fn cost(&self, inputs: &[Meta], outputs: &[Meta]) -> Cost {
        let written = inputs.iter().take(self.spec().writes());
        let bytes = inputs.iter().chain(outputs).chain(written).map(|meta| meta.bytes() as u64).sum();
        Cost { flops: self.spec().flops(inputs, outputs), bytes }
    }
}

/// What a tensor is, without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    pub shape: Shape,
    pub dtype: DType,
}

impl Meta {
    pub fn new(shape: Shape, dtype: DType) -> Self {
        Self { shape, dtype }
    }

    pub fn f32(shape: Shape) -> Self {
        Self { shape, dtype: DType::F32 }
    }

    pub fn bytes(&self) -> usize {
        self.shape.elements() * self.dtype.size()
    }
}

/// What comes out of an operation.
pub type Outputs = SmallVec<[Meta; 1]>;

/// An estimate of the work that an operation is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Floating-point operations; a transcendental counts as several.
    pub flops: u64,
    /// Bytes read and written, each operand once.
    pub bytes: u64,
}

/// What autograd keeps of an operation until its gradient is computed: one bit per input and output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Saves {
    pub inputs: u32,
    pub outputs: u32,
}

impl Saves {
    pub const NOTHING: Self = Self { inputs: 0, outputs: 0 };

    pub const fn inputs(bits: u32) -> Self {
        Self { inputs: bits, outputs: 0 }
    }

    pub const fn outputs(bits: u32) -> Self {
        Self { inputs: 0, outputs: bits }
    }
}

/// The inputs of an operation as its spec sees them, with the checks that all specs share.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    pub op: &'static str,
    pub metas: &'a [Meta],
}

impl<'a> Inputs<'a> {
    /// Refuses another number of inputs.
    pub fn exactly<const N: usize>(&self) -> Result<&'a [Meta; N]> {
        self.metas.try_into().map_err(|_| self.wrong_count(&N.to_string()))
    }

    pub fn wrong_count(&self, want: &str) -> Error {
        Error::argument(self.op, format!("{} inputs, it takes {want}", self.metas.len()))
    }

    /// Refuses an input of another type.
    pub fn typed(&self, index: usize, dtype: DType) -> Result<()> {
        match self.metas.get(index) {
            Some(meta) if meta.dtype != dtype => Err(Error::dtype(self.op, index, meta.dtype, dtype.name())),
            _ => Ok(()),
        }
    }

    /// Refuses an input whose values cannot name rows or classes.
    pub fn indices(&self, index: usize) -> Result<()> {
        match self.metas.get(index) {
            Some(meta) if !meta.dtype.is_index() => {
                Err(Error::dtype(self.op, index, meta.dtype, "an index type (u8, i32, u32)"))
            }
            _ => Ok(()),
        }
    }

    /// Refuses any input that is not f32.
    pub fn all_f32(&self) -> Result<()> {
        (0..self.metas.len()).try_for_each(|index| self.typed(index, DType::F32))
    }

    /// Refuses two inputs of different shapes.
    pub fn same_shape(&self, a: usize, b: usize) -> Result<()> {
        match (self.metas.get(a), self.metas.get(b)) {
            (Some(x), Some(y)) if x.shape != y.shape => {
                Err(Error::mismatch(self.op, &format!("inputs {a} and {b} differ in shape"), &x.shape, &y.shape))
            }
            _ => Ok(()),
        }
    }

    /// Refuses an input of another shape.
    pub fn shaped(&self, index: usize, shape: &[usize]) -> Result<()> {
        match self.metas.get(index) {
            Some(meta) if *meta.shape != *shape => {
                Err(Error::shape(self.op, format!("input {index} is {:?}, not {shape:?}", meta.shape)))
            }
            _ => Ok(()),
        }
    }

    /// Refuses an input of another rank.
    pub fn ranked(&self, index: usize, rank: usize) -> Result<()> {
        match self.metas.get(index) {
            Some(meta) if meta.shape.rank() != rank => {
                Err(Error::shape(self.op, format!("input {index} is {:?}, it must have {rank} axes", meta.shape)))
            }
            _ => Ok(()),
        }
    }

    /// The shape that all inputs broadcast to.
    pub fn broadcast(&self) -> Result<Shape> {
        let first = self.metas.first().map_or(Shape::SCALAR, |meta| meta.shape);
        self.metas.iter().skip(1).try_fold(first, |shape, meta| {
            shape
                .broadcast(&meta.shape)
                .ok_or_else(|| Error::mismatch(self.op, "shapes do not broadcast", &shape, &meta.shape))
        })
    }
}
