//! Policies by name, and what their names say about limits.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::plan::aim::Limits;
use crate::plan::words::{number, seconds};

/// Who decides how many workers a job has, and how large they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Policy {
    /// People.
    #[default]
    Manual,
    /// One worker more or fewer, by KubeML's rule.
    Elastic,
    /// More workers until that is no faster, then back to the best.
    Best,
    /// The cheapest shape.
    Cheapest,
    /// The cheapest shape that is done within so many seconds.
    CheapestWithin(f64),
    /// The fastest shape.
    Fastest,
    /// The fastest shape that costs at most so much.
    FastestWithin(f64),
    /// The memory with the least cost, by Feng et al.
    FengCost,
    /// The memory with the most performance for its cost, by Feng et al.
    FengRatio,
}

/// What is no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPolicy {
    #[error(
        "`{0}` is no policy: use `manual`, `elastic`, `best`, `cheapest`, `cheapest-within:10m`, `fastest`, \
         `fastest-within:0.50`, `feng-cost` or `feng-ratio`"
    )]
    Unknown(String),
    #[error("`{0}` is no time above 0: write it as in `cheapest-within:10m`")]
    Time(String),
    #[error("`{0}` is no amount above 0: write it as in `fastest-within:0.50`")]
    Amount(String),
}

impl Policy {
    /// The limits of a job, with those of its policy where they are tighter.
    pub fn limits(&self, of_job: &Limits) -> Limits {
        let tighter = |one: Option<f64>, other: f64| Some(one.map_or(other, |it| it.min(other)));
        match *self {
            Self::CheapestWithin(most) => Limits { seconds: tighter(of_job.seconds, most), ..*of_job },
            Self::FastestWithin(most) => Limits { cost: tighter(of_job.cost, most), ..*of_job },
            _ => *of_job,
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Manual => out.write_str("manual"),
            Self::Elastic => out.write_str("elastic"),
            Self::Best => out.write_str("best"),
            Self::Cheapest => out.write_str("cheapest"),
            Self::CheapestWithin(seconds) => write!(out, "cheapest-within:{seconds}s"),
            Self::Fastest => out.write_str("fastest"),
            Self::FastestWithin(cost) => write!(out, "fastest-within:{cost}"),
            Self::FengCost => out.write_str("feng-cost"),
            Self::FengRatio => out.write_str("feng-ratio"),
        }
    }
}

impl FromStr for Policy {
    type Err = BadPolicy;

    fn from_str(text: &str) -> Result<Self, BadPolicy> {
        let short = |text: &str| text.chars().take(60).collect::<String>();
        match text.split_once(':') {
            None => match text {
                "manual" => Ok(Self::Manual),
                "elastic" => Ok(Self::Elastic),
                "best" => Ok(Self::Best),
                "cheapest" => Ok(Self::Cheapest),
                "fastest" => Ok(Self::Fastest),
                "feng-cost" => Ok(Self::FengCost),
                "feng-ratio" => Ok(Self::FengRatio),
                "cheapest-within" => Err(BadPolicy::Time(String::new())),
                "fastest-within" => Err(BadPolicy::Amount(String::new())),
                other => Err(BadPolicy::Unknown(short(other))),
            },
            Some(("cheapest-within", time)) => {
                let seconds = seconds(time).filter(|it| *it > 0.0 && it.is_finite());
                seconds.map(Self::CheapestWithin).ok_or_else(|| BadPolicy::Time(short(time)))
            }
            Some(("fastest-within", amount)) => {
                let cost = number(amount).filter(|it| *it > 0.0);
                cost.map(Self::FastestWithin).ok_or_else(|| BadPolicy::Amount(short(amount)))
            }
            Some(_) => Err(BadPolicy::Unknown(short(text))),
        }
    }
}

impl TryFrom<String> for Policy {
    type Error = BadPolicy;

    fn try_from(text: String) -> Result<Self, BadPolicy> {
        text.parse()
    }
}

impl From<Policy> for String {
    fn from(policy: Policy) -> Self {
        policy.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_is_read_as_it_is_written() {
        for text in ["manual", "elastic", "best", "cheapest", "fastest", "feng-cost", "feng-ratio"] {
            assert_eq!(text.parse::<Policy>().unwrap().to_string(), text);
        }
        for (text, policy) in [
            ("cheapest-within:10m", Policy::CheapestWithin(600.0)),
            ("cheapest-within:0.1s", Policy::CheapestWithin(0.1)),
            ("fastest-within:0.50", Policy::FastestWithin(0.5)),
        ] {
            assert_eq!(text.parse(), Ok(policy));
            let written = serde_json::to_string(&policy).unwrap();
            assert_eq!(serde_json::from_str::<Policy>(&written).unwrap(), policy);
        }
    }

    #[test]
    fn what_is_no_policy_says_how_one_is_written() {
        for (text, words) in [
            ("quick", "`cheapest-within:10m`"),
            ("elastic:3", "is no policy"),
            ("cheapest-within", "as in `cheapest-within:10m`"),
            ("cheapest-within:10", "as in `cheapest-within:10m`"),
            ("cheapest-within:-1s", "as in `cheapest-within:10m`"),
            ("fastest-within:nan", "as in `fastest-within:0.50`"),
        ] {
            let error = text.parse::<Policy>().unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn the_tighter_of_two_limits_counts() {
        let limits = Limits { seconds: Some(10.0), cost: Some(1.0) };
        assert_eq!(Policy::CheapestWithin(5.0).limits(&limits).seconds, Some(5.0));
        assert_eq!(Policy::CheapestWithin(50.0).limits(&limits).seconds, Some(10.0));
        assert_eq!(Policy::FastestWithin(0.5).limits(&Limits::default()).cost, Some(0.5));
        assert_eq!(Policy::Elastic.limits(&limits), limits);
    }
}
