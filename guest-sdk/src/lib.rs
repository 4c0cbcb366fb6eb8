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
//! `weft new` starts a project like this, `weft build` makes a component of it, `weft deploy` puts it on a node.
//!
//! # Layout
//!
//! - [`Request`] and [`Response`]: what a task gets and gives.
//! - [`Error`], [`Result`] and [`Context`]: how it fails; `?` takes any error.
//! - [`job`]: the run it is part of; [`debug!`], [`info!`], [`warn!`] and [`error!`] write to its log.
//! - [`function`]: the attribute that makes a plain function a component's export.
//!
//! This is a thin, typed layer over `wit/` and knows nothing of the runtime behind it. A component imports only the
//! interfaces that its function calls. Each request meets a fresh instance, so a `static` is no cache.
//!
//! The crate brings a global allocator that makes cold starts quicker; `default-features = false` leaves that to you.

// The generated bindings and macros name this crate as a user's crate would.
extern crate self as weft_sdk;

#[cfg(all(feature = "allocator", any(target_arch = "wasm32", test)))]
mod allocator;
#[doc(hidden)]
pub mod bindings;
mod error;
pub mod job;
mod panic;
mod task;

pub use error::{Context, Error, Result};
pub use task::{Request, Response};
/// Exports a plain function as a task.
///
/// The function takes a [`Request`] and returns a [`Result<Response>`]. A crate has exactly one.
///
/// When it panics, the message goes to its log before the instance is torn down. `#[weft_sdk::function(silent_panics)]`
/// does without, and so without importing [`job`].
pub use weft_sdk_macros::function;

/// What the macros expand to. Not for use by hand: it changes without notice.
#[doc(hidden)]
pub mod __private {
    pub use crate::panic::log_panics;
    pub use wit_bindgen;
}
