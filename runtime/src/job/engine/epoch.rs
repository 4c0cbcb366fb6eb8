//! The end of an epoch: validation, verdict, history, models, checkpoint.

use std::collections::BTreeMap;

use weft_core::learning::{Seen, Validated, Verdict};
use weft_core::spec::Keep;

use super::super::contribution::means;
use super::super::free::Collecting;
use super::super::numbers::Numbers;
use super::super::record::EpochRecord;
use super::super::team::Halt;
use super::super::work_order::Task;
use super::{Engine, Keeper, ModelFacts};
use crate::sandbox::trainer::MAX_METRICS;
use crate::train::run::TrainError;

impl<K: Keeper> Engine<K> {
    pub(super) async fn end_epoch(&mut self) -> Result<Verdict, Halt> {
        let steps = self.training.progress.earlier + self.training.progress.done;
        self.account();
        let trained_for = self.training.progress.sums.seconds;
        let workshop = self.workshop.clone();
        let words = &workshop.spec().words;
        let (epoch, every, epochs) =
            (self.training.progress.epoch + 1, words.validate_every, workshop.brief.epochs.end);
        let has_tests = workshop.data.as_ref().is_none_or(|data| data.manifest.test.count > 0);
        // Whoever has it rest goes by what it has come to.
        let is_last = epoch == epochs || self.keeper.until() == Some(epoch);
        let validates = has_tests && (is_last || (every > 0 && epoch.is_multiple_of(every)));
        match validates {
            true => {
                self.may_validate()?;
                let paid = self.accounting.paid;
                self.metrics = self.evaluate(Task::Evaluate).await?;
                self.note_validation(paid);
            }
            false => self.metrics.clear(),
        }
        self.account();
        let (rate, batch) = (self.training.progress.learning.rate, self.cursor().batch);
        let sums = &self.training.progress.sums;
        let train_loss = if sums.samples == 0 { 0.0 } else { sums.loss / sums.samples as f64 };
        let validated =
            Validated { loss: self.metrics.get("loss").copied(), accuracy: self.metrics.get("accuracy").copied() };
        let seen = Seen { train_loss, validation: validates.then_some(validated) };
        let (mut verdict, is_best) = self.training.progress.learning.judge(words, seen);
        if is_best && words.keep == Keep::Best {
            self.training.best = Some(self.training.model.clone());
            self.training.progress.best = self.facts();
        }
        let residuals = self.residuals.take();
        if let (Some(residuals), Some(tolerance)) = (residuals, workshop.brief.sync.tolerance)
            && verdict == Verdict::GoOn
            && residuals.are_within(tolerance)
        {
            verdict = Verdict::Enough(format!("workers agree within the tolerance of {tolerance}"));
        }
        let is_last = epoch == epochs || verdict != Verdict::GoOn;
        let data = self.trained_on(is_last).await?;
        self.account();
        let sums = std::mem::take(&mut self.training.progress.sums);
        let record = EpochRecord {
            epoch,
            train_loss,
            validation: self.metrics.clone(),
            workers: self.shape.workers,
            batch: batch.get(),
            lr: rate,
            samples: sums.samples,
            steps,
            seconds: sums.seconds,
            samples_per_second: sums.samples as f64 / trained_for.max(1e-9),
            memory: sums.memory,
            stages: sums.stages,
            spending: sums.spending,
            costs: sums.costs,
            losses: sums.losses,
            traffic: sums.traffic,
            mean_staleness: sums.staleness.mean(),
            max_staleness: sums.staleness.mean().map(|_| sums.staleness.most),
            primal_residual: residuals.map(|residuals| residuals.primal),
            dual_residual: residuals.map(|residuals| residuals.dual),
            replicas: sums.replicas,
            reshaped: sums.reshaped,
            data,
        };
        self.tell_plan(epoch - 1, true);
        let progress = &mut self.training.progress;
        (progress.epoch, progress.earlier, progress.done) = (epoch, 0, 0);
        progress.cuts.clear();
        // What follows from the epoch is kept with it.
        if verdict == Verdict::GoOn && epoch < epochs {
            let steps = self.steps();
            self.ask_plan(steps);
        }
        self.keep_epoch_model(epoch).await?;
        self.checkpoint(Some(record)).await?;
        Ok(verdict)
    }

    /// Means over the samples to test with, or over those that are new.
    pub(super) async fn evaluate(&mut self, task: Task) -> Result<BTreeMap<String, f64>, Halt> {
        let contributions = match self.is_free() {
            true => {
                let at = self.cursor();
                let mut collecting =
                    Collecting { task, at, training: &self.training, averages: &[], collected: Vec::new() };
                self.team.collect(&mut collecting).await?;
                collecting.collected
            }
            false => self.round(task, |_| true, false, Numbers::default()).await?.contributions,
        };
        let mut metrics = means(contributions.iter().map(|(_, contribution)| &**contribution));
        if metrics.len() > MAX_METRICS {
            return Err(Halt::Failed(TrainError::TooManyMetrics.to_string()));
        }
        // What is no number cannot be kept, nor compared.
        metrics.retain(|_, value| value.is_finite());
        self.count(&contributions, false)?;
        Ok(metrics)
    }

    pub(super) async fn checkpoint(&mut self, epoch: Option<EpochRecord>) -> Result<(), Halt> {
        // First: whatever happens, the tenant's ledger has no less than its jobs' records and checkpoints.
        self.charge(true)?;
        self.since_checkpoint = 0;
        self.take_optimizer()?;
        self.keep_plan();
        self.comparison.is_due = self.workers_make_model();
        self.keeper.checkpoint(&self.training, epoch).await
    }

    /// Brings what the shared optimizer remembers up to now, where there is one.
    pub(super) fn take_optimizer(&mut self) -> Result<(), Halt> {
        if let Some(replica) = self.replica.as_ref().filter(|_| self.merger.exchange.shares_optimizer()) {
            self.training.optimizer = replica.optimizer()?;
        }
        Ok(())
    }

    fn facts(&self) -> ModelFacts {
        ModelFacts { step: self.training.progress.step, metrics: self.metrics.clone() }
    }

    async fn keep_epoch_model(&mut self, epoch: u64) -> Result<(), Halt> {
        let Keep::Latest(count) = self.workshop.spec().words.keep else { return Ok(()) };
        if self.is_only_planned() {
            return Ok(());
        }
        self.keeper.model(&format!("-e{epoch}"), &self.training.model, &self.plan, self.facts()).await?;
        if let Some(old) = epoch.checked_sub(u64::from(count)).filter(|old| *old > 0) {
            self.keeper.forget_model(&format!("-e{old}")).await;
        }
        Ok(())
    }

    pub(super) async fn keep_last_model(&mut self) -> Result<(), Halt> {
        let (model, facts) = match &self.training.best {
            Some(best) => (best.clone(), self.training.progress.best.clone()),
            None => (self.training.model.clone(), self.facts()),
        };
        self.keeper.model("", &model, &self.plan, facts).await
    }
}
