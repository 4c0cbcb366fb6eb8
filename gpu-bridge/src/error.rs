//! What can go wrong: each case is one that a caller can act on.

use crate::dtype::DType;
use crate::shape::Shape;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An operation that could not be done. Its inputs are as they were, unless the message says otherwise.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    #[error("`{op}`: {reason}")]
    BadShape { op: &'static str, reason: String },
    #[error("`{op}`: {reason}")]
    BadType { op: &'static str, reason: String },
    #[error("`{op}`: {reason}")]
    BadArgument { op: &'static str, reason: String },
    #[error("`{op}`: {what} {index} is out of range, there are {count}")]
    IndexOutOfRange { op: &'static str, what: &'static str, index: i64, count: usize },
    #[error("too large: {reason}")]
    TooLarge { reason: String },
    #[error("out of device memory: {wanted} bytes wanted, {used} of {limit} in use (limit `device_memory`)")]
    OutOfMemory { wanted: usize, used: usize, limit: usize },
    #[error(
        "the tape is full: {limit} recorded operations (limit `tape_nodes`); call `backward`, drop tensors or stop recording"
    )]
    TapeFull { limit: usize },
    #[error("cancelled")]
    Cancelled,
    #[error("`{op}`: a tensor is being written by another call")]
    Busy { op: &'static str },
    #[error(
        "backward of `{op}`: a tensor that its gradient needs was written after it was used (version {found}, needed {needed})"
    )]
    Overwritten { op: &'static str, needed: u64, found: u64 },
    #[error("backward of `{op}`: its tensors were freed by an earlier backward; run the forward operations again")]
    AlreadyBackward { op: &'static str },
    #[error("`backward` needs a loss of one element that descends from a parameter; {reason}")]
    NoGradient { reason: String },
    #[error("`{op}` has no gradient with respect to its input {input}; detach it first")]
    NotDifferentiable { op: &'static str, input: usize },
    #[error("the tensors are of different contexts")]
    ForeignTensor,
    #[error("the GPU has no room for {wanted} bytes: {reason}")]
    DeviceFull { wanted: u64, reason: String },
    #[error("device lost: {reason}")]
    DeviceLost { reason: String },
    #[error("`{op}` failed inside the device: {reason}")]
    Internal { op: &'static str, reason: String },
}

impl Error {
    pub(crate) fn too_large(reason: String) -> Self {
        Self::TooLarge { reason }
    }

    pub(crate) fn shape(op: &'static str, reason: impl Into<String>) -> Self {
        Self::BadShape { op, reason: reason.into() }
    }

    pub(crate) fn argument(op: &'static str, reason: impl Into<String>) -> Self {
        Self::BadArgument { op, reason: reason.into() }
    }

    pub(crate) fn dtype(op: &'static str, input: usize, have: DType, want: &str) -> Self {
        Self::BadType { op, reason: format!("input {input} is {have}, not {want}") }
    }

    pub(crate) fn mismatch(op: &'static str, what: &str, a: &Shape, b: &Shape) -> Self {
        Self::BadShape { op, reason: format!("{what}: {a:?} and {b:?}") }
    }
}
