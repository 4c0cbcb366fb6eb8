//! The host where there is none: the signatures of `wit/`, and one error.

use crate::bindings::weft::train::model::{Initial, Optimizer, Role, Schedule};
use crate::bindings::weft::train::{kernels::*, tensor::TensorType};
use crate::{Error, Result};

type Pair = (u32, u32);

fn missing<T>() -> Result<T> {
    Err(Error::other("tensors need a host; off wasm, that is the feature `native` of weft-sdk"))
}

/// Functions that all fail.
macro_rules! absent {
    ($($(#[$attribute:meta])* fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)+) => {
        $(
            $(#[$attribute])*
            pub fn $name($($argument: $type),*) -> Result<$result> {
                $(let _ = $argument;)*
                missing()
            }
        )+
    };
}

pub mod tensor {
    use super::*;

    /// Nobody can make one.
    pub enum Tensor {}

    impl Tensor {
        pub fn rank(&self) -> u32 {
            match *self {}
        }

        pub fn size(&self, _: u32) -> u32 {
            match *self {}
        }

        pub fn dimensions(&self) -> Vec<u32> {
            match *self {}
        }

        pub fn ty(&self) -> TensorType {
            match *self {}
        }

        pub fn share(&self) -> Result<Self> {
            match *self {}
        }

        pub fn read(&self, _: u64, _: u64) -> Result<Vec<u8>> {
            match *self {}
        }

        pub fn item(&self) -> Result<f32> {
            match *self {}
        }

        pub fn write(&self, _: u64, _: &[u8]) -> Result<()> {
            match *self {}
        }
    }

    absent! {
        fn create(ty: TensorType, dimensions: &[u32], bytes: &[u8]) -> Tensor;
        fn full(ty: TensorType, dimensions: &[u32], value: f64) -> Tensor;
    }
}

pub mod kernels {
    use super::tensor::Tensor;
    use super::*;

    absent! {
        fn unary(op: UnaryOp, x: &Tensor) -> Tensor;
        fn binary(op: BinaryOp, a: &Tensor, b: &Tensor) -> Tensor;
        fn compare(op: Comparison, a: &Tensor, b: &Tensor) -> Tensor;
        fn select(condition: &Tensor, a: &Tensor, b: &Tensor) -> Tensor;
        fn cast(x: &Tensor, ty: TensorType) -> Tensor;
        fn affine(x: &Tensor, scale: f32, offset: f32) -> Tensor;
        fn clamp(x: &Tensor, low: f32, high: f32) -> Tensor;
        fn leaky_relu(x: &Tensor, slope: f32) -> Tensor;
        fn power(x: &Tensor, exponent: f32) -> Tensor;
        fn soft_threshold(x: &Tensor, threshold: f32) -> Tensor;
        fn reduce(op: Reducer, x: &Tensor, axes: u32, keep: bool) -> Tensor;
        fn variance(x: &Tensor, axes: u32, correction: u32, keep: bool) -> Tensor;
        fn arg_max(x: &Tensor, axis: u32, keep: bool) -> Tensor;
        fn arg_min(x: &Tensor, axis: u32, keep: bool) -> Tensor;
        fn top_k(x: &Tensor, count: u32) -> (Tensor, Tensor);
        fn reshape(x: &Tensor, dimensions: &[u32]) -> Tensor;
        fn permute(x: &Tensor, order: &[u32]) -> Tensor;
        fn transpose(x: &Tensor) -> Tensor;
        fn expand(x: &Tensor, dimensions: &[u32]) -> Tensor;
        fn slice(x: &Tensor, starts: &[u32], sizes: &[u32], steps: &[u32]) -> Tensor;
        fn narrow(x: &Tensor, axis: u32, start: u32, size: u32) -> Tensor;
        fn pad(x: &Tensor, before: &[u32], after: &[u32], value: f32) -> Tensor;
        fn concat(tensors: &[&Tensor], axis: u32) -> Tensor;
        fn gather_rows(x: &Tensor, index: &Tensor) -> Tensor;
        fn scatter_add_rows(x: &Tensor, index: &Tensor, count: u32) -> Tensor;
        fn embedding(table: &Tensor, tokens: &Tensor) -> Tensor;
        fn one_hot(x: &Tensor, classes: u32) -> Tensor;
        fn resize(x: &Tensor, mode: Resampling, height: u32, width: u32) -> Tensor;
        fn iota(ty: TensorType, count: u32, start: i32, step: i32) -> Tensor;
        fn uniform(dimensions: &[u32], low: f32, high: f32) -> Tensor;
        fn normal(dimensions: &[u32], mean: f32, deviation: f32) -> Tensor;
        fn dropout(x: &Tensor, rate: f32) -> Tensor;
        fn matmul(a: &Tensor, b: &Tensor, scale: f32) -> Tensor;
        fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, activation: Option<UnaryOp>) -> Tensor;
        fn conv2d(
            x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, stride: Pair, padding: Pair, dilation: Pair, groups: u32
        ) -> Tensor;
        fn csr_matmul(values: &Tensor, offsets: &Tensor, columns: &Tensor, x: &Tensor) -> Tensor;
        fn csr_transposed_matmul(values: &Tensor, offsets: &Tensor, columns: &Tensor, x: &Tensor, width: u32) -> Tensor;
        fn max_pool2d(x: &Tensor, kernel: Pair, stride: Pair, padding: Pair, ceil: bool) -> Tensor;
        fn average_pool2d(
            x: &Tensor, kernel: Pair, stride: Pair, padding: Pair, ceil: bool, count_padding: bool
        ) -> Tensor;
        fn adaptive_average_pool2d(x: &Tensor, height: u32, width: u32) -> Tensor;
        fn adaptive_max_pool2d(x: &Tensor, height: u32, width: u32) -> Tensor;
        fn softmax(x: &Tensor) -> Tensor;
        fn log_softmax(x: &Tensor) -> Tensor;
        fn masked_softmax(x: &Tensor, mask: &Tensor) -> Tensor;
        #[expect(clippy::too_many_arguments, reason = "the contract's own")]
        fn batch_norm(
            x: &Tensor, scale: &Tensor, shift: &Tensor, running_mean: &Tensor, running_variance: &Tensor, momentum: f32,
            epsilon: f32, activation: Option<UnaryOp>
        ) -> Tensor;
        fn batch_norm_inference(
            x: &Tensor, scale: &Tensor, shift: &Tensor, mean: &Tensor, variance: &Tensor, epsilon: f32,
            activation: Option<UnaryOp>
        ) -> Tensor;
        fn layer_norm(x: &Tensor, scale: &Tensor, shift: &Tensor, epsilon: f32) -> Tensor;
        fn local_response_norm(x: &Tensor, size: u32, alpha: f32, beta: f32, k: f32) -> Tensor;
        fn cross_entropy(logits: &Tensor, labels: &Tensor, smoothing: f32, reduction: Reduction) -> Tensor;
        fn nll(log_probabilities: &Tensor, labels: &Tensor, reduction: Reduction) -> Tensor;
        fn binary_cross_entropy(logits: &Tensor, targets: &Tensor, reduction: Reduction) -> Tensor;
        fn hinge(predictions: &Tensor, targets: &Tensor, reduction: Reduction) -> Tensor;
        fn mse(predictions: &Tensor, targets: &Tensor, reduction: Reduction) -> Tensor;
        fn kmeans_assign(x: &Tensor, centroids: &Tensor) -> (Tensor, Tensor);
        fn kmeans_accumulate(x: &Tensor, assignment: &Tensor, clusters: u32) -> (Tensor, Tensor);
        fn assign(into: &Tensor, x: &Tensor) -> ();
        fn accumulate(into: &Tensor, x: &Tensor, scale: f32) -> ();
        fn blend(into: &Tensor, x: &Tensor, amount: f32) -> ();
        fn detach(x: &Tensor) -> Tensor;
        fn backward(loss: &Tensor) -> ();
        fn gradient(weight: &Tensor) -> Option<Tensor>;
    }
}

pub mod model {
    use super::tensor::Tensor;
    use super::*;

    absent! {
        fn declare(name: &str, role: Role, dimensions: &[u32], initial: Initial) -> Tensor;
        fn optimize(optimizer: Optimizer) -> ();
        fn clip_gradients(norm: f32) -> ();
        fn follow(schedule: Schedule) -> ();
    }
}

pub mod data {
    use super::tensor::Tensor;
    use super::*;

    pub struct Csr {
        pub offsets: Tensor,
        pub columns: Tensor,
        pub values: Tensor,
        pub width: u32,
    }

    pub fn samples() -> u32 {
        0
    }

    absent! {
        fn features() -> Tensor;
        fn sparse_features() -> Csr;
        fn labels() -> Tensor;
    }
}
