//! The seam between a job's engine and its workers. Whatever passes it can be written down, as it is for workers elsewhere.
//!
//! In one process nothing is written: orders and reports share their numbers. Where the node's environment has
//! `WEFT_TEST_SEAM=written`, each is written as MessagePack and read again, which is how tests make sure that real jobs need
//! nothing that is shared. It is no setting.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use weft_core::sync::Who;

use super::worker::{Report, WorkerError};

const VARIABLE: &str = "WEFT_TEST_SEAM";
const WRITTEN: &str = "written";

/// How orders and reports pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seam {
    Shared,
    Written,
}

impl Seam {
    pub fn of_environment() -> Self {
        match std::env::var(VARIABLE) {
            Ok(value) if value == WRITTEN => {
                tracing::warn!("what passes between a job and its workers is written down and read again");
                Self::Written
            }
            _ => Self::Shared,
        }
    }

    /// What arrives on the other side.
    pub fn pass<T: Serialize + DeserializeOwned>(self, it: T) -> Result<T, WorkerError> {
        if self == Self::Shared {
            return Ok(it);
        }
        let unwritable =
            |error: &dyn std::fmt::Display| WorkerError::Node(format!("it cannot be written down: {error}"));
        let written = rmp_serde::to_vec_named(&it).map_err(|error| unwritable(&error))?;
        rmp_serde::from_slice(&written).map_err(|error| unwritable(&error))
    }
}

/// Where a worker sends its reports. The team waits until the last one of all workers is gone.
#[derive(Clone)]
pub struct Outbox {
    who: Who,
    seam: Seam,
    reports: mpsc::UnboundedSender<Report>,
}

impl Outbox {
    pub fn new(who: Who, seam: Seam, reports: mpsc::UnboundedSender<Report>) -> Self {
        Self { who, seam, reports }
    }

    pub fn send(&self, report: Report) {
        let report = self.seam.pass(report).unwrap_or_else(|error| Report::Lost { who: self.who, error });
        // A team that has gone listens no more.
        self.reports.send(report).ok();
    }

    /// Says that the worker has ended.
    pub fn lost(&self, error: WorkerError) {
        self.send(Report::Lost { who: self.who, error });
    }

    /// How orders come.
    pub fn seam(&self) -> Seam {
        self.seam
    }
}

#[cfg(test)]
mod tests {
    use super::super::numbers::Numbers;
    use super::*;

    #[test]
    fn what_is_written_shares_nothing_and_is_the_same() {
        let numbers = Numbers::from(vec![1.0, -0.0]);
        let shared = Seam::Shared.pass(numbers.clone()).unwrap();
        let written = Seam::Written.pass(numbers.clone()).unwrap();
        assert_eq!((shared.as_ptr(), &written), (numbers.as_ptr(), &numbers));
        assert_ne!(written.as_ptr(), numbers.as_ptr());
    }
}
