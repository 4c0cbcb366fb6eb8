//! How what workers compute becomes one model: pure state machines, events in, actions out.
//!
//! Nothing here waits, reads or writes: the job engine does that, and tells what has happened. So every way to go wrong can
//! be tried by the thousand.
//!
//! - [`rule`]: what is exchanged, after how many steps, how it is merged; [`admm`]: the arithmetic of one of the rules
//! - [`topology`]: who merges whose contributions: a graph of merges, a function of the number of workers
//! - [`pace`]: when contributions become part of the model
//! - [`channel`]: through what they travel; [`slot`]: under which names
//! - [`barrier`]: the machine of rounds that everybody waits for; who is lost, started again, or left out
//! - [`arrivals`]: the machine of workers that do not wait for each other
//! - [`merge`]: many workers' numbers become one's, in the order of the workers
//! - [`combination`]: which of these values go together, and why others do not

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub mod accumulate;
pub mod admm;
pub mod arrivals;
pub mod barrier;
pub mod channel;
pub mod combination;
pub mod merge;
pub mod pace;
pub mod rule;
pub mod slot;
pub mod topology;
pub(crate) mod words;

pub use admm::{Admm, Penalty};
pub use barrier::{Action, Barrier, Event, Who};
pub use channel::ChannelKind;
pub use pace::{Pace, Quorum};
pub use rule::{Every, Handover, Position, Row, Rule, RuleKind, Stretch};
pub use slot::Slot;
pub use topology::{MergePlan, Topology};

/// What becomes of a round whose worker is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnLoss {
    /// The worker is started again and does its share: the result has the same bits as without the loss.
    #[default]
    Wait,
    /// The round is merged from who is there; the worker is back in a later one.
    Drop,
}

words::words!(OnLoss, "what to do about a lost worker", "wait" => Wait, "drop" => Drop);

/// How the workers of a job work together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sync {
    pub rule: Rule,
    pub topology: Topology,
    pub pace: Pace,
    /// By its name.
    pub codec: String,
    pub channel: ChannelKind,
    /// How closely the workers of ADMM must agree for the job to be over.
    pub tolerance: Option<f64>,
    /// Weights that ADMM does not penalise, beside biases, by their names.
    #[serde(default)]
    pub unpenalised: Vec<String>,
}
