//! Pace: when what a worker has computed becomes part of the model.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// When workers exchange what they have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Pace {
    /// When all have finished the round.
    #[default]
    Barrier,
    /// Each gradient is applied when it arrives, and nobody is more than so many rounds ahead of the slowest (Ho et al.
    /// 2013).
    Staleness(NonZeroU32),
    /// Each gradient is applied when it arrives (Feng et al. §III-B).
    OnArrival,
    /// Each worker reads the model, trains, and overwrites it; the last one wins (LambdaML §3.2.4).
    Overwrite,
    /// Each peer averages the latest gradients of all as soon as there are enough of them (peer-to-peer §III-B6).
    Quorum(Quorum),
}

/// When a peer has heard enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quorum {
    /// Peers whose gradients are averaged, at least, its own included.
    pub peers: NonZeroU32,
    /// Gradients that their peer has computed more rounds ago than this count no more.
    pub max_age: Option<NonZeroU32>,
}

/// A text that is no pace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no pace; there are `barrier`, `staleness:2` (rounds), `on-arrival`, `overwrite`, and `quorum:3` (peers) or \
     `quorum:3,10` (peers, and the age in rounds from which a gradient counts no more)"
)]
pub struct BadPace(pub String);

impl Pace {
    /// Whether workers do not wait for each other after every round.
    pub fn is_free(self) -> bool {
        self != Self::Barrier
    }

    /// The learning rate of an epoch, counted from 0, of which the job's schedule says `rate`: those who overwrite each
    /// other take smaller steps later, by the root of the epoch (LambdaML §4.5).
    pub fn rate(self, rate: f32, epoch: u64) -> f32 {
        match self {
            Self::Overwrite => rate / ((epoch + 1) as f32).sqrt(),
            _ => rate,
        }
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Barrier => out.write_str("barrier"),
            Self::Staleness(rounds) => write!(out, "staleness:{rounds}"),
            Self::OnArrival => out.write_str("on-arrival"),
            Self::Overwrite => out.write_str("overwrite"),
            Self::Quorum(Quorum { peers, max_age: None }) => write!(out, "quorum:{peers}"),
            Self::Quorum(Quorum { peers, max_age: Some(age) }) => write!(out, "quorum:{peers},{age}"),
        }
    }
}

impl FromStr for Pace {
    type Err = BadPace;

    fn from_str(text: &str) -> Result<Self, BadPace> {
        let bad = || BadPace(text.chars().take(80).collect());
        let number = |text: &str| text.trim().parse::<NonZeroU32>().map_err(|_| bad());
        match text.split_once(':') {
            None => match text {
                "barrier" => Ok(Self::Barrier),
                "on-arrival" => Ok(Self::OnArrival),
                "overwrite" => Ok(Self::Overwrite),
                _ => Err(bad()),
            },
            Some(("staleness", rounds)) => Ok(Self::Staleness(number(rounds)?)),
            Some(("quorum", numbers)) => {
                let (peers, max_age) = match numbers.split_once(',') {
                    Some((peers, age)) => (number(peers)?, Some(number(age)?)),
                    None => (number(numbers)?, None),
                };
                Ok(Self::Quorum(Quorum { peers, max_age }))
            }
            Some(_) => Err(bad()),
        }
    }
}

impl TryFrom<String> for Pace {
    type Error = BadPace;

    fn try_from(text: String) -> Result<Self, BadPace> {
        text.parse()
    }
}

impl From<Pace> for String {
    fn from(pace: Pace) -> Self {
        pace.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pace_is_read_as_it_is_written() {
        for text in ["barrier", "staleness:2", "on-arrival", "overwrite", "quorum:3", "quorum:3,10"] {
            assert_eq!(text.parse::<Pace>().unwrap().to_string(), text);
        }
        for text in ["", "async", "staleness", "staleness:0", "staleness:-1", "quorum:0", "quorum:3,", "barrier:1"] {
            assert!(text.parse::<Pace>().is_err(), "{text}");
        }
    }

    #[test]
    fn whoever_overwrites_takes_smaller_steps_by_the_root_of_the_epoch_counted_from_1() {
        let rates = [0, 1, 3, 8].map(|epoch| Pace::Overwrite.rate(0.6, epoch));
        for (rate, expected) in rates.into_iter().zip([0.6, 0.424_264, 0.3, 0.2]) {
            assert!((rate - expected).abs() < 1e-6, "{rates:?}");
        }
        for pace in ["barrier", "staleness:2", "on-arrival", "quorum:3"] {
            assert_eq!(pace.parse::<Pace>().unwrap().rate(0.6, 8), 0.6, "{pace}");
        }
    }
}
