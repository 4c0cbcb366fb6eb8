//! One round, and what comes of it: workers compute, what they have is merged, and a new model is made of that.
//!
//! Where there is a barrier, a round ends when all contributions are there; where there is none, a whole stretch is done
//! at once, and each contribution counts as it comes.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Instant;

use weft_core::sync::{ChannelKind, Slot, Stretch};

use super::super::channel::{ChannelError, Content, Message};
use super::super::contribution::Payload;
use super::super::directing::{Directing, ModelPlace};
use super::super::exchange;
use super::super::free::{self, Collecting, FreeDirecting};
use super::super::merging::{Merged, Merger, grow_duals};
use super::super::model::GlobalModel;
use super::super::numbers::Numbers;
use super::super::team::{Contributions, Halt, Round, Team};
use super::super::work_order::{TakeOrder, Task};
use super::super::workshop::Cursor;
use super::{Engine, Keeper};

/// The layer of a slot that holds the model: no merge has it.
const MODEL_LAYER: u32 = u32::MAX;

/// The workers, and who says what they are to do.
struct Directed<'a> {
    team: &'a mut Team,
    directing: Directing<'a>,
}

impl<K: Keeper> Engine<K> {
    /// One round of training, and what comes of it.
    pub(super) async fn train_round(&mut self, Stretch { steps, joins }: Stretch) -> Result<(), Halt> {
        let workers_merge = joins && self.scheme.is_some();
        let mut round = self.round(Task::Train { steps, joins }, |_| true, workers_merge, Numbers::default()).await?;
        self.has_new_states = false;
        let before = self.training.model.clone();
        let mut start = Instant::now();
        let merged = match workers_merge {
            true => {
                let merged = self.take_results(&mut round).await?;
                self.training.progress.sums.stages.get_results += start.elapsed().as_secs_f64();
                start = Instant::now();
                merged
            }
            false => {
                self.fetch(&mut round).await?;
                self.training.progress.sums.stages.receive += start.elapsed().as_secs_f64();
                start = Instant::now();
                self.merger.merge(&mut round.contributions, self.replica.as_ref())?
            }
        };
        self.compare(&round.contributions, &before);
        let rate = self.training.progress.learning.rate;
        let statistics = self.merger.apply(merged, &mut self.training, self.replica.as_mut())?;
        self.place = ModelPlace::Here;
        let Round { number, mut contributions, results } = round;
        self.note_whose_model(&contributions);
        self.merger.take_worker_states(&mut contributions, &mut self.training);
        if joins && self.merger.rule.keeps_duals() {
            let mut samples = vec![0; self.training.worker_states.len()];
            for (worker, contribution) in &contributions {
                samples[*worker as usize] = contribution.samples;
            }
            self.residuals = grow_duals(self.merger.rule, &before, &mut self.training, &samples);
            self.has_new_states = true;
        }
        self.training.progress.sums.stages.merge += start.elapsed().as_secs_f64();
        self.count(&contributions, true)?;
        if self.workshop.brief.trainer.updates && !self.merger.exchange.descends() {
            self.update(statistics).await?;
        } else {
            let makes_model = self.merger.exchange.makes_model();
            self.take =
                (workers_merge && makes_model).then(|| TakeOrder { round: number, results: Arc::new(results), rate });
        }
        self.publish_model(number).await?;
        // What the round before has left is needed no more.
        self.channel.forget(number.saturating_sub(1)).await.or_else(forgiven)
    }

    /// Takes what workers have merged; what is not found is merged again.
    async fn take_results(&mut self, round: &mut Round) -> Result<Merged, Halt> {
        let Some(scheme) = self.scheme.clone() else { return Ok(Merged::default()) };
        loop {
            let taken = exchange::take_results(&*self.channel, &scheme, round.number, &round.results).await;
            let missing = match taken.map_err(|error| halt(&error))? {
                exchange::Taken::Done(results) => {
                    let payload = self.team.sizes.payload;
                    let is_empty = results.samples == 0;
                    let mut numbers = results.into_numbers().into_vec();
                    let buffers = numbers.split_off(payload.min(numbers.len()));
                    let mut merged = Merged { numbers: Some(numbers), buffers: Some(buffers) };
                    if self.merger.exchange.is_sum() {
                        merged.buffers = Merger::merge_buffers(&round.contributions);
                    }
                    return Ok(if is_empty { Merged::default() } else { merged });
                }
                exchange::Taken::Missing(missing) => missing.first().copied(),
            };
            let Some(missing) = missing else {
                return Err(Halt::Waits("the merged result is lost".to_owned()));
            };
            let at = self.cursor();
            let task = Task::Train { steps: 0, joins: true };
            let mut director = self.director(task, at, Numbers::default());
            let again = director.team.merge_again(round.number, missing, &mut director.directing).await?;
            round.results = again.results;
        }
    }

    /// Takes contributions that lie in the channel.
    async fn fetch(&mut self, round: &mut Round) -> Result<(), Halt> {
        for (worker, contribution) in &mut round.contributions {
            let Some(Payload::Stored(slot)) = contribution.payload else { continue };
            let found = exchange::found(self.channel.get(slot).await).map_err(|error| halt(&error))?;
            let Some(message) = found.filter(|message| message.samples == contribution.samples) else {
                return Err(Halt::Waits(format!("the contribution of worker {worker} is lost")));
            };
            contribution.payload = Some(message.payload.into());
            contribution.buffers = message.buffers.into_vec();
            if let Some(problem) = self.team.misfit(contribution) {
                return Err(Halt::Failed(format!("worker {worker}: {problem}")));
            }
        }
        Ok(())
    }

    /// Puts the model where workers take it from, if that is not this node's memory and they have not merged it.
    async fn publish_model(&mut self, round: u64) -> Result<(), Halt> {
        self.place = ModelPlace::Here;
        if self.workshop.brief.sync.channel == ChannelKind::Memory || self.shape.workers == 1 {
            return Ok(());
        }
        if self.take.is_some() {
            self.place = ModelPlace::Merged;
            return Ok(());
        }
        let slot = Slot { round, layer: MODEL_LAYER, shard: 0, worker: 0, claim: 0 };
        let model = &self.training.model;
        let (payload, buffers) = (Content::Plain(model.weights.clone()), model.buffers.clone());
        self.channel.put(slot, Message { samples: 0, payload, buffers }).await.map_err(|error| halt(&error))?;
        self.place = ModelPlace::Stored(slot);
        Ok(())
    }

    /// With one worker, the merged weights equal its own.
    fn note_whose_model(&mut self, contributions: &Contributions) {
        if let ([(worker, _)], 1) = (&contributions[..], self.shape.workers)
            && self.merger.exchange.is_model()
            && let Some(model) = Arc::get_mut(&mut self.training.model)
        {
            model.of = self.team.who(*worker);
        }
    }

    /// Has one worker make weights of statistics, for all.
    async fn update(&mut self, statistics: Numbers) -> Result<(), Halt> {
        // What was computed for it counts already: it is not ended half-way.
        self.team.spend_until = None;
        let round = self.round(Task::Update, |worker| worker == 0, false, statistics).await?;
        (self.take, self.place) = (None, ModelPlace::Here);
        self.count(&round.contributions, false)?;
        for (_, mut contribution) in round.contributions {
            let weights = contribution.take_numbers();
            let buffers = std::mem::take(&mut contribution.buffers);
            if let Some(replica) = &mut self.replica {
                replica.set_weights(&weights)?;
            }
            let version = self.training.model.version + 1;
            let (weights, buffers) = (weights.into(), buffers.into());
            self.training.model = Arc::new(GlobalModel { weights, buffers, of: None, version });
        }
        Ok(())
    }

    pub(super) async fn round(
        &mut self,
        task: Task,
        takes_part: impl Fn(u32) -> bool,
        workers_merge: bool,
        statistics: Numbers,
    ) -> Result<Round, Halt> {
        let (at, plan) = (self.cursor(), self.scheme.as_ref().filter(|_| workers_merge).map(|it| it.plan.clone()));
        let Directed { team, mut directing } = self.director(task, at, statistics);
        let round = team.round(task, takes_part, plan, &mut directing).await?;
        // Whoever had another model was told this one.
        self.comparison.has_differed = false;
        Ok(round)
    }

    /// Notes what a worker has said of the model that the round began with, and has it told the model if it has another.
    fn compare(&mut self, contributions: &Contributions, before: &GlobalModel) {
        let Some(differs) = self.comparison.hear(contributions, before) else { return };
        let replicas = &mut self.training.progress.sums.replicas;
        replicas.compared += 1;
        replicas.differed += u64::from(differs);
        if differs {
            let (job, version) = (&self.workshop.brief.job, before.version);
            tracing::warn!(%job, version, "a worker's model has other bits than the job's: it is told the job's");
        }
    }

    /// Who says what workers are to do, and the workers.
    fn director(&mut self, task: Task, at: Cursor, statistics: Numbers) -> Directed<'_> {
        let directing = Directing {
            task,
            at,
            training: &self.training,
            take: self.take.clone(),
            place: self.place,
            replica: self.replica.as_ref().filter(|_| self.workers_make_model()),
            optimizer: None,
            settled: &mut self.settled,
            is_new_state: self.has_new_states,
            comparison: self.comparison,
            statistics,
        };
        Directed { team: &mut self.team, directing }
    }

    pub(super) async fn train_free(&mut self, stretch: u64, steps: NonZeroU64) -> Result<(), Halt> {
        let (pace, mut at) = (self.workshop.brief.sync.pace, self.cursor());
        at.rate = pace.rate(at.rate, at.epoch);
        let workers = self.shape.workers as usize;
        let mut directing = FreeDirecting {
            pace,
            at: at.clone(),
            steps,
            stretch,
            training: &mut self.training,
            merger: &self.merger,
            replica: self.replica.as_mut(),
            averages: vec![None; workers],
            arrived: Vec::new(),
        };
        let rounds = vec![stretch.div_ceil(steps.get()); workers];
        self.team.stretch(&rounds, &mut directing).await?;
        let FreeDirecting { averages, arrived, .. } = directing;
        if self.workshop.has_own_weights() {
            let mut samples = vec![0; workers];
            for (worker, contribution) in &arrived {
                samples[*worker as usize] += contribution.samples;
            }
            let task = Task::ShowWeights;
            let mut collecting =
                Collecting { task, at, training: &self.training, averages: &averages, collected: Vec::new() };
            self.team.collect(&mut collecting).await?;
            let mut shown = collecting.collected;
            free::mean_of_peers(&mut shown, &samples, &mut self.training);
            self.merger.take_worker_states(&mut shown, &mut self.training);
        }
        self.count(&arrived, true)
    }
}

/// What an error of the channel means for the job.
fn halt(error: &ChannelError) -> Halt {
    match error.passes() {
        true => Halt::Waits(error.to_string()),
        false => Halt::Failed(error.to_string()),
    }
}

/// What could not be deleted expires, or is deleted with the job.
fn forgiven(error: ChannelError) -> Result<(), Halt> {
    tracing::warn!(%error, "what a round has left in its channel could not be deleted");
    Ok(())
}
