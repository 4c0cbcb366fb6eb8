//! What workers exchange, and after how many steps.

use std::num::NonZeroU64;

/// How often something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Every {
    Steps(NonZeroU64),
    Epoch,
}

/// How many workers train one model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The gradients of every step are averaged, and the model takes the step.
    GradientAverage,
    /// Each worker takes steps of its own; now and then their weights are averaged.
    KAverage(Every),
    /// Each worker counts over its whole shard; the counts are added up, and become the model.
    StatisticSum,
}

/// What a worker hands over at the end of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    Gradients,
    Weights,
    Statistics,
}

impl Rule {
    /// What `workers` exchange. One worker alone has nobody to average with: it takes its steps itself.
    pub fn exchange(self, workers: u32) -> Exchange {
        match self {
            Self::GradientAverage if workers == 1 => Exchange::Weights,
            Self::GradientAverage => Exchange::Gradients,
            Self::KAverage(_) => Exchange::Weights,
            Self::StatisticSum => Exchange::Statistics,
        }
    }

    /// How many steps the round has that starts after `done` of an epoch's `steps`. Never beyond the epoch.
    pub fn round(self, workers: u32, done: u64, steps: u64) -> u64 {
        let left = steps.saturating_sub(done);
        match self {
            Self::GradientAverage if workers > 1 => left.min(1),
            Self::KAverage(Every::Steps(every)) if workers > 1 => left.min(every.get()),
            _ => left,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(rule: Rule, workers: u32, steps: u64) -> Vec<u64> {
        let mut rounds = Vec::new();
        while rounds.iter().sum::<u64>() < steps {
            rounds.push(rule.round(workers, rounds.iter().sum(), steps));
        }
        rounds
    }

    #[test]
    fn rounds_fill_an_epoch_and_no_more() {
        let three = Rule::KAverage(Every::Steps(NonZeroU64::new(3).unwrap()));
        assert_eq!(rounds(three, 2, 8), [3, 3, 2]);
        assert_eq!(rounds(Rule::GradientAverage, 2, 3), [1, 1, 1]);
        assert_eq!(rounds(Rule::KAverage(Every::Epoch), 2, 8), [8]);
        assert_eq!(rounds(Rule::StatisticSum, 2, 8), [8]);
    }

    #[test]
    fn one_worker_averages_with_nobody() {
        assert_eq!(rounds(Rule::GradientAverage, 1, 8), [8]);
        assert_eq!(Rule::GradientAverage.exchange(1), Exchange::Weights);
        assert_eq!(Rule::GradientAverage.exchange(2), Exchange::Gradients);
    }
}
