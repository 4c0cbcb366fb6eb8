//! Training: a trainer, a data set and a device in, a model out.
//!
//! - [`declared`]: what a trainer declared, in memory
//! - [`worker`]: an instance with its tensors
//! - [`run`]: the loop of one worker
//! - [`files`]: a data set of this process's own
//! - [`settings`]: hyper-parameters as a caller gives them
//! - [`local`]: what training in this process needs
//! - [`save`]: declared tensors become a model's file, and back

pub mod declared;
pub mod files;
pub mod local;
pub mod run;
pub mod save;
pub mod settings;
pub mod worker;
