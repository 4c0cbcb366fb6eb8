//! Rules: what workers exchange, after how many steps, how it is merged, and what stays with each of them.
//!
//! A rule is described by a few small values ([`Exchange`], [`Stretch`]) that the job engine goes by; nothing outside this
//! file needs to know which rule it follows.

use std::num::{NonZeroU32, NonZeroU64};

use serde::{Deserialize, Serialize};

use super::admm::Admm;
use super::words::words;

/// How often the weights of k-average are averaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Every {
    Steps(NonZeroU64),
    Epochs(NonZeroU32),
    /// Once, when all epochs are done: one-shot averaging.
    End,
}

/// How many workers train one model.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Rule {
    /// The gradients of every step are averaged, and the model takes the step.
    GradientAverage,
    /// Each worker takes steps of its own; now and then their weights are averaged.
    KAverage(Every),
    /// Each worker counts over its whole shard; the counts are added up, and become the model.
    StatisticSum,
    /// Each worker minimises its own loss plus a term that pulls it to the others; what they agree on is the model.
    Admm(Admm),
}

/// A rule by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RuleKind {
    GradientAverage,
    KAverage,
    StatisticSum,
    Admm,
}

words!(RuleKind, "a rule",
    "gradient-average" => GradientAverage, "k-average" => KAverage, "statistic-sum" => StatisticSum, "admm" => Admm);

/// What a worker hands over at the end of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exchange {
    /// Merged by mean; one optimizer, the same for all, takes the step.
    Gradients,
    /// Merged by mean, and become the model. Each worker has an optimizer of its own.
    Weights,
    /// Merged by sum; the function's `update` makes the model of them.
    Statistics,
    /// Weights plus scaled duals, merged by mean; a proximal step makes the model of them.
    Duals,
}

/// Steps that workers take before they hand something over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    pub steps: u64,
    /// Whether workers start again from the merged model afterwards. Otherwise each goes on from its own weights, which
    /// are handed over all the same, for validation and checkpoints.
    pub joins: bool,
}

/// Where a job is between two rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Epochs that are done, and all of them.
    pub epoch: u64,
    pub epochs: u64,
    /// Steps of this epoch that are done, and all of them.
    pub done: u64,
    pub steps: u64,
}

impl Rule {
    pub fn kind(self) -> RuleKind {
        match self {
            Self::GradientAverage => RuleKind::GradientAverage,
            Self::KAverage(_) => RuleKind::KAverage,
            Self::StatisticSum => RuleKind::StatisticSum,
            Self::Admm(_) => RuleKind::Admm,
        }
    }

    /// What `workers` exchange. One worker alone has nobody to average with: it takes its steps itself.
    pub fn exchange(self, workers: u32) -> Exchange {
        match self {
            Self::GradientAverage if workers == 1 => Exchange::Weights,
            Self::GradientAverage => Exchange::Gradients,
            Self::KAverage(_) => Exchange::Weights,
            Self::StatisticSum => Exchange::Statistics,
            Self::Admm(_) => Exchange::Duals,
        }
    }

    /// The next stretch. It never goes beyond the epoch, so that an epoch's end is always between two of them.
    pub fn stretch(self, workers: u32, at: Position) -> Stretch {
        let left = at.steps.saturating_sub(at.done);
        let whole = Stretch { steps: left, joins: true };
        let every_epochs = |epochs: u64| {
            let ended = at.epoch + 1;
            Stretch { steps: left, joins: ended == at.epochs || ended.is_multiple_of(epochs) }
        };
        match self {
            Self::GradientAverage if workers > 1 => Stretch { steps: left.min(1), joins: true },
            Self::KAverage(Every::Steps(every)) if workers > 1 => Stretch { steps: left.min(every.get()), joins: true },
            Self::KAverage(Every::Epochs(epochs)) if workers > 1 => every_epochs(epochs.get().into()),
            Self::KAverage(Every::End) if workers > 1 => Stretch { steps: left, joins: at.epoch + 1 == at.epochs },
            Self::Admm(admm) => every_epochs(admm.epochs.get().into()),
            Self::GradientAverage | Self::KAverage(_) | Self::StatisticSum => whole,
        }
    }

    /// Whether nothing is lost if all workers go on from the model after so many epochs: those of ADMM are in the middle of
    /// something between two of its rounds.
    pub fn has_met(self, epochs: u64) -> bool {
        match self {
            Self::Admm(admm) => epochs.is_multiple_of(admm.epochs.get().into()),
            Self::GradientAverage | Self::KAverage(_) | Self::StatisticSum => true,
        }
    }

    /// Whether workers have weights of their own that differ from the model between two stretches.
    pub fn keeps_weights(self) -> bool {
        matches!(self, Self::Admm(_) | Self::KAverage(Every::Epochs(_) | Every::End))
    }
}

impl Exchange {
    /// Whether contributions are added up rather than averaged.
    pub fn is_sum(self) -> bool {
        self == Self::Statistics
    }

    /// Whether each worker's optimizer takes a step after every batch.
    pub fn descends(self) -> bool {
        matches!(self, Self::Weights | Self::Duals)
    }

    /// Whether all workers share one optimizer's state.
    pub fn shares_optimizer(self) -> bool {
        self == Self::Gradients
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::admm::Penalty;

    fn position(epoch: u64, done: u64) -> Position {
        Position { epoch, epochs: 5, done, steps: 8 }
    }

    fn stretches(rule: Rule, workers: u32) -> Vec<u64> {
        let mut stretches = Vec::new();
        while stretches.iter().sum::<u64>() < 8 {
            stretches.push(rule.stretch(workers, position(0, stretches.iter().sum())).steps);
        }
        stretches
    }

    fn joins(rule: Rule) -> Vec<bool> {
        (0..5).map(|epoch| rule.stretch(2, position(epoch, 0)).joins).collect()
    }

    #[test]
    fn stretches_fill_an_epoch_and_no_more() {
        let three = Rule::KAverage(Every::Steps(NonZeroU64::new(3).unwrap()));
        assert_eq!(stretches(three, 2), [3, 3, 2]);
        assert_eq!(stretches(Rule::GradientAverage, 2), [1; 8]);
        assert_eq!(stretches(Rule::KAverage(Every::Epochs(NonZeroU32::MIN)), 2), [8]);
        assert_eq!(stretches(Rule::StatisticSum, 2), [8]);
    }

    #[test]
    fn weights_join_every_so_many_epochs_and_always_at_the_end() {
        let two = NonZeroU32::new(2).unwrap();
        assert_eq!(joins(Rule::KAverage(Every::Epochs(two))), [false, true, false, true, true]);
        assert_eq!(joins(Rule::KAverage(Every::End)), [false, false, false, false, true]);
        let admm = Admm { rho: 0.01, lambda: 0.01, penalty: Penalty::L1, epochs: two };
        assert_eq!(joins(Rule::Admm(admm)), [false, true, false, true, true]);
        assert_eq!(
            (0..4).map(|epochs| Rule::Admm(admm).has_met(epochs)).collect::<Vec<_>>(),
            [true, false, true, false]
        );
    }

    #[test]
    fn one_worker_averages_with_nobody() {
        assert_eq!(stretches(Rule::GradientAverage, 1), [8]);
        assert_eq!(Rule::GradientAverage.exchange(1), Exchange::Weights);
        assert_eq!(Rule::GradientAverage.exchange(2), Exchange::Gradients);
    }
}
