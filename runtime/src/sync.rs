//! How what workers compute becomes one model: pure state machines, events in, actions out.
//!
//! Nothing here waits, reads or writes: the [`job`](crate::job) engine does that, and tells what has happened. So every
//! way to go wrong can be tried by the thousand.
//!
//! - [`rule`]: what is exchanged, and after how many steps
//! - [`barrier`]: the pace at which everybody waits for everybody; who is lost, started again, or left out
//! - [`merge`]: many workers' numbers become one's, in the order of the workers
//!
//! A topology or a channel decides by which way contributions travel, a codec how they are written down; in memory they
//! travel as they are.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub mod barrier;
pub mod merge;
pub mod rule;

pub use barrier::{Action, Barrier, Event, Who};
pub use rule::{Every, Exchange, Rule};

/// When workers exchange what they have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Pace {
    /// When all have finished the round.
    #[default]
    Barrier,
}

/// What becomes of a round whose worker is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnLoss {
    /// The worker is started again and does its share: the result has the same bits as without the loss.
    #[default]
    Wait,
    /// The round is merged from who is there; the worker is back in a later one.
    Drop,
}
