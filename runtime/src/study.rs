//! Studies: many trials of a job, of which the best is looked for.
//!
//! What is tried, paused and stopped is decided by [`weft_core::tune`], which does nothing itself. A trial is a job like any
//! other; what a study adds is kept here.
//!
//! - [`record`]: what is kept and told

pub mod record;

pub use record::{KeptEvent, Outcome, Row, StudyRecord, TrialState, TuneEvent, TuneState};
pub use weft_core::tune::spec::TuneSpec;
