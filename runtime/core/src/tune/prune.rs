//! Which trials to go on with.
//!
//! A pruner is a set of *ladders*: numbers of epochs after which a trial may have to pause. Of those that have come to a
//! rung, the best go on; the others stay paused, with a checkpoint, until there is room among the best or the study ends.
//!
//! - `none`: one ladder with one rung, all epochs
//! - `asha:3`: one ladder; of those on a rung a third goes on, without waiting for the rung to be full (Li et al. 2020, "A
//!   system for massively parallel hyperparameter tuning", algorithm 2)
//! - `hyperband:3`: several such ladders that begin ever later, for goals of which early values tell little (Li et al. 2018,
//!   "Hyperband", algorithm 1, each bracket asynchronous)
//! - `median`: a trial whose best value is worse than the median of what others had come to by then is stopped (Golovin et
//!   al. 2017, "Google Vizier", §3.2.2)

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Pruner {
    #[default]
    None,
    Median,
    /// One in so many goes on.
    Asha(u32),
    Hyperband(u32),
}

/// A text that is no pruner.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no pruner; there are `none`, `median`, and `asha:3` and `hyperband:3` (one in three goes on)")]
pub struct BadPruner(pub String);

const REDUCTION: u32 = 3;

/// So many others must have come as far before the median of what they had tells anything.
const WITNESSES: usize = 5;

impl Pruner {
    /// The epochs of the rungs of each ladder; the last rung of each is the end.
    pub fn ladders(self, least: u32, epochs: u32) -> Vec<Vec<u32>> {
        let (Self::Asha(reduction) | Self::Hyperband(reduction)) = self else { return vec![vec![epochs]] };
        let mut full: Vec<u32> = Vec::new();
        let mut rung = u64::from(least.max(1));
        while rung < u64::from(epochs) {
            full.push(rung as u32);
            rung *= u64::from(reduction.max(2));
        }
        full.push(epochs);
        match self {
            Self::Hyperband(_) => (0..full.len()).map(|from| full[from..].to_vec()).collect(),
            _ => vec![full],
        }
    }

    /// The ladder of a trial: each gets as many as Hyperband gives its bracket, spread evenly.
    pub fn ladder_of(self, ladders: &[Vec<u32>], number: u32) -> usize {
        let Self::Hyperband(reduction) = self else { return 0 };
        let weight = |ladder: &Vec<u32>| {
            let halvings = ladder.len() as i32 - 1;
            ladders.len() as f64 / f64::from(halvings + 1) * f64::from(reduction).powi(halvings)
        };
        let weights: Vec<f64> = ladders.iter().map(weight).collect();
        let sum: f64 = weights.iter().sum();
        let mut owed = vec![0.0; ladders.len()];
        let mut chosen = 0;
        for _ in 0..=number {
            for (owed, weight) in owed.iter_mut().zip(&weights) {
                *owed += weight / sum;
            }
            chosen = (1..owed.len()).fold(0, |most, other| if owed[other] > owed[most] { other } else { most });
            owed[chosen] -= 1.0;
        }
        chosen
    }

    fn reduction(self) -> Option<usize> {
        match self {
            Self::Asha(reduction) | Self::Hyperband(reduction) => Some(reduction as usize),
            Self::None | Self::Median => None,
        }
    }
}

/// A trial on a ladder.
#[derive(Clone, Debug)]
pub struct Climber {
    pub trial: u32,
    /// The values at the rungs that it has come to; lower is better.
    pub rungs: Vec<f64>,
    /// Whether it waits on the last of them.
    pub is_paused: bool,
}

/// The trial that goes on, if any: on the highest rung on which one belongs to the best that is still paused.
pub fn promoted(pruner: Pruner, rungs: usize, climbers: &[Climber]) -> Option<u32> {
    let reduction = pruner.reduction()?;
    (0..rungs.saturating_sub(1)).rev().find_map(|rung| {
        let ranked = ranked(rung, climbers);
        let best = &ranked[..ranked.len() / reduction];
        best.iter().find(|climber| climber.is_paused && climber.rungs.len() == rung + 1).map(|climber| climber.trial)
    })
}

/// With nothing else to do, the best of the highest rung goes on, so that one of a ladder comes to its end.
pub fn finalist(rungs: usize, climbers: &[Climber]) -> Option<u32> {
    let highest =
        climbers.iter().map(|climber| climber.rungs.len()).max().filter(|highest| (1..rungs).contains(highest))?;
    ranked(highest - 1, climbers).first().filter(|best| best.is_paused).map(|best| best.trial)
}

/// Who has come to a rung, the best first.
fn ranked(rung: usize, climbers: &[Climber]) -> Vec<&Climber> {
    let mut ranked: Vec<&Climber> = climbers.iter().filter(|climber| climber.rungs.len() > rung).collect();
    ranked.sort_by(|a, b| a.rungs[rung].total_cmp(&b.rungs[rung]).then(a.trial.cmp(&b.trial)));
    ranked
}

/// Whether a trial is worse than the median of the others: its best value against their mean values up to the same epoch.
/// `others` has the values of those that came as far, up to that epoch; lower is better.
pub fn is_below_median(values: &[f64], others: &[Vec<f64>]) -> bool {
    if others.len() < WITNESSES || values.is_empty() {
        return false;
    }
    let mut means: Vec<f64> = others.iter().map(|values| values.iter().sum::<f64>() / values.len() as f64).collect();
    means.sort_by(f64::total_cmp);
    let median = 0.5 * (means[(means.len() - 1) / 2] + means[means.len() / 2]);
    values.iter().copied().fold(f64::INFINITY, f64::min) > median
}

impl fmt::Display for Pruner {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => out.write_str("none"),
            Self::Median => out.write_str("median"),
            Self::Asha(reduction) => write!(out, "asha:{reduction}"),
            Self::Hyperband(reduction) => write!(out, "hyperband:{reduction}"),
        }
    }
}

impl FromStr for Pruner {
    type Err = BadPruner;

    fn from_str(text: &str) -> Result<Self, BadPruner> {
        let bad = || BadPruner(text.chars().take(80).collect());
        let reduction =
            |text: &str| text.parse().ok().filter(|reduction| (2..=1_000).contains(reduction)).ok_or_else(bad);
        match text.split_once(':') {
            None => match text {
                "none" => Ok(Self::None),
                "median" => Ok(Self::Median),
                "asha" => Ok(Self::Asha(REDUCTION)),
                "hyperband" => Ok(Self::Hyperband(REDUCTION)),
                _ => Err(bad()),
            },
            Some(("asha", factor)) => Ok(Self::Asha(reduction(factor)?)),
            Some(("hyperband", factor)) => Ok(Self::Hyperband(reduction(factor)?)),
            Some(_) => Err(bad()),
        }
    }
}

impl TryFrom<String> for Pruner {
    type Error = BadPruner;

    fn try_from(text: String) -> Result<Self, BadPruner> {
        text.parse()
    }
}

impl From<Pruner> for String {
    fn from(pruner: Pruner) -> Self {
        pruner.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn climber(trial: u32, rungs: &[f64], is_paused: bool) -> Climber {
        Climber { trial, rungs: rungs.to_vec(), is_paused }
    }

    #[test]
    fn every_pruner_is_read_as_it_is_written() {
        for text in ["none", "median", "asha:3", "hyperband:4"] {
            assert_eq!(text.parse::<Pruner>().unwrap().to_string(), text);
        }
        assert_eq!("asha".parse(), Ok(Pruner::Asha(3)));
        for text in ["", "asha:1", "asha:", "asha:x", "median:2", "sha"] {
            assert!(text.parse::<Pruner>().is_err(), "{text}");
        }
    }

    #[test]
    fn rungs_are_a_factor_apart_and_end_with_all_epochs() {
        assert_eq!(Pruner::Asha(3).ladders(1, 27), [[1, 3, 9, 27]]);
        assert_eq!(Pruner::Asha(3).ladders(2, 20), [vec![2, 6, 18, 20]]);
        assert_eq!(Pruner::Asha(3).ladders(9, 3), [[3]]);
        assert_eq!(Pruner::Hyperband(3).ladders(1, 9), [vec![1, 3, 9], vec![3, 9], vec![9]]);
        assert_eq!(Pruner::Median.ladders(1, 9), [[9]]);
    }

    #[test]
    fn hyperband_gives_early_ladders_more_trials() {
        let pruner = Pruner::Hyperband(3);
        let ladders = pruner.ladders(1, 9);
        let mut counts = [0; 3];
        (0..34).for_each(|number| counts[pruner.ladder_of(&ladders, number)] += 1);
        // Nine, four and a half, and three of each sixteen and a half.
        assert!(counts[0] > 17 && counts[1] > counts[2] && counts[2] > 4, "{counts:?}");
    }

    #[test]
    fn the_best_third_goes_on_the_highest_rung_first() {
        let pruner = Pruner::Asha(3);
        let mut climbers = vec![climber(0, &[0.3], true), climber(1, &[0.1], true)];
        assert_eq!(promoted(pruner, 3, &climbers), None);
        climbers.push(climber(2, &[0.2], true));
        assert_eq!(promoted(pruner, 3, &climbers), Some(1));
        climbers[1] = climber(1, &[0.1], false);
        assert_eq!(promoted(pruner, 3, &climbers), None, "the one that is due has gone on");
        let upper: Vec<Climber> = (0..9).map(|trial| climber(trial, &[0.1, f64::from(trial)], true)).collect();
        assert_eq!(promoted(pruner, 3, &upper), Some(0));
        assert_eq!(promoted(pruner, 2, &upper), None, "the last rung is the end");
    }

    #[test]
    fn one_comes_to_the_end_however_few_there_are() {
        let climbers = [climber(0, &[0.3], true), climber(1, &[0.1], true)];
        assert_eq!(finalist(3, &climbers), Some(1));
        assert_eq!(finalist(1, &climbers), None);
        assert_eq!(finalist(3, &[]), None);
    }

    #[test]
    fn the_median_needs_witnesses() {
        let others: Vec<Vec<f64>> = (0..5).map(|other| vec![1.0, f64::from(other)]).collect();
        assert!(is_below_median(&[2.0, 1.6], &others));
        assert!(!is_below_median(&[2.0, 1.4], &others));
        assert!(!is_below_median(&[9.0], &others[..4]));
    }
}
