//! Rules: what workers exchange, after how many steps, how it is merged, and what stays with each of them.
//!
//! The job engine asks a rule what it needs to know: what is read from a worker's device ([`Row`]), how contributions are
//! merged and by whom the model is made of them ([`Handover`]), when ([`Stretch`]), what stays, and what becomes of a mean.
//! Only what a job asks for, what goes together, and this file name rules.

use std::num::{NonZeroU32, NonZeroU64};
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::admm::{Admm, Local, Residuals};
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
pub enum Handover {
    /// Merged by mean; one optimizer, the same for all, takes the step.
    Gradients,
    /// Merged by mean, and become the model. Each worker has an optimizer of its own.
    Weights,
    /// Merged by sum; the function's `update` makes the model of them.
    Statistics,
    /// Weights plus scaled duals, merged by mean; a proximal step makes the model of them.
    Duals,
}

/// Numbers on a worker's device that a contribution is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    Gradients,
    Weights,
    Statistics,
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
    pub fn exchange(self, workers: u32) -> Handover {
        match self {
            Self::GradientAverage if workers == 1 => Handover::Weights,
            Self::GradientAverage => Handover::Gradients,
            Self::KAverage(_) => Handover::Weights,
            Self::StatisticSum => Handover::Statistics,
            Self::Admm(_) => Handover::Duals,
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

    /// Steps of a worker between two exchanges where workers do not wait for each other, in an epoch of so many.
    pub fn free_stretch(self, steps: u64) -> NonZeroU64 {
        let every = match self {
            Self::KAverage(Every::Steps(every)) => every.get(),
            Self::GradientAverage => 1,
            Self::KAverage(Every::Epochs(_) | Every::End) | Self::StatisticSum | Self::Admm(_) => steps,
        };
        NonZeroU64::new(every).unwrap_or(NonZeroU64::MIN)
    }

    /// Whether each worker has duals, which are added to what it hands over and grow by how far it is from the model when
    /// a round ends. Its optimizer begins anew then.
    pub fn keeps_duals(self) -> bool {
        matches!(self, Self::Admm(_))
    }

    /// Whether a worker's samples must be the same in every epoch: what it minimises is the loss of its own.
    pub fn same_samples_every_epoch(self) -> bool {
        matches!(self, Self::Admm(_))
    }

    /// Whether optimizers let go of the weight decay that functions declare, because the rule has a penalty of its own.
    pub fn without_decay(self) -> bool {
        matches!(self, Self::Admm(_))
    }

    /// How strongly workers are pulled to the model that a round began with, if they are.
    pub fn pull(self) -> Option<f32> {
        match self {
            Self::Admm(admm) => Some(admm.rho),
            Self::GradientAverage | Self::KAverage(_) | Self::StatisticSum => None,
        }
    }

    /// Makes the model of the mean of what workers handed over, in place. Only what lies in `penalised` is penalised.
    pub fn finish(self, mean: &mut [f32], penalised: &[Range<usize>]) {
        if let Self::Admm(admm) = self {
            admm.proximal(mean, penalised);
        }
    }

    /// How far workers are from agreeing, for a rule that has them agree.
    pub fn residuals(self, workers: &[Local<'_>], before: &[f32], after: &[f32]) -> Option<Residuals> {
        self.pull().map(|rho| Residuals::of(rho, workers, before, after))
    }
}

impl Handover {
    /// What contributions are made of.
    pub fn row(self) -> Row {
        match self {
            Self::Gradients => Row::Gradients,
            Self::Weights | Self::Duals => Row::Weights,
            Self::Statistics => Row::Statistics,
        }
    }

    /// Whether what is merged is the model. Where a codec encodes it, it travels as the difference to the model before.
    pub fn is_model(self) -> bool {
        self == Self::Weights
    }

    /// Whether a worker that has the model before can make the next one of what was merged.
    pub fn makes_model(self) -> bool {
        matches!(self, Self::Weights | Self::Gradients)
    }

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
    fn what_a_rule_keeps_and_does_follows_from_it_alone() {
        let admm = Admm { rho: 0.5, lambda: 0.5, penalty: Penalty::L1, epochs: NonZeroU32::MIN };
        let (every, admm) = (Rule::KAverage(Every::Steps(NonZeroU64::MIN)), Rule::Admm(admm));
        for rule in [Rule::GradientAverage, every, Rule::StatisticSum, admm] {
            let is_admm = rule.kind() == RuleKind::Admm;
            let facts = [rule.keeps_duals(), rule.same_samples_every_epoch(), rule.without_decay()];
            assert_eq!(facts, [is_admm; 3]);
            assert_eq!((rule.pull(), rule.residuals(&[], &[], &[]).is_some()), (is_admm.then_some(0.5), is_admm));
            let mut mean = [3.0, 3.0];
            rule.finish(&mut mean, std::slice::from_ref(&(0..1)));
            assert_eq!(mean, if is_admm { [2.0, 3.0] } else { [3.0, 3.0] });
            let exchange = rule.exchange(2);
            assert_eq!(exchange.row() == Row::Statistics, exchange.is_sum());
            assert_eq!(exchange.row() == Row::Weights, exchange.descends());
            assert_eq!(exchange.row() == Row::Gradients, exchange.shares_optimizer());
            assert_eq!(exchange.is_model(), rule.kind() == RuleKind::KAverage);
            assert_eq!(exchange.makes_model(), exchange.is_model() || exchange.shares_optimizer());
        }
    }

    #[test]
    fn workers_that_do_not_wait_exchange_after_as_many_steps_as_the_rule_says() {
        let of = |rule: Rule| rule.free_stretch(8).get();
        let three = NonZeroU64::new(3).unwrap();
        assert_eq!([of(Rule::GradientAverage), of(Rule::KAverage(Every::Steps(three)))], [1, 3]);
        assert_eq!([of(Rule::KAverage(Every::End)), of(Rule::StatisticSum)], [8, 8]);
        assert_eq!(Rule::StatisticSum.free_stretch(0).get(), 1);
    }

    #[test]
    fn one_worker_averages_with_nobody() {
        assert_eq!(stretches(Rule::GradientAverage, 1), [8]);
        assert_eq!(Rule::GradientAverage.exchange(1), Handover::Weights);
        assert_eq!(Rule::GradientAverage.exchange(2), Handover::Gradients);
    }
}
