//! What tensors, models and data are asked of: the host, in a component.
//!
//! Off wasm there is no host, and each of them fails and says so. Everything else in this crate calls what is here and
//! does not know the difference.

#[cfg(target_arch = "wasm32")]
pub use crate::bindings::weft::train::{data, kernels, model, tensor};

#[cfg(not(target_arch = "wasm32"))]
mod absent;
#[cfg(not(target_arch = "wasm32"))]
pub use absent::{data, kernels, model, tensor};
