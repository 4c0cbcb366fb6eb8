//! One running job: rounds, merges, validation, checkpoints, in this order, until it is over.
//!
//! A checkpoint is written between rounds, after every epoch and as often as asked; what it holds is [`Training`]. What a
//! round starts from is in memory until the round is merged, so a worker that is lost starts again from there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use weft_gpu::pool::{DeviceId, PoolError, Wish};
use weft_gpu::{Cancel, Codec, Context, Crew, Encoded, Lease, Request};

use super::checkpoint::{Progress, Sums, Training};
use super::common::{Common, Cursor};
use super::cost::Prices;
use super::is_busy;
use super::learning::{Learning, Seen, Validated, Verdict};
use super::model::{GlobalModel, WorkerState};
use super::record::{EpochRecord, Spending, Stages};
use super::spec::Keep;
use super::team::{Contributions, Halt, Sizes, Team};
use super::worker::{Assignment, Contribution, Declaration, Task, Used, means};
use crate::dataset::shard::{Last, Plan as ShardPlan};
use crate::devices::TAPE_NODES;
use crate::host::bindings::weft::train::training::Traits;
use crate::sandbox::trainer::MAX_METRICS;
use crate::sync::{Exchange, Rule, merge};
use crate::tenant::TrainingUse;
use crate::train::declared::{Declared, Part, Plan};
use crate::train::run::TrainError;

/// Memory beside the tensors that the job's own optimizer works on.
const SLACK: usize = 1 << 20;
/// How often what was used is written into the ledger.
const CHARGE_EVERY: Duration = Duration::from_millis(500);

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

pub struct Engine<K> {
    common: Arc<Common>,
    team: Team,
    rule: Rule,
    keeper: Arc<K>,
    prices: Prices,
    plan: Plan,
    reference: Option<Reference>,
    training: Training,
    /// Of the latest validation.
    metrics: BTreeMap<String, f64>,
    /// Since when the epoch's seconds count.
    since: Instant,
    uncharged: TrainingUse,
    charged: Instant,
    losses_before: u64,
}

/// The job's own copy of the model, where the gradients of all workers become one step.
struct Reference {
    declared: Declared,
    gradients: Vec<f32>,
    _lease: Lease,
}

impl Reference {
    fn open(common: &Common, plan: &Plan, training: &Training) -> Result<Self, Halt> {
        let weights = training.model.weights.len();
        // What is decoded is there twice for a moment: as it came, and as it was.
        let decoded = if common.codec == Codec::Plain { 0 } else { weights * 4 * 3 };
        let bytes = weights * 4 * 8 + decoded + training.model.buffers.len() * 8 + SLACK;
        let request = Request::new(common.tenant.name.as_str(), bytes);
        let lease = |device: Wish| {
            common.pool.lease(Request {
                device,
                weight: common.spec.weight().get(),
                cancel: Cancel::default(),
                ..request.clone()
            })
        };
        // It is one pass over memory, and the gradients are there.
        let lease = match lease(Wish::Exactly(DeviceId::Cpu(0))) {
            Err(PoolError::NoSuchDevice { .. }) => lease(common.device),
            leased => leased,
        };
        let lease = lease.map_err(|error| {
            let text = format!("no device for the optimizer: {error}");
            if is_busy(&error) { Halt::Waits(text) } else { Halt::Failed(text) }
        })?;
        let failed = |error: &dyn std::fmt::Display| Halt::Failed(error.to_string());
        let cores = common.sandbox.limits().cores;
        let context = Context::leased(&lease, Arc::new(Crew::new(cores)), TAPE_NODES);
        let mut declared = Declared::new(plan.clone(), &context, common.seed).map_err(|error| failed(&error))?;
        let restore = |declared: &mut Declared| {
            training.model.write(declared)?;
            training.optimizer.write(declared)
        };
        restore(&mut declared).map_err(|error| failed(&error))?;
        Ok(Self { declared, gradients: vec![0.0; weights], _lease: lease })
    }

    /// Gradients as they were before they were encoded, as far as the codec keeps them.
    fn decode(&self, encoded: &[u8]) -> Result<Vec<f32>, weft_gpu::Error> {
        let context = self.declared.arena().values().context();
        Encoded::from_wire(context, encoded, self.gradients.len())?.decode()?.to_vec()
    }

    /// The mean of all gradients, then one step. Gives the weights.
    fn descend(&mut self, parts: &[(&[f32], u64)], rate: f32) -> Result<Vec<f32>, weft_gpu::Error> {
        merge::mean(&mut self.gradients, parts);
        self.declared.write(Part::Gradients, &self.gradients)?;
        self.declared.descend(rate)?;
        let mut weights = Vec::new();
        self.declared.read(Part::Weights, &mut weights)?;
        Ok(weights)
    }
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

impl<K: Keeper> Engine<K> {
    pub fn new(
        common: Arc<Common>,
        mut team: Team,
        declaration: Declaration,
        rule: Rule,
        keeper: Arc<K>,
        prices: Prices,
        origin: Origin,
    ) -> Result<Self, Halt> {
        let Declaration { plan, mut model, worker_state, statistics } = declaration;
        let workers = common.spec.workers as usize;
        let is_local = common.exchange == Exchange::Weights;
        let first = match is_local {
            true => worker_state,
            false => WorkerState { moments: Vec::new(), steps: 0, ..worker_state },
        };
        let (weights, buffers) = (model.weights.len(), model.buffers.len());
        let payload = if common.exchange == Exchange::Statistics { statistics } else { weights };
        team.sizes = Sizes { payload, buffers, weights };
        let training = match origin {
            Origin::Checkpoint(training) => {
                let fits = (training.model.weights.len(), training.model.buffers.len()) == (weights, buffers)
                    && training.worker_states.len() == workers;
                if !fits {
                    let text = "the checkpoint is of another model than the trainer declares now";
                    return Err(Halt::Failed(text.to_owned()));
                }
                *training
            }
            other => {
                if let Origin::Model(load) = other {
                    load(&plan, &mut model).map_err(Halt::Failed)?;
                }
                let progress = Progress {
                    epoch: 0,
                    done: 0,
                    step: 0,
                    learning: Learning::new(&common.spec),
                    sums: Sums::default(),
                    best: ModelFacts::default(),
                };
                let first = Arc::new(first);
                let worker_states = (0..workers).map(|_| first.clone()).collect();
                Training {
                    model: Arc::new(model),
                    optimizer: WorkerState::default(),
                    worker_states,
                    best: None,
                    progress,
                }
            }
        };
        let reference = match common.exchange {
            Exchange::Gradients => Some(Reference::open(&common, &plan, &training)?),
            _ => None,
        };
        let now = Instant::now();
        Ok(Self {
            common,
            team,
            rule,
            keeper,
            prices,
            plan,
            reference,
            training,
            metrics: BTreeMap::new(),
            since: now,
            uncharged: TrainingUse::default(),
            charged: now,
            losses_before: 0,
        })
    }

    /// Trains until it is over. Whatever the end, the model is kept.
    pub async fn run(mut self) -> Ending {
        self.since = Instant::now();
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
        let epochs = self.common.spec.epochs;
        while self.training.progress.epoch < epochs {
            let steps = self.steps();
            self.epoch_rounds(steps).await?;
            let verdict = self.end_epoch(steps).await?;
            if let Verdict::End(reason) = verdict {
                return Ok(reason);
            }
        }
        Ok(format!("all {epochs} epochs are done"))
    }

    /// Steps of this epoch: of the shard that has most of them.
    fn steps(&self) -> u64 {
        let Some(data) = &self.common.data else { return self.common.spec.steps };
        let shards = self.common.lanes().into();
        let plan = ShardPlan { shards, ..ShardPlan::default() };
        let samples = plan.count(&data.manifest.train, 0).unwrap_or(0);
        Last::Keep.batches(samples, self.common.spec.batch_of(self.training.progress.epoch))
    }

    fn cursor(&self) -> Cursor {
        let Progress { epoch, done, step, learning, .. } = &self.training.progress;
        let batch = self.common.spec.batch_of(*epoch);
        Cursor { epoch: *epoch, done: *done, step: *step, batch, rate: learning.rate }
    }

    async fn epoch_rounds(&mut self, steps: u64) -> Result<(), Halt> {
        let workers = self.common.spec.workers;
        let every = self.common.spec.checkpoint_every;
        let mut since_checkpoint = 0;
        while self.training.progress.done < steps {
            let mut count = self.rule.round(workers, self.training.progress.done, steps);
            if every > 0 && self.common.exchange == Exchange::Weights && workers == 1 {
                count = count.min(every - since_checkpoint);
            }
            let mut contributions = self.round(Task::Train { steps: count }, |_| true, Arc::default()).await?;
            let start = Instant::now();
            self.decode(&mut contributions).map_err(Halt::Failed)?;
            let statistics = self.merge(&contributions).map_err(Halt::Failed)?;
            let merge_seconds = start.elapsed().as_secs_f64();
            self.training.progress.sums.stages.merge += merge_seconds;
            self.count(&contributions, true)?;
            if self.common.traits.contains(Traits::UPDATES) && self.common.exchange != Exchange::Weights {
                self.update(statistics).await?;
            }
            let progress = &mut self.training.progress;
            (progress.done, progress.step) = (progress.done + count, progress.step + count);
            since_checkpoint += count;
            if every > 0 && since_checkpoint >= every && self.training.progress.done < steps {
                since_checkpoint = 0;
                self.account();
                self.checkpoint(None).await?;
            }
        }
        Ok(())
    }

    async fn round(
        &mut self,
        task: Task,
        takes_part: impl Fn(u32) -> bool,
        statistics: Arc<Vec<f32>>,
    ) -> Result<Contributions, Halt> {
        let (at, model, worker_states) =
            (self.cursor(), self.training.model.clone(), self.training.worker_states.clone());
        let assignment = |worker: u32, round: u64| Assignment {
            round,
            task,
            at,
            model: model.clone(),
            worker_state: worker_states.get(worker as usize).cloned(),
            statistics: statistics.clone(),
        };
        self.team.round(takes_part, assignment).await
    }

    /// What came encoded becomes what it was.
    fn decode(&self, contributions: &mut Contributions) -> Result<(), String> {
        let Some(reference) = &self.reference else { return Ok(()) };
        for (_, contribution) in contributions.iter_mut().filter(|(_, contribution)| !contribution.encoded.is_empty()) {
            let decoded = reference.decode(&std::mem::take(&mut contribution.encoded));
            contribution.payload = decoded.map_err(|error| format!("gradients could not be decoded: {error}"))?;
        }
        Ok(())
    }

    /// Merges the contributions into the model. Returns the summed statistics.
    fn merge(&mut self, contributions: &[(u32, Box<Contribution>)]) -> Result<Arc<Vec<f32>>, String> {
        let parts: Vec<(&[f32], u64)> = contributions
            .iter()
            .filter(|(_, contribution)| contribution.samples > 0)
            .map(|(_, contribution)| (&contribution.payload[..], contribution.samples))
            .collect();
        let buffers: Vec<(&[f32], u64)> =
            contributions.iter().map(|(_, contribution)| (&contribution.buffers[..], contribution.samples)).collect();
        let model = &self.training.model;
        let mut next = GlobalModel { buffers: model.buffers.clone(), ..GlobalModel::default() };
        merge::mean(&mut next.buffers, &buffers);
        let mut statistics = Vec::new();
        match self.common.exchange {
            Exchange::Weights => {
                next.weights = match parts[..] {
                    [] => model.weights.clone(),
                    [(first, _), ..] => vec![0.0; first.len()],
                };
                merge::mean(&mut next.weights, &parts);
                // With one worker, the merged weights equal its own.
                if let ([(worker, _)], 1) = (contributions, self.common.spec.workers) {
                    next.of = self.team.who(*worker);
                }
            }
            Exchange::Gradients => {
                next.weights = match (&mut self.reference, parts.is_empty()) {
                    (Some(reference), false) => reference
                        .descend(&parts, self.training.progress.learning.rate)
                        .map_err(|error| format!("the optimizer failed: {error}"))?,
                    _ => model.weights.clone(),
                };
            }
            Exchange::Statistics => {
                next.weights = model.weights.clone();
                statistics = vec![0.0; self.team.sizes.payload];
                let parts: Vec<&[f32]> = parts.iter().map(|(part, _)| *part).collect();
                merge::sum(&mut statistics, &parts);
            }
        }
        self.training.model = Arc::new(next);
        self.take_worker_states(contributions);
        Ok(Arc::new(statistics))
    }

    /// What stays with workers; one that was left out joins with the mean of the others' moments.
    fn take_worker_states(&mut self, contributions: &[(u32, Box<Contribution>)]) {
        let worker_states = &mut self.training.worker_states;
        let mut is_there = vec![false; worker_states.len()];
        for (worker, contribution) in contributions {
            if let (Some(place), Some(worker_state)) =
                (worker_states.get_mut(*worker as usize), &contribution.worker_state)
            {
                *place = Arc::new(worker_state.clone());
                is_there[*worker as usize] = true;
            }
        }
        let parts: Vec<(&[f32], u64)> = contributions
            .iter()
            .filter_map(|(_, contribution)| {
                Some((&contribution.worker_state.as_ref()?.moments[..], contribution.samples))
            })
            .filter(|(moments, samples)| !moments.is_empty() && *samples > 0)
            .collect();
        let Some((first, _)) = parts.first() else { return };
        if is_there.iter().all(|there| *there) {
            return;
        }
        let mut moments = vec![0.0; first.len()];
        merge::mean(&mut moments, &parts);
        let steps = contributions
            .iter()
            .filter_map(|(_, contribution)| contribution.worker_state.as_ref())
            .map(|worker_state| worker_state.steps)
            .max();
        for (place, _) in worker_states.iter_mut().zip(is_there).filter(|(_, there)| !there) {
            let WorkerState { locals, residual, .. } = WorkerState::clone(place);
            let joined = WorkerState { moments: moments.clone(), steps: steps.unwrap_or(0), locals, residual };
            *place = Arc::new(joined);
        }
    }

    /// Has one worker make weights of statistics, for all.
    async fn update(&mut self, statistics: Arc<Vec<f32>>) -> Result<(), Halt> {
        let contributions = self.round(Task::Update, |worker| worker == 0, statistics).await?;
        self.count(&contributions, false)?;
        for (_, mut contribution) in contributions {
            let weights = std::mem::take(&mut contribution.payload);
            let buffers = std::mem::take(&mut contribution.buffers);
            if let Some(reference) = &self.reference {
                let written = reference.declared.write(Part::Weights, &weights);
                written.map_err(|error| Halt::Failed(error.to_string()))?;
            }
            self.training.model = Arc::new(GlobalModel { weights, buffers, of: None });
        }
        Ok(())
    }

    /// Accumulates a round's loss, samples and resource use.
    fn count(&mut self, contributions: &[(u32, Box<Contribution>)], trains: bool) -> Result<(), Halt> {
        for (_, contribution) in contributions {
            if trains {
                self.training.progress.sums.loss += contribution.loss;
                self.training.progress.sums.samples += contribution.samples;
            }
            self.spend(&contribution.used);
        }
        for used in std::mem::take(&mut self.team.overhead) {
            self.spend(&used);
        }
        self.charge(false)
    }

    fn spend(&mut self, used: &Used) {
        let lanes = u64::from(self.common.spec.fan_out);
        let (spending, spent) = self.prices.of_use(used, self.common.spec.memory * lanes);
        let sums = &mut self.training.progress.sums;
        sums.stages.add(&used.stages);
        sums.spending.add(&spending);
        sums.memory = sums.memory.max(used.memory);
        self.uncharged.add(&spent);
    }

    fn charge(&mut self, now: bool) -> Result<(), Halt> {
        if !now && self.charged.elapsed() < CHARGE_EVERY {
            return Ok(());
        }
        self.charged = Instant::now();
        self.keeper.charge(&std::mem::take(&mut self.uncharged)).map_err(Halt::Failed)
    }

    /// Brings the epoch's seconds and losses up to now.
    fn account(&mut self) {
        let sums = &mut self.training.progress.sums;
        sums.seconds += std::mem::replace(&mut self.since, Instant::now()).elapsed().as_secs_f64();
        sums.losses += self.team.losses - std::mem::replace(&mut self.losses_before, self.team.losses);
    }

    async fn end_epoch(&mut self, steps: u64) -> Result<Verdict, Halt> {
        self.account();
        let trained_for = self.training.progress.sums.seconds;
        let spec = &self.common.spec;
        let (epoch, every, epochs) = (self.training.progress.epoch + 1, spec.validate_every, spec.epochs);
        let has_tests = self.common.data.as_ref().is_none_or(|data| data.manifest.test.count > 0);
        let validates = has_tests && (epoch == epochs || (every > 0 && epoch.is_multiple_of(every)));
        if validates {
            let contributions = self.round(Task::Evaluate, |_| true, Arc::default()).await?;
            self.metrics = means(contributions.iter().map(|(_, contribution)| &**contribution));
            if self.metrics.len() > MAX_METRICS {
                return Err(Halt::Failed(TrainError::TooManyMetrics.to_string()));
            }
            // What is no number cannot be kept, nor compared.
            self.metrics.retain(|_, value| value.is_finite());
            self.count(&contributions, false)?;
        } else {
            self.metrics.clear();
        }
        self.account();
        let (rate, batch) = (self.training.progress.learning.rate, self.cursor().batch);
        let sums = std::mem::take(&mut self.training.progress.sums);
        let train_loss = if sums.samples == 0 { 0.0 } else { sums.loss / sums.samples as f64 };
        let validated =
            Validated { loss: self.metrics.get("loss").copied(), accuracy: self.metrics.get("accuracy").copied() };
        let seen = Seen { train_loss, validation: validates.then_some(validated) };
        let (verdict, is_best) = self.training.progress.learning.judge(&self.common.spec, seen);
        if is_best && self.common.spec.keep == Keep::Best {
            self.training.best = Some(self.training.model.clone());
            self.training.progress.best = self.facts();
        }
        let record = EpochRecord {
            epoch,
            train_loss,
            validation: self.metrics.clone(),
            workers: self.common.spec.workers,
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
        };
        self.training.progress.epoch = epoch;
        self.training.progress.done = 0;
        self.keep_epoch_model(epoch).await?;
        self.checkpoint(Some(record)).await?;
        Ok(verdict)
    }

    async fn checkpoint(&mut self, epoch: Option<EpochRecord>) -> Result<(), Halt> {
        // First: whatever happens, the tenant's ledger has no less than its jobs' records and checkpoints.
        self.charge(true)?;
        if let Some(reference) = &self.reference {
            let read = WorkerState::read(&reference.declared).map_err(|error| Halt::Failed(error.to_string()))?;
            self.training.optimizer = read;
        }
        self.keeper.checkpoint(&self.training, epoch).await
    }

    fn facts(&self) -> ModelFacts {
        ModelFacts { step: self.training.progress.step, metrics: self.metrics.clone() }
    }

    async fn keep_epoch_model(&mut self, epoch: u64) -> Result<(), Halt> {
        let Keep::Latest(count) = self.common.spec.keep else { return Ok(()) };
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

/// A job's total of what its epochs took.
pub fn total<'a>(epochs: impl Iterator<Item = &'a EpochRecord>) -> (Spending, Stages) {
    let mut total = (Spending::default(), Stages::default());
    for epoch in epochs {
        total.0.add(&epoch.spending);
        total.1.add(&epoch.stages);
    }
    total
}
