//! Why a worker ended.

use serde::{Deserialize, Serialize};
use weft_gpu::pool::PoolError;

use crate::dataset::batches::{BatchError, Cause};
use crate::job::channel::ChannelError;
use crate::sandbox::InvokeError;
use crate::train::run::TrainError;

/// Why a worker ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum WorkerError {
    #[error("{0}")]
    Train(String),
    /// It needed more memory than it may have.
    #[error("{0}")]
    OutOfMemory(String),
    /// What the node could not do for it: read its samples, give it memory, keep its device.
    #[error("{0}")]
    Node(String),
    #[error("no device: {0}")]
    Device(String),
    #[error("it was killed")]
    Killed,
    #[error("it was stopped")]
    Stopped,
    #[error("it did not finish its round within `straggler` = {0} ms")]
    Straggler(u64),
    #[error("it panicked; the node's log says where")]
    Panicked,
    #[error("no thread could be started: {0}")]
    Thread(String),
}

impl WorkerError {
    /// Whether it may be gone when it is tried again later, whatever the function is.
    pub fn passes(&self) -> bool {
        matches!(self, Self::Node(_) | Self::Device(_) | Self::Thread(_))
    }
}

impl From<PoolError> for WorkerError {
    fn from(error: PoolError) -> Self {
        Self::Device(error.to_string())
    }
}

impl From<TrainError> for WorkerError {
    fn from(error: TrainError) -> Self {
        match error {
            TrainError::Data(error) => error.into(),
            TrainError::Trainer(error) => error.into(),
            TrainError::Device(error) => error.into(),
            other => Self::Train(other.to_string()),
        }
    }
}

impl From<InvokeError> for WorkerError {
    fn from(error: InvokeError) -> Self {
        match (error.is_the_nodes_fault(), error.is_out_of_memory()) {
            (true, _) => Self::Node(error.to_string()),
            (false, true) => Self::OutOfMemory(error.to_string()),
            (false, false) => Self::Train(error.to_string()),
        }
    }
}

impl From<weft_gpu::Error> for WorkerError {
    fn from(error: weft_gpu::Error) -> Self {
        match error {
            weft_gpu::Error::DeviceLost { .. } | weft_gpu::Error::DeviceFull { .. } => Self::Node(error.to_string()),
            weft_gpu::Error::OutOfMemory { .. } => Self::OutOfMemory(error.to_string()),
            _ => Self::Train(error.to_string()),
        }
    }
}

impl From<ChannelError> for WorkerError {
    fn from(error: ChannelError) -> Self {
        match error.passes() {
            true => Self::Node(error.to_string()),
            false => Self::Train(error.to_string()),
        }
    }
}

impl From<BatchError> for WorkerError {
    fn from(error: BatchError) -> Self {
        match &error.cause {
            // A block that is not there will not come back.
            Cause::Read { error: cause, .. } if cause.kind() != std::io::ErrorKind::NotFound => {
                Self::Node(error.to_string())
            }
            Cause::Thread(_) => Self::Node(error.to_string()),
            Cause::Device(weft_gpu::Error::OutOfMemory { .. }) => Self::OutOfMemory(error.to_string()),
            _ => Self::Train(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::LimitHit;

    #[test]
    fn what_the_node_could_not_do_for_a_worker_passes_and_what_its_function_did_does_not() {
        let memory = |name| InvokeError::Limit(LimitHit::Memory { name, limit: 1 });
        let said = |kind| InvokeError::Function { kind, message: "so".to_owned() };
        let lost = || weft_gpu::Error::DeviceLost { reason: "reset".to_owned() };
        for error in [memory("max_memory"), InvokeError::Host("no thread".to_owned()), said("device-lost")] {
            assert!(WorkerError::from(error.clone()).passes(), "{error}");
            assert!(WorkerError::from(TrainError::from(error.clone())).passes(), "{error}");
        }
        assert!(WorkerError::from(lost()).passes() && WorkerError::from(TrainError::from(lost())).passes());
        let trap = InvokeError::Trap { trap: "unreachable".to_owned(), said: None };
        for error in [memory("memory"), said("other"), InvokeError::Limit(LimitHit::Wall(1)), trap] {
            assert!(!WorkerError::from(error.clone()).passes(), "{error}");
        }
        assert!(!WorkerError::from(weft_gpu::Error::OutOfMemory { wanted: 1, used: 1, limit: 1 }).passes());
    }
}
