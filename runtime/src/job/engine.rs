//! One running job: rounds, merges, validation, checkpoints, in this order, until it is over.
//!
//! A checkpoint is written between rounds, after every epoch and as often as asked; what it holds is [`Training`]. What a
//! round starts from is in memory until the round is merged, so a worker that is lost starts again from there.
//!
//! - `beginning`: what a job starts from
//! - `rounds`: one round, and what comes of it
//! - `epoch`: the end of an epoch
//! - `reshaping`: other workers, between two rounds
//! - `planning`: which, and what the job may cost
//! - `versions`: versions of a data set that the job follows
//! - `keeper`: who keeps what it comes to

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_core::learning::{Verdict, all_done};
use weft_core::spec::Shape;
use weft_core::sync::admm::Residuals;
use weft_core::sync::{Position, Stretch};

use super::accounting::Accounting;
use super::channel::Channel;
use super::checkpoint::{Progress, Training};
use super::directing::{Comparison, ModelPlace, Settled};
use super::exchange::Scheme;
use super::merging::Merger;
use super::model::WorkerState;
use super::replica::Replica;
use super::scheme::Lengths;
use super::team::{Contributions, EpochSteps, Halt, Team};
use super::work_order::TakeOrder;
use super::workshop::{Cursor, Workshop};
use crate::dataset::shard::{Last, Plan as ShardPlan};
use crate::train::declared::Plan;

mod beginning;
mod epoch;
mod keeper;
mod planning;
mod reshaping;
mod rounds;
mod versions;

use beginning::Machinery;
pub use beginning::{Load, Origin};
pub use keeper::{ByHand, Keeper, ModelFacts};
pub use planning::{Planning, SpentAtMost};

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With the reason.
    Done(String),
    /// It has trained on all that there was, and follows its data set.
    CaughtUp,
    Halted(Halt),
}

/// How soon a change of the workers is tried again for which there was no room.
const TRY_AGAIN: Duration = Duration::from_secs(1);

pub struct Engine<K> {
    workshop: Arc<Workshop>,
    channel: Arc<dyn Channel>,
    /// How workers merge, if they do.
    scheme: Option<Scheme>,
    /// Where workers find what makes the model of the one before, if they have merged it.
    take: Option<TakeOrder>,
    /// Where they find the model.
    place: ModelPlace,
    settled: Settled,
    comparison: Comparison,
    team: Team,
    keeper: Arc<K>,
    plan: Plan,
    merger: Merger,
    replica: Option<Replica>,
    training: Training,
    shape: Shape,
    /// What a new worker keeps at first.
    first_state: WorkerState,
    lengths: Lengths,
    /// Before this, a change for which there was no room is not tried again.
    try_again: Option<Instant>,
    /// Steps since the latest checkpoint.
    since_checkpoint: u64,
    /// Of the latest validation.
    metrics: BTreeMap<String, f64>,
    /// Of the latest round of ADMM.
    residuals: Option<Residuals>,
    /// Whether what workers keep was changed here since the latest round.
    has_new_states: bool,
    accounting: Accounting,
    /// Who decides about the workers, and keeps the budget, if somebody does.
    planning: Option<Planning>,
}

impl<K: Keeper> Engine<K> {
    /// Trains until it is over. Whatever the end, the model is kept.
    pub async fn run(mut self) -> Ending {
        self.accounting.begin();
        let ending = match self.train().await {
            Ok(Ending::Done(reason)) => Ending::Done(self.ended(reason)),
            Ok(ending) => ending,
            Err(Halt::OutOfBudget(why)) => self.end_for_budget(&why).await,
            Err(halt) => Ending::Halted(halt),
        };
        self.account();
        self.charge(true).ok();
        self.note_all_spending().await;
        // Before the job is said to be over: what its workers held is free for others then.
        self.team.dismiss().await;
        // A pause is no end, and what passes is none: the checkpoint is enough.
        if !matches!(ending, Ending::Halted(Halt::Paused | Halt::Waits(_)))
            && !self.is_only_planned()
            && let Err(halt) = self.keep_last_model().await
        {
            return match ending {
                Ending::Halted(halt) => Ending::Halted(halt),
                Ending::Done(_) | Ending::CaughtUp => Ending::Halted(halt),
            };
        }
        ending
    }

    /// The job ends as it was after the last round, before it costs more than it may.
    async fn end_for_budget(&mut self, why: &str) -> Ending {
        self.team.spend_until = None;
        self.account();
        self.tell_plan(self.training.progress.epoch, false);
        let reason = self.used_up(why);
        match self.checkpoint(None).await {
            Ok(()) => Ending::Done(reason),
            Err(halt) => Ending::Halted(halt),
        }
    }

    async fn train(&mut self) -> Result<Ending, Halt> {
        let (epochs, follows) = (self.workshop.brief.epochs.end, self.workshop.spec().words.follow.is_some());
        self.begin_version().await?;
        while self.training.progress.epoch < epochs {
            if let Some(until) = self.keeper.until().filter(|until| self.training.progress.epoch >= *until) {
                return Err(Halt::Rested(until));
            }
            // The shape may change in the middle of an epoch, and what is left of it is divided anew.
            let mut steps = self.begin_steps();
            while self.training.progress.done < steps {
                if let Some(reason) = self.plan(steps).await? {
                    return Ok(Ending::Done(reason));
                }
                if self.change_shape().await? {
                    steps = self.begin_steps();
                    // What was changed by hand is told first.
                    if self.planning.is_some() {
                        continue;
                    }
                }
                let trained = match self.is_free() {
                    true => self.free_stretch(steps).await,
                    false => self.next_round(steps).await,
                };
                match trained {
                    Err(Halt::OutOfMemory(reason)) => {
                        self.go_back(reason).await?;
                        steps = self.begin_steps();
                    }
                    trained => trained?,
                }
            }
            match self.end_epoch().await? {
                Verdict::GoOn => {}
                Verdict::Enough(_) if follows => break,
                Verdict::End(reason) | Verdict::Enough(reason) => return Ok(Ending::Done(reason)),
            }
        }
        Ok(match follows {
            true => Ending::CaughtUp,
            false => Ending::Done(all_done(&self.workshop.spec().words)),
        })
    }

    /// Steps of this epoch from the latest change of shape on, of which followers are told how many are done.
    fn begin_steps(&mut self) -> u64 {
        let (steps, earlier) = (self.steps(), self.training.progress.earlier);
        self.team.epoch_steps = EpochSteps { done: earlier, all: earlier + steps };
        steps
    }

    /// Steps of this epoch, of the shard that has most of them, from the latest change of shape on.
    fn steps(&self) -> u64 {
        let (spec, progress) = (self.workshop.spec(), &self.training.progress);
        let Some(data) = &self.workshop.data else { return spec.words.steps.saturating_sub(progress.earlier) };
        if spec.fans_out_epoch() {
            return 1;
        }
        let (shards, cuts) = (self.shape.lanes().into(), progress.cuts[..].into());
        let plan = ShardPlan { shards, cuts, ..ShardPlan::default() };
        let samples = plan.count(&data.manifest.train, 0).unwrap_or(0);
        Last::Keep.batches(samples, spec.batch_of(progress.epoch, &self.shape))
    }

    fn cursor(&self) -> Cursor {
        let Progress { epoch, cuts, done, step, learning, .. } = &self.training.progress;
        let batch = self.workshop.spec().batch_of(*epoch, &self.shape);
        let (cuts, rate, shape) = (cuts[..].into(), learning.rate, self.shape);
        Cursor { epoch: *epoch, cuts, done: *done, step: *step, batch, rate, shape }
    }

    fn position(&self, steps: u64) -> Position {
        let Progress { epoch, done, .. } = self.training.progress;
        Position { epoch, epochs: self.workshop.brief.epochs.end, done, steps }
    }

    /// Whether workers do not wait for each other.
    fn is_free(&self) -> bool {
        self.shape.workers > 1 && self.workshop.brief.sync.pace.is_free()
    }

    /// The next round of this epoch, and a checkpoint if one is due then.
    async fn next_round(&mut self, steps: u64) -> Result<(), Halt> {
        let every = self.workshop.spec().checkpoint_every.map(|every| every.get());
        let mut stretch = self.workshop.rule().stretch(self.shape.workers, self.position(steps));
        // One worker alone may stop anywhere; others only where they meet.
        let may_stop = self.shape.workers == 1 && self.merger.exchange.descends();
        if let Some(every) = every.filter(|_| may_stop)
            && every - self.since_checkpoint < stretch.steps
        {
            stretch = Stretch { steps: every - self.since_checkpoint, joins: false };
        }
        let fit = self.steps_that_fit(stretch.steps, may_stop).await?;
        if fit == 0 {
            return Ok(());
        }
        if fit < stretch.steps {
            stretch = Stretch { steps: fit, joins: false };
        }
        let (began, paid) = (Instant::now(), self.accounting.paid);
        self.train_round(stretch).await?;
        self.note_round(stretch.steps, began, paid);
        self.advance(stretch.steps, steps, every).await
    }

    /// What is left of an epoch in which workers do not wait for each other, or the part of it up to a checkpoint.
    async fn free_stretch(&mut self, steps: u64) -> Result<(), Halt> {
        let every = self.workshop.spec().checkpoint_every.map(|every| every.get());
        let round_steps = self.workshop.rule().free_stretch(steps);
        let rounds = |steps: u64| steps.checked_next_multiple_of(round_steps.get()).unwrap_or(u64::MAX);
        let whole_rounds = every.map_or(u64::MAX, rounds);
        let stretch = (steps - self.training.progress.done).min(whole_rounds);
        self.train_free(stretch, round_steps).await?;
        self.advance(stretch, steps, every).await
    }

    /// Notes that so many steps are done of those that the epoch has, and checkpoints as often as asked.
    async fn advance(&mut self, done: u64, steps: u64, every: Option<u64>) -> Result<(), Halt> {
        let progress = &mut self.training.progress;
        (progress.done, progress.step) = (progress.done + done, progress.step + done);
        self.since_checkpoint += done;
        if every.is_some_and(|every| self.since_checkpoint >= every) && self.training.progress.done < steps {
            self.account();
            self.checkpoint(None).await?;
        }
        Ok(())
    }

    /// Whether workers take the optimizer's steps themselves, each on a model of its own.
    fn workers_make_model(&self) -> bool {
        self.scheme.is_some() && self.merger.exchange.shares_optimizer()
    }

    /// Accumulates a round's loss, samples and resource use.
    fn count(&mut self, contributions: &Contributions, trains: bool) -> Result<(), Halt> {
        let sums = &mut self.training.progress.sums;
        for (worker, contribution) in contributions {
            if trains {
                sums.loss += contribution.loss;
                sums.samples += contribution.samples;
            }
            self.accounting.spend(*worker, &contribution.used, &self.shape, sums);
        }
        for (worker, used) in std::mem::take(&mut self.team.overhead) {
            self.accounting.spend(worker, &used, &self.shape, sums);
        }
        self.charge(false)
    }

    fn charge(&mut self, now: bool) -> Result<(), Halt> {
        match self.accounting.due(now) {
            Some(spent) => self.keeper.charge(&spent).map_err(Halt::Failed),
            None => Ok(()),
        }
    }

    /// Brings the epoch's seconds, losses and traffic up to now.
    fn account(&mut self) {
        let sums = &mut self.training.progress.sums;
        self.accounting.account(self.team.losses, self.channel.traffic(), sums);
    }
}
