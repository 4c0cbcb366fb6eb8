//! Tensors for Weft: operations, gradients, and the devices that run them. Knows nothing of wasm or HTTP.
//!
//! # Layout
//! - [`op`]: one type per operation with its device-neutral spec: shapes, types, gradient rule, cost
//! - [`Tensor`], [`Context`]: what a worker holds, and the operations as methods
//! - [`DType`], [`Shape`], [`Axes`], [`Layout`]: what a tensor is; [`Error`]: why something was refused
//! - [`tape`]: autograd, what a gradient rule works with
//! - [`models`]: networks that people train, ready made
//! - [`arena`]: all parameters of a model in one buffer, and optimizers over it
//! - [`codec`]: what workers exchange, in fewer bytes
//! - [`device`]: the traits, and the devices: [`device::cpu`]
//! - [`crew`], [`run`], [`heap`]: threads, tiles and memory of one call
//! - [`pool`]: the machine's devices, leased to many tenants; [`share`]: who of them is next
//!
//! A parameter is a tensor that gradients flow to. What is computed from it is recorded as it runs, and
//! [`Tensor::backward`] goes back from a loss; gradients add up until they are cleared. [`Arena`] holds the parameters
//! of a whole model, and its optimizers.
//!
//! ```
//! use std::sync::Arc;
//! use weft_gpu::{Context, Crew, Limits, device::cpu::Cpu};
//!
//! let context = Context::new(Arc::new(Cpu::new()), Arc::new(Crew::new(2)), Limits::default());
//! let x = context.tensor(&[2, 3], &[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
//! let weight = context.tensor(&[3, 1], &[0.5_f32, 0.0, -0.5])?.parameter(None)?;
//! let loss = x.matmul(&weight)?.sum()?;
//! loss.backward()?;
//! assert_eq!(loss.item()?, -2.0);
//! assert_eq!(weight.gradient().unwrap().to_vec::<f32>()?, [5.0, 7.0, 9.0]);
//! # Ok::<(), weft_gpu::Error>(())
//! ```

pub mod arena;
pub mod codec;
mod context;
pub mod crew;
pub mod device;
mod dtype;
mod error;
pub mod heap;
pub mod line;
pub mod models;
pub mod op;
pub mod pool;
pub mod run;
pub mod schedule;
mod shape;
pub mod share;
pub mod tape;
mod tensor;
mod threads;

pub use arena::{Arena, ArenaBuilder, OptimizerState};
pub use codec::{Codec, Encoded, Feedback};
pub use context::{Context, Limits, NoGrad, Tensors};
pub use crew::Crew;
pub use dtype::{DType, Element};
pub use error::{Error, Result};
pub use pool::{Lease, Pool, Request};
pub use run::Cancel;
pub use shape::{Axes, Layout, MAX_ELEMENTS, MAX_RANK, Shape};
pub use tensor::Tensor;
