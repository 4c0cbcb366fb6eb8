//! What a worker computes: steps, the update of statistics, and tests.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use weft_core::usage::Used;

use super::super::contribution::Contribution;
use super::super::work_order::Assignment;
use super::super::worker::{Report, WorkerError};
use super::super::workshop::Cursor;
use super::{Holds, WorkerLoop};
use crate::train::declared::{Pull, TensorRow};
use crate::train::run::{Feed, Losses, Stepper, Timing, add_measured, measure};

impl WorkerLoop {
    pub(super) async fn train(
        &mut self,
        assignment: &Assignment,
        steps: u64,
        timing: &mut Timing,
    ) -> Result<Contribution, WorkerError> {
        let (workshop, who, exchange) = (self.workshop.clone(), self.who, self.exchanged());
        let at = &assignment.at;
        if exchange.is_sum() {
            // What was counted in an earlier round has been handed over.
            self.declared()?.clear_statistics()?;
        }
        if exchange.shares_optimizer() && !workshop.has_own_weights() {
            // The job's optimizer has done the steps; the trainer's schedule goes by them.
            self.declared()?.resume_optimizer(at.step);
        }
        let pull = self.pull(assignment)?;
        let written = self.declared()?.arena().values().version();
        let lane = self.lane();
        let mut feed = match self.feed.take() {
            // The next batch is the one that comes next.
            Some((from, feed)) if from.follows(at) => feed,
            _ => workshop.feed(at, lane, self.worker.context())?,
        };
        let mut losses = Losses::default();
        let mut now = at.clone();
        let mut told = Instant::now();
        let mut calls = 0;
        let (updates, descends) = (workshop.brief.trainer.updates, exchange.descends());
        let whole_epoch = workshop.spec().fans_out_epoch();
        for _ in 0..steps {
            if self.dismissed.load(Relaxed) {
                return Err(WorkerError::Stopped);
            }
            if workshop.lifetime().is_some_and(|lifetime| self.worker.age() >= lifetime) {
                self.worker.renew();
            }
            let info = workshop.step_info(&now, lane);
            if let Some(fan) = &mut self.fan_out {
                fan.begin(&self.worker, &now)?;
            }
            // The gradients of all functions are one's before the weights follow.
            let alone = descends && self.fan_out.is_none();
            let mut stepper = Stepper { updates, descends: alone, pull: pull.as_ref(), losses: &mut losses, timing };
            let mut stepped = match whole_epoch {
                true => stepper.whole_feed(&mut self.worker, &mut feed, info, &self.dismissed).await?,
                false => stepper.step(&mut self.worker, &mut feed, info).await?,
            };
            if let Some(fan) = &mut self.fan_out {
                stepped = fan.end(&mut self.worker, stepped, info, descends, &mut losses, timing).await?;
            }
            (now.step, now.done) = (now.step + 1, now.done + 1);
            if !stepped {
                break;
            }
            calls += u64::from(self.shape.fan_out);
            self.rest().await?;
            if told.elapsed() >= Duration::from_millis(100) {
                told = Instant::now();
                let (steps, loss, samples) = (now.done, losses.latest, losses.samples);
                self.reports.send(Report::Progress { who, steps, loss, samples });
            }
        }
        losses.read(at.epoch)?;
        // As many steps as the others, also where its shard has a batch less.
        let end = Cursor { done: at.done + steps, step: at.step + steps, ..at.clone() };
        self.feed = Some((end, feed));
        // A trainer may write weights in a step, which count only where it is the worker's weights that are handed over.
        let is_untouched = self.declared()?.arena().values().version() == written;
        self.holds = match (descends, is_untouched) {
            (true, _) => Holds::Own,
            (false, true) => self.holds,
            (false, false) => Holds::Unknown,
        };
        let used = Used { invocations: calls, ..Used::default() };
        let (samples, loss, latest) = (losses.samples, losses.sum, losses.latest);
        Ok(Contribution { samples, loss, latest, used, ..Contribution::default() })
    }

    /// What pulls the weights to those of others, if the rule does.
    fn pull(&mut self, assignment: &Assignment) -> Result<Option<Pull>, WorkerError> {
        let Some(rho) = self.workshop.rule().pull() else { return Ok(None) };
        let context = self.worker.context().clone();
        let length = self.declared()?.length(TensorRow::Weights);
        let model = context.tensor(&[length], self.base()?)?;
        let duals = match assignment.worker_state.as_ref().filter(|state| state.duals.len() == length) {
            Some(state) => context.tensor(&[length], &state.duals)?,
            None => context.zeros(&[length])?,
        };
        Ok(Some(Pull { rho, model, duals }))
    }

    pub(super) async fn update(
        &mut self,
        assignment: &Assignment,
        timing: &mut Timing,
    ) -> Result<Contribution, WorkerError> {
        let at = &assignment.at;
        let start = Instant::now();
        if !assignment.statistics.is_empty() {
            self.declared()?.write(TensorRow::Statistics, &assignment.statistics)?;
        }
        let info = self.workshop.step_info(at, self.lane());
        self.worker.update(info).await?;
        self.declared()?.clear_statistics()?;
        self.holds = Holds::Unknown;
        timing.update += start.elapsed();
        Ok(Contribution { used: Used { invocations: 1, ..Used::default() }, ..Contribution::default() })
    }

    pub(super) async fn evaluate(&mut self, assignment: &Assignment) -> Result<Contribution, WorkerError> {
        let start = Instant::now();
        let (workshop, at, who) = (self.workshop.clone(), &assignment.at, self.who);
        let mut contribution = Contribution::default();
        let info = workshop.step_info(at, self.lane());
        let mut feed = workshop.tests(assignment.task, at, who.worker, self.worker.context())?;
        let mut told = Instant::now();
        loop {
            if told.elapsed() >= Duration::from_secs(1) {
                told = Instant::now();
                self.reports.send(Report::Computes);
            }
            let batch = match &mut feed {
                // A trainer that makes its own data is tested once, by one.
                Feed::Nothing if workshop.data.is_none() && who.worker == 0 && contribution.samples == 0 => None,
                Feed::Nothing => break,
                Feed::Ahead(batches) => batches.next().transpose()?,
                Feed::Inline(assembler) => assembler.next().transpose()?,
            };
            if batch.is_none() && workshop.data.is_some() {
                break;
            }
            if self.dismissed.load(Relaxed) {
                return Err(WorkerError::Stopped);
            }
            let count = batch.as_ref().map_or(1, |batch| batch.count as u64);
            add_measured(&mut contribution.metrics, measure(&mut self.worker, info, batch).await?, count)?;
            contribution.samples += count;
            contribution.used.invocations += 1;
            self.rest().await?;
        }
        contribution.used.stages.validate = start.elapsed().as_secs_f64();
        Ok(contribution)
    }
}
