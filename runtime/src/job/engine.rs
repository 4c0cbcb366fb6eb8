//! One running job: rounds, merges, validation, checkpoints, in this order, until it is over.
//!
//! A checkpoint is written between rounds, after every epoch and as often as asked; what it holds is [`Training`]. What a
//! round starts from is in memory until the round is merged, so a worker that is lost starts again from there.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use weft_core::cost::Prices;
use weft_core::learning::{Learning, Seen, Validated, Verdict};
use weft_core::spec::{Keep, Shape};
use weft_core::sync::admm::Residuals;
use weft_core::sync::{Channel as ChannelKind, Exchange, Pace, Position, Rule, Slot, Stretch};
use weft_core::usage::{Spending, Stages};
use weft_gpu::Codec;

use super::accounting::Accounting;
use super::channel::{Channel, ChannelError, Content, Message};
use super::checkpoint::{Progress, Sums, Training};
use super::contribution::{Payload, means};
use super::directing::{Directing, Settled};
use super::exchange::{self, Scheme};
use super::free::{self, Collecting, FreeDirecting};
use super::merging::{Merged, Merger, end_admm_round};
use super::model::{GlobalModel, WorkerState};
use super::numbers::Numbers;
use super::record::{EpochRecord, Reshaped};
use super::replica::Replica;
use super::reshape;
use super::scheme::{self, Lengths};
use super::team::{Contributions, Halt, Round, Sizes, Team};
use super::work_order::{TakeOrder, Task};
use super::worker::Declaration;
use super::workshop::{Cursor, Workshop};
use crate::dataset::shard::{Last, Plan as ShardPlan};
use crate::sandbox::trainer::MAX_METRICS;
use crate::tenant::TrainingUse;
use crate::train::declared::Plan;
use crate::train::run::TrainError;

mod reshaping;

/// Who is told what a job comes to, and keeps it.
pub trait Keeper: Send + Sync {
    /// Keeps where it is, and the epoch that is over by then, if one is: both or neither. Where that cannot be done now, it
    /// is waited for.
    fn checkpoint(
        &self,
        training: &Training,
        epoch: Option<EpochRecord>,
    ) -> impl Future<Output = Result<(), Halt>> + Send;
    /// Keeps a model under this name, in place of one that it has kept before.
    fn model(
        &self,
        suffix: &str,
        shared: &GlobalModel,
        plan: &Plan,
        facts: ModelFacts,
    ) -> impl Future<Output = Result<(), Halt>> + Send;
    /// Forgets one.
    fn forget_model(&self, suffix: &str) -> impl Future<Output = ()> + Send;
    /// Whether the tenant may use more of devices.
    fn charge(&self, spent: &TrainingUse) -> Result<(), String>;
    /// The shape that the job is to have from here on, if a change of it is due: in an epoch, counted from 1, some rounds
    /// of which are done already, or none.
    fn wanted_shape(&self, _epoch: u64, _is_begun: bool, _now: &Shape) -> Option<Shape> {
        None
    }
    /// Counts the job as one of this shape. Why it may not have it, otherwise.
    fn book(&self, _shape: &Shape) -> Result<(), String> {
        Ok(())
    }
    /// The changes that were due are made, and are kept with the next checkpoint; nothing, if they change nothing.
    fn made_change(&self, _change: Option<Reshaped>) {}
    /// The change that was due cannot be made now, or never.
    fn put_off_change(&self, _reason: &str, _for_good: bool) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// What a model's file says of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelFacts {
    pub step: u64,
    pub metrics: BTreeMap<String, f64>,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With the reason.
    Done(String),
    Halted(Halt),
}

/// How soon a change of the workers is tried again for which there was no room.
const TRY_AGAIN: Duration = Duration::from_secs(1);

pub struct Engine<K> {
    workshop: Arc<Workshop>,
    channel: Arc<dyn Channel>,
    /// How workers merge, if they do.
    scheme: Option<Scheme>,
    /// Where workers find what makes the model of the one before.
    take: Option<TakeOrder>,
    settled: Settled,
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
}

/// Puts a model's numbers over those that a plan's tensors have at first.
pub type Load = Box<dyn FnOnce(&Plan, &mut GlobalModel) -> Result<(), String> + Send>;

/// What a job starts from.
pub enum Origin {
    /// The first values that the trainer declares.
    FirstValues,
    /// Another model's weights.
    Model(Load),
    Checkpoint(Box<Training>),
}

/// What makes one model of contributions, for workers of one shape.
struct Machinery {
    merger: Merger,
    replica: Option<Replica>,
    scheme: Option<Scheme>,
}

impl Machinery {
    fn open(
        workshop: &Arc<Workshop>,
        shape: &Shape,
        lengths: Lengths,
        plan: &Plan,
        training: &Training,
    ) -> Result<Self, Halt> {
        let is_encoded = workshop.codec(shape) != Codec::Plain;
        let merger = Merger::new(workshop.rule(), shape.workers, is_encoded, plan);
        let is_needed = merger.exchange.shares_optimizer() || is_encoded || scheme::workers_merge(workshop, shape);
        let replica = is_needed.then(|| Replica::open(workshop, shape, plan, training)).transpose()?;
        let scheme = match &replica {
            Some(replica) => scheme::scheme(workshop, shape, lengths, replica.context()),
            None => Ok(None),
        };
        let scheme = scheme.map_err(|error| Halt::Failed(error.to_string()))?;
        Ok(Self { merger, replica, scheme })
    }
}

impl<K: Keeper> Engine<K> {
    pub fn new(
        workshop: Arc<Workshop>,
        channel: Arc<dyn Channel>,
        mut team: Team,
        declaration: Declaration,
        keeper: Arc<K>,
        prices: Prices,
        origin: Origin,
    ) -> Result<Self, Halt> {
        let Declaration { plan, mut model, worker_state, statistics } = declaration;
        let shape = team.shape();
        let exchange = workshop.exchange(&shape);
        let (weights, buffers) = (model.weights.len(), model.buffers.len());
        let payload = if exchange == Exchange::Statistics { statistics } else { weights };
        team.sizes = Sizes { payload, buffers, weights };
        let training = match origin {
            Origin::Checkpoint(training) => {
                let mut training = *training;
                // Versions that could not change it did not write it down.
                let workers = u32::try_from(training.worker_states.len()).unwrap_or(u32::MAX);
                let before = *training.progress.shape.get_or_insert(Shape { workers, batch: None, ..shape });
                let fits = (training.model.weights.len(), training.model.buffers.len()) == (weights, buffers)
                    && before.workers == workers;
                if !fits {
                    let text = "the checkpoint is of another model than the trainer declares now";
                    return Err(Halt::Failed(text.to_owned()));
                }
                if reshape::go_on(&workshop, &mut training, &shape, &worker_state) {
                    keeper.made_change(Some(reshape::reshaped(&workshop, &training.progress, &shape)));
                }
                training
            }
            other => {
                if let Origin::Model(load) = other {
                    load(&plan, &mut model).map_err(Halt::Failed)?;
                }
                let progress = Progress {
                    epoch: 0,
                    cuts: Vec::new(),
                    earlier: 0,
                    done: 0,
                    step: 0,
                    learning: Learning::new(&workshop.spec().words),
                    sums: Sums::default(),
                    best: ModelFacts::default(),
                    shape: Some(shape),
                };
                let first = Arc::new(match exchange.descends() {
                    true => worker_state.clone(),
                    false => WorkerState { moments: Vec::new(), steps: 0, ..worker_state.clone() },
                });
                let worker_states = (0..shape.workers).map(|_| first.clone()).collect();
                Training {
                    model: Arc::new(model),
                    optimizer: WorkerState::default(),
                    worker_states,
                    best: None,
                    progress,
                }
            }
        };
        let lengths = Lengths { payload, buffers };
        let Machinery { merger, replica, scheme } = Machinery::open(&workshop, &shape, lengths, &plan, &training)?;
        Ok(Self {
            workshop,
            channel,
            scheme,
            take: None,
            settled: Settled::default(),
            team,
            keeper,
            plan,
            merger,
            replica,
            training,
            shape,
            first_state: worker_state,
            lengths,
            try_again: None,
            since_checkpoint: 0,
            metrics: BTreeMap::new(),
            residuals: None,
            has_new_states: false,
            accounting: Accounting::new(prices),
        })
    }

    /// Trains until it is over. Whatever the end, the model is kept.
    pub async fn run(mut self) -> Ending {
        self.accounting.begin();
        let ending = match self.train().await {
            Ok(reason) => Ending::Done(reason),
            Err(halt) => Ending::Halted(halt),
        };
        self.account();
        self.charge(true).ok();
        // A pause is no end, and what passes is none: the checkpoint is enough.
        if !matches!(ending, Ending::Halted(Halt::Paused | Halt::Waits(_)))
            && let Err(halt) = self.keep_last_model().await
        {
            return match ending {
                Ending::Halted(halt) => Ending::Halted(halt),
                Ending::Done(_) => Ending::Halted(halt),
            };
        }
        ending
    }

    async fn train(&mut self) -> Result<String, Halt> {
        let epochs = self.workshop.spec().words.epochs;
        while self.training.progress.epoch < epochs {
            // The shape may change in the middle of an epoch, and what is left of it is divided anew.
            let mut steps = self.steps();
            while self.training.progress.done < steps {
                if self.change_shape().await? {
                    steps = self.steps();
                }
                match self.is_free() {
                    true => self.free_stretch(steps).await?,
                    false => self.next_round(steps).await?,
                }
            }
            let verdict = self.end_epoch().await?;
            if let Verdict::End(reason) = verdict {
                return Ok(reason);
            }
        }
        Ok(format!("all {epochs} epochs are done"))
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
        Position { epoch, epochs: self.workshop.spec().words.epochs, done, steps }
    }

    /// The next round of this epoch, and a checkpoint if one is due then.
    async fn next_round(&mut self, steps: u64) -> Result<(), Halt> {
        let every = self.workshop.spec().checkpoint_every.map(|every| every.get());
        let mut stretch = self.workshop.rule().stretch(self.shape.workers, self.position(steps));
        // One worker alone may stop anywhere; others only where they meet.
        if let Some(every) = every.filter(|_| self.shape.workers == 1 && self.merger.exchange.descends())
            && every - self.since_checkpoint < stretch.steps
        {
            stretch = Stretch { steps: every - self.since_checkpoint, joins: false };
        }
        self.train_round(stretch).await?;
        self.advance(stretch.steps, steps, every).await
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

    /// Whether workers do not wait for each other.
    fn is_free(&self) -> bool {
        self.shape.workers > 1 && self.workshop.brief.sync.pace.is_free()
    }

    /// What is left of an epoch in which workers do not wait for each other, or the part of it up to a checkpoint.
    async fn free_stretch(&mut self, steps: u64) -> Result<(), Halt> {
        let every = self.workshop.spec().checkpoint_every.map(|every| every.get());
        let round_steps = free::steps_of_round(self.workshop.rule(), steps);
        let rounds = |steps: u64| steps.checked_next_multiple_of(round_steps.get()).unwrap_or(u64::MAX);
        let whole_rounds = every.map_or(u64::MAX, rounds);
        let stretch = (steps - self.training.progress.done).min(whole_rounds);
        self.train_free(stretch, round_steps).await?;
        self.advance(stretch, steps, every).await
    }

    async fn train_free(&mut self, stretch: u64, steps: NonZeroU64) -> Result<(), Halt> {
        let (pace, mut at) = (self.workshop.brief.sync.pace, self.cursor());
        if pace == Pace::Overwrite {
            // Later epochs overwrite with smaller steps (LambdaML §4.5).
            at.rate /= ((at.epoch + 1) as f32).sqrt();
        }
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
            // Peers that never met again would train models that have no mean.
            for (_, contribution) in &mut shown {
                contribution.worker_state.iter_mut().for_each(|state| state.weights.clear());
            }
            self.merger.take_worker_states(&mut shown, &mut self.training);
        }
        self.count(&arrived, true)
    }

    /// One round of training, and what comes of it.
    async fn train_round(&mut self, Stretch { steps, joins }: Stretch) -> Result<(), Halt> {
        let workers_merge = joins && self.scheme.is_some();
        let mut round = self.round(Task::Train { steps, joins }, |_| true, workers_merge, Numbers::default()).await?;
        self.has_new_states = false;
        let start = Instant::now();
        let before = self.training.model.clone();
        let merged = match workers_merge {
            true => self.take_results(&mut round).await?,
            false => {
                self.fetch(&mut round).await?;
                self.merger.merge(&mut round.contributions, self.replica.as_ref())?
            }
        };
        let rate = self.training.progress.learning.rate;
        let statistics = self.merger.apply(merged, &mut self.training, self.replica.as_mut())?;
        let Round { number, mut contributions, results } = round;
        self.note_whose_model(&contributions);
        self.merger.take_worker_states(&mut contributions, &mut self.training);
        if let (Rule::Admm(admm), true) = (self.merger.rule, joins) {
            let mut samples = vec![0; self.training.worker_states.len()];
            for (worker, contribution) in &contributions {
                samples[*worker as usize] = contribution.samples;
            }
            self.residuals = Some(end_admm_round(&admm, &before, &mut self.training, &samples));
            self.has_new_states = true;
        }
        self.training.progress.sums.stages.merge += start.elapsed().as_secs_f64();
        self.count(&contributions, true)?;
        if self.workshop.brief.trainer.updates && !self.merger.exchange.descends() {
            self.update(statistics).await?;
        } else {
            let makes_model = matches!(self.merger.exchange, Exchange::Gradients | Exchange::Weights);
            self.take = match workers_merge && makes_model {
                true => Some(TakeOrder::Results { round: number, results: Arc::new(results), rate }),
                false => None,
            };
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

    /// Puts the model where workers take it from, if that is not this node's memory.
    async fn publish_model(&mut self, round: u64) -> Result<(), Halt> {
        let is_needed = self.take.is_none() && self.shape.workers > 1;
        if !is_needed || self.workshop.brief.sync.channel == ChannelKind::Memory {
            return Ok(());
        }
        let slot = Slot { round, layer: MODEL_LAYER, shard: 0, worker: 0, claim: 0 };
        let model = &self.training.model;
        let (payload, buffers) = (Content::Plain(model.weights.clone().into()), model.buffers.clone().into());
        self.channel.put(slot, Message { samples: 0, payload, buffers }).await.map_err(|error| halt(&error))?;
        self.take = Some(TakeOrder::Model(slot));
        Ok(())
    }

    /// With one worker, the merged weights equal its own.
    fn note_whose_model(&mut self, contributions: &Contributions) {
        if let ([(worker, _)], 1, Exchange::Weights) = (&contributions[..], self.shape.workers, self.merger.exchange)
            && let Some(model) = Arc::get_mut(&mut self.training.model)
        {
            model.of = self.team.who(*worker);
        }
    }

    /// Who says what workers are to do, and the workers.
    fn director(&mut self, task: Task, at: Cursor, statistics: Numbers) -> Directed<'_> {
        let directing = Directing {
            task,
            at,
            training: &self.training,
            take: self.take.clone(),
            replica: self.replica.as_ref().filter(|_| self.scheme.is_some() && self.merger.exchange.shares_optimizer()),
            optimizer: None,
            settled: &mut self.settled,
            is_new_state: self.has_new_states,
            statistics,
        };
        Directed { team: &mut self.team, directing }
    }

    async fn round(
        &mut self,
        task: Task,
        takes_part: impl Fn(u32) -> bool,
        workers_merge: bool,
        statistics: Numbers,
    ) -> Result<Round, Halt> {
        let (at, plan) = (self.cursor(), self.scheme.as_ref().filter(|_| workers_merge).map(|it| it.plan.clone()));
        let Directed { team, mut directing } = self.director(task, at, statistics);
        team.round(task, takes_part, plan, &mut directing).await
    }

    /// Has one worker make weights of statistics, for all.
    async fn update(&mut self, statistics: Numbers) -> Result<(), Halt> {
        let round = self.round(Task::Update, |worker| worker == 0, false, statistics).await?;
        self.take = None;
        self.count(&round.contributions, false)?;
        for (_, mut contribution) in round.contributions {
            let weights = contribution.take_numbers();
            let buffers = std::mem::take(&mut contribution.buffers);
            if let Some(replica) = &mut self.replica {
                replica.set_weights(&weights)?;
            }
            let version = self.training.model.version + 1;
            self.training.model = Arc::new(GlobalModel { weights, buffers, of: None, version });
        }
        Ok(())
    }

    /// Accumulates a round's loss, samples and resource use.
    fn count(&mut self, contributions: &Contributions, trains: bool) -> Result<(), Halt> {
        let sums = &mut self.training.progress.sums;
        for (_, contribution) in contributions {
            if trains {
                sums.loss += contribution.loss;
                sums.samples += contribution.samples;
            }
            self.accounting.spend(&contribution.used, &self.shape, sums);
        }
        for used in std::mem::take(&mut self.team.overhead) {
            self.accounting.spend(&used, &self.shape, sums);
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

    async fn end_epoch(&mut self) -> Result<Verdict, Halt> {
        let steps = self.training.progress.earlier + self.training.progress.done;
        self.account();
        let trained_for = self.training.progress.sums.seconds;
        let workshop = self.workshop.clone();
        let words = &workshop.spec().words;
        let (epoch, every, epochs) = (self.training.progress.epoch + 1, words.validate_every, words.epochs);
        let has_tests = workshop.data.as_ref().is_none_or(|data| data.manifest.test.count > 0);
        let validates = has_tests && (epoch == epochs || (every > 0 && epoch.is_multiple_of(every)));
        match validates {
            true => self.validate().await?,
            false => self.metrics.clear(),
        }
        self.account();
        let (rate, batch) = (self.training.progress.learning.rate, self.cursor().batch);
        let sums = std::mem::take(&mut self.training.progress.sums);
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
            verdict = Verdict::End(format!("workers agree within the tolerance of {tolerance}"));
        }
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
            losses: sums.losses,
            traffic: sums.traffic,
            mean_staleness: sums.staleness.mean(),
            max_staleness: sums.staleness.mean().map(|_| sums.staleness.most),
            primal_residual: residuals.map(|residuals| residuals.primal),
            dual_residual: residuals.map(|residuals| residuals.dual),
            reshaped: sums.reshaped,
        };
        let progress = &mut self.training.progress;
        (progress.epoch, progress.earlier, progress.done) = (epoch, 0, 0);
        progress.cuts.clear();
        self.keep_epoch_model(epoch).await?;
        self.checkpoint(Some(record)).await?;
        Ok(verdict)
    }

    async fn validate(&mut self) -> Result<(), Halt> {
        let contributions = match self.is_free() {
            true => {
                let (task, at) = (Task::Evaluate, self.cursor());
                let mut collecting =
                    Collecting { task, at, training: &self.training, averages: &[], collected: Vec::new() };
                self.team.collect(&mut collecting).await?;
                collecting.collected
            }
            false => self.round(Task::Evaluate, |_| true, false, Numbers::default()).await?.contributions,
        };
        self.metrics = means(contributions.iter().map(|(_, contribution)| &**contribution));
        if self.metrics.len() > MAX_METRICS {
            return Err(Halt::Failed(TrainError::TooManyMetrics.to_string()));
        }
        // What is no number cannot be kept, nor compared.
        self.metrics.retain(|_, value| value.is_finite());
        self.count(&contributions, false)
    }

    async fn checkpoint(&mut self, epoch: Option<EpochRecord>) -> Result<(), Halt> {
        // First: whatever happens, the tenant's ledger has no less than its jobs' records and checkpoints.
        self.charge(true)?;
        self.since_checkpoint = 0;
        self.take_optimizer()?;
        self.keeper.checkpoint(&self.training, epoch).await
    }

    /// Brings what the shared optimizer remembers up to now, where there is one.
    fn take_optimizer(&mut self) -> Result<(), Halt> {
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
        self.keeper.model(&format!("-e{epoch}"), &self.training.model, &self.plan, self.facts()).await?;
        if let Some(old) = epoch.checked_sub(u64::from(count)).filter(|old| *old > 0) {
            self.keeper.forget_model(&format!("-e{old}")).await;
        }
        Ok(())
    }

    async fn keep_last_model(&mut self) -> Result<(), Halt> {
        let (model, facts) = match &self.training.best {
            Some(best) => (best.clone(), self.training.progress.best.clone()),
            None => (self.training.model.clone(), self.facts()),
        };
        self.keeper.model("", &model, &self.plan, facts).await
    }
}

/// The layer of a slot that holds the model: no merge has it.
const MODEL_LAYER: u32 = u32::MAX;

/// The workers, and who says what they are to do.
struct Directed<'a> {
    team: &'a mut Team,
    directing: Directing<'a>,
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

/// A job's total of what its epochs took.
pub fn total<'a>(epochs: impl Iterator<Item = &'a EpochRecord>) -> (Spending, Stages) {
    let mut total = (Spending::default(), Stages::default());
    for epoch in epochs {
        total.0.add(&epoch.spending);
        total.1.add(&epoch.stages);
    }
    total
}
