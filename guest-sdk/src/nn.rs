//! Layers: each declares its parameters under a [`Path`](crate::Path), with PyTorch's names and first values, and has a
//! `forward`.
//!
//! `X::new` makes a layer as it usually is; where there is more to choose, `XConfig` has it and its `init` makes the
//! layer. What behaves differently in training takes a [`Mode`]; behind the trait [`Layer`] all of them do, which is what
//! [`Sequential`] strings together.

use crate::{Result, Tensor};

pub mod activation;
pub mod attention;
pub mod batch_norm;
pub mod conv2d;
pub mod dropout;
pub mod embedding;
pub mod layer_norm;
pub mod linear;
pub mod local_response_norm;
pub mod pooling;
pub mod sequential;

pub use activation::Activation;
pub use attention::{MultiHeadAttention, MultiHeadAttentionConfig};
pub use batch_norm::{BatchNorm, BatchNormConfig};
pub use conv2d::{Conv2d, Conv2dConfig};
pub use dropout::Dropout;
pub use embedding::Embedding;
pub use layer_norm::LayerNorm;
pub use linear::{Linear, LinearConfig};
pub use local_response_norm::LocalResponseNorm;
pub use pooling::{AveragePool2d, Flatten, MaxPool2d, MeanOfPlaces};
pub use sequential::Sequential;

/// What a model is run for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Dropout drops; batches are normalized by their own statistics, which the running ones follow.
    Training,
    /// Nothing is random, and the running statistics count.
    Evaluation,
}

/// A layer among others.
pub trait Layer {
    fn forward(&self, x: &Tensor, mode: Mode) -> Result<Tensor>;
}
