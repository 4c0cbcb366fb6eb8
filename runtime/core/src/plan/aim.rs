//! What a plan is to achieve, and within what.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::words::{money, spoken};

/// What is to be the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Aim {
    Cheapest,
    Fastest,
}

/// What may be used, at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
}

impl Limits {
    /// As words that follow on a sentence: nothing, or ` within 10.0 min`.
    pub fn words(&self) -> String {
        let seconds = self.seconds.map(|it| format!(" within {}", spoken(it)));
        let cost = self.cost.map(|it| format!(" for at most {}", money(it)));
        seconds.into_iter().chain(cost).collect()
    }
}
