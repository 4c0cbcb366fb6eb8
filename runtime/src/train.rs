//! Training: a trainer, a data set and a device in, a model out.
//!
//! - [`declared`]: what a trainer declared, in memory
//! - [`description`]: what it says of itself, within limits
//! - [`worker`]: an instance with its tensors
//! - [`run`]: steps, evaluations and inference of one worker
//! - [`files`]: a data set of this process's own
//! - [`settings`]: hyper-parameters as a caller gives them
//! - [`load`]: a model's file becomes declared tensors

pub mod declared;
pub mod description;
pub mod files;
pub mod load;
pub mod run;
pub mod settings;
pub mod worker;
