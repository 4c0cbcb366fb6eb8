//! What tensors, models and data are asked of: the host, in a component.
//!
//! Off wasm there is no host. With the feature `native` the operations run in this process instead, on the CPU; without
//! it each of them fails and says so. Everything else in this crate calls what is here and does not know the difference.

#[cfg(target_arch = "wasm32")]
pub use crate::bindings::weft::train::{data, kernels, model, tensor};

#[cfg(all(not(target_arch = "wasm32"), feature = "native"))]
pub mod native;
#[cfg(all(not(target_arch = "wasm32"), feature = "native"))]
pub use native::{data, kernels, model, tensor};

#[cfg(all(not(target_arch = "wasm32"), not(feature = "native")))]
mod absent;
#[cfg(all(not(target_arch = "wasm32"), not(feature = "native")))]
pub use absent::{data, kernels, model, tensor};
