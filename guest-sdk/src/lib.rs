//! Write Weft functions in Rust.
//!
//! ```
//! use weft_sdk::{Request, Response, Result};
//!
//! #[weft_sdk::function]
//! fn shout(request: Request) -> Result<Response> {
//!     let text = request.text()?;
//!     weft_sdk::info!("{} bytes to shout", text.len());
//!     Ok(Response::text(text.to_uppercase()))
//! }
//! ```
//!
//! That is a task: bytes in, bytes out. A trainer declares a model and says what it makes of samples: see
//! [`mod@trainer`].
//!
//! `weft new` starts a project, `weft build` makes a component of it, `weft deploy` puts it on a node.
//!
//! # Layout
//!
//! - [`Request`] and [`Response`]: what a task gets and gives; [`function`](macro@function) makes a plain function one.
//! - [`Trainer`]: a function that trains a model; [`trainer`](macro@trainer) exports it, [`hyper`] is what its caller may
//!   choose, [`model`] what it declares, [`data`] what it learns from.
//! - [`Tensor`]: arrays of numbers on the host's device, and all that is computed with them.
//! - [`nn`], [`loss`], [`optim`], [`metric`]: layers, and what else a model is trained with.
//! - [`params`]: the parameter store, for tasks.
//! - [`Error`], [`Result`] and [`Context`]: how a function fails; `?` takes any error.
//! - [`job`]: the run it is part of; [`debug!`], [`info!`], [`warn!`] and [`error!`] write to its log.
//!
//! This is a thin, typed layer over `wit/` and knows nothing of the runtime behind it. A component imports only the
//! interfaces that its function calls. Each request to a task meets a fresh instance, so a `static` is no cache.
//!
//! The crate brings a global allocator that makes cold starts quicker; `default-features = false` leaves that to you.
//! Off wasm there is no host: `job` has stand-ins, and tensors work with the feature `native`, whose `native::Session`
//! runs a trainer in its own tests.

// The generated bindings and macros name this crate as a user's crate would.
extern crate self as weft_sdk;

#[cfg(all(feature = "allocator", any(target_arch = "wasm32", test)))]
mod allocator;
#[doc(hidden)]
pub mod bindings;
pub mod data;
mod error;
mod host;
pub mod hyper;
pub mod job;
pub mod loss;
pub mod metric;
pub mod model;
#[cfg(all(not(target_arch = "wasm32"), feature = "native"))]
pub mod native;
pub mod nn;
pub mod optim;
mod panic;
pub mod params;
mod task;
pub mod tensor;
pub mod trainer;

pub use error::{Context, Error, Result};
pub use hyper::HyperParameters;
pub use metric::Metric;
pub use model::Path;
pub use task::{Request, Response};
pub use tensor::Tensor;
pub use trainer::{Report, Trainer};
/// Makes a struct describe itself as hyper-parameters and parse a caller's settings; see [`hyper`].
pub use weft_sdk_macros::HyperParameters;
/// Exports a plain function as a task.
///
/// The function takes a [`Request`] and returns a [`Result<Response>`]. A crate has exactly one.
///
/// When it panics, the message goes to its log before the instance is torn down. `#[weft_sdk::function(silent_panics)]`
/// does without, and so without importing [`job`].
pub use weft_sdk_macros::function;
/// Exports an `impl Trainer for …` as a trainer. A crate has exactly one.
///
/// The doc comment of the `impl` is the function's summary. In parentheses, as far as they hold:
/// - `convex`: the loss has one minimum;
/// - `makes_data`: it needs no data set;
/// - `eager`: a step's operations depend on the values it meets, so that it cannot be recorded once and replayed;
/// - `silent_panics`: a panic's message is not logged, and [`job`] not imported for it.
pub use weft_sdk_macros::trainer;

/// What the macros expand to. Not for use by hand: it changes without notice.
#[doc(hidden)]
pub mod __private {
    pub use crate::panic::log_panics;
    pub use wit_bindgen;
}
