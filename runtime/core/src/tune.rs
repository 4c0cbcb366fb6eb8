//! Many jobs, one winner: which hyper-parameters to try next, and which trials to go on with.
//!
//! Pure, like all of this crate: a study is asked and told. What it proposes follows from its seed and from what it was
//! told, so a study that was interrupted goes on as if it had not been.
//!
//! - [`space`]: what is searched
//! - [`sampler`]: which point next
//! - [`prune`]: which trials go on
//! - [`spec`]: what can be asked, in words
//! - [`study`]: the machine of both, with workers, money and time
//! - [`steer`]: what is next for a trial that is a job
//! - [`importance`]: which parameters mattered
//! - [`chance`]: random numbers that can be drawn again

pub mod chance;
pub mod importance;
pub mod prune;
pub mod sampler;
pub mod space;
pub mod spec;
pub mod steer;
pub mod study;
