//! The loop of a worker's thread: takes assignments, computes with a trainer's instance, hands contributions over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use weft_core::spec::Shape;
use weft_core::sync::{Channel as ChannelKind, Exchange, Rule, Slot, Who, merge};
use weft_core::usage::{Stages, Used};
use weft_gpu::Lease;
use weft_gpu::pool::PoolError;

use super::channel::{Channel, Message as ChannelMessage, Payload};
use super::encoding::{Encoder, Frames};
use super::exchange;
use super::fan_out::FanOut;
use super::model::{GlobalModel, WorkerState};
use super::scheme::{self, Lengths};
use super::throttle::Throttle;
use super::worker::{
    Assignment, Contribution, Declaration, MergeOrder, Message, TakeOrder, Task, WorkOrder, WorkerError,
};
use super::workshop::{Cursor, Workshop};
use crate::clock::thread_cpu;
use crate::train::declared::{Declared, Part, Pull};
use crate::train::run::{Feed, Losses, Stepper, Timing, add_measured, measure};
use crate::train::worker::Worker;

/// How often a worker that rests looks whether it is still wanted.
const LOOK_UP: Duration = Duration::from_millis(50);
/// However much it has used at once.
const LONGEST_REST: Duration = Duration::from_secs(3_600);

/// A worker's lease, instance and batches, and what it keeps from round to round.
pub(super) struct WorkerLoop {
    workshop: Arc<Workshop>,
    shape: Shape,
    who: Who,
    worker: Worker,
    fan_out: Option<FanOut>,
    lease: Lease,
    feed: Option<(Cursor, Feed)>,
    holds: Holds,
    channel: Arc<dyn Channel>,
    /// Its side of the exchange, if workers merge.
    exchange: Option<exchange::Exchange>,
    /// The model that the latest round began with.
    base: Option<Arc<GlobalModel>>,
    /// The latest contribution, should it have to be handed in once more.
    latest: Option<(u64, Contribution)>,
    /// Whether the device already has this worker's own state, so that it need not be loaded.
    is_settled: bool,
    encoder: Encoder,
    seen: Seen,
    messages: mpsc::UnboundedSender<Message>,
    dismissed: Arc<AtomicBool>,
    /// What it may compute.
    throttle: Option<Throttle>,
}

/// Which weights the device has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
    /// Something that nobody asked for.
    Unknown,
    /// The model of this version.
    Model(u64),
    /// What came of the worker's own latest steps.
    Own,
}

/// Counters as they were when the current work began.
#[derive(Clone, Copy)]
struct Seen {
    cpu: Duration,
    device: Duration,
    at: Instant,
    instances: u64,
}

/// Time that a function has computed on cores, in its sandbox and in kernels, on the thread that asks.
pub(super) fn core_time(worker: &Worker, lease: &Lease) -> Duration {
    match worker.context().device().info().kind.is_gpu() {
        true => thread_cpu(),
        // Its kernels run on this thread and on others.
        false => thread_cpu().max(lease.time()),
    }
}

/// Rests for so long, or until it is dismissed.
pub(super) async fn take_a_rest(rest: Duration, is_dismissed: impl Fn() -> bool) -> Result<(), WorkerError> {
    let end = Instant::now() + rest.min(LONGEST_REST);
    while Instant::now() < end {
        if is_dismissed() {
            return Err(WorkerError::Stopped);
        }
        let left = end.saturating_duration_since(Instant::now());
        tokio::time::sleep(left.min(LOOK_UP)).await;
    }
    Ok(())
}

impl WorkerLoop {
    pub async fn open(
        workshop: Arc<Workshop>,
        channel: Arc<dyn Channel>,
        shape: Shape,
        who: Who,
        leases: Vec<Lease>,
        messages: mpsc::UnboundedSender<Message>,
        dismissed: Arc<AtomicBool>,
    ) -> Result<Self, WorkerError> {
        let (at, cpu) = (Instant::now(), thread_cpu());
        let mut leases = leases.into_iter();
        let lease = leases.next().ok_or(WorkerError::Device(PoolError::Empty))?;
        let context = workshop.context(&shape, &lease);
        let worker = Worker::start(workshop.setup(&shape, context)).await?;
        worker.rest();
        worker.declared().map_or(Ok(()), |declared| workshop.check_host_memory(declared, &shape))?;
        let declaration = match (who, worker.declared()) {
            (Who { worker: 0, .. }, Some(declared)) => Some(Box::new(Declaration {
                plan: declared.plan().clone(),
                model: GlobalModel::read(declared)?,
                worker_state: WorkerState::read(declared)?,
                statistics: declared.length(Part::Statistics),
            })),
            _ => None,
        };
        let fan_out = FanOut::open(&workshop, &shape, who, leases, &messages)?;
        let seen = Seen { cpu, device: Duration::ZERO, at, instances: 0 };
        let encoder = Encoder::new(workshop.codec(&shape), workshop.brief.seed, who.worker);
        let throttle = workshop.throttle(&shape);
        let mut this = Self {
            throttle,
            workshop,
            shape,
            who,
            worker,
            fan_out,
            lease,
            feed: None,
            holds: Holds::Unknown,
            channel,
            exchange: None,
            base: None,
            latest: None,
            is_settled: false,
            encoder,
            seen,
            messages,
            dismissed,
        };
        let mut used = this.used(&mut Timing::default(), Stages::default());
        used.invocations = 1;
        this.messages.send(Message::Ready { who, declaration, used }).ok();
        Ok(this)
    }

    pub async fn work(mut self, mut inbox: mpsc::UnboundedReceiver<WorkOrder>) -> Result<(), WorkerError> {
        while let Some(order) = inbox.recv().await {
            if self.dismissed.load(Relaxed) {
                break;
            }
            // Whatever it has waited for is not its own time.
            self.seen.at = Instant::now();
            let message = match order {
                WorkOrder::Work { assignment, generation } => self.hand_in(*assignment, generation).await?,
                WorkOrder::Merge(order) => self.merge(order).await?,
            };
            self.worker.rest();
            self.messages.send(message).ok();
        }
        Ok(())
    }

    /// Does its part of a round, or hands in the same once more if it has done it already.
    async fn hand_in(&mut self, assignment: Assignment, generation: u32) -> Result<Message, WorkerError> {
        let (who, round) = (self.who, assignment.round);
        let again = self.latest.take().filter(|(of, _)| *of == round && generation > 0);
        let is_sent_again = match (&again, &mut self.exchange) {
            (Some(_), Some(exchange)) => exchange.resend().await?,
            _ => false,
        };
        let contribution = match again.filter(|_| is_sent_again) {
            Some((_, contribution)) => contribution,
            None => self.contribution(assignment).await?,
        };
        if self.exchange.is_some() {
            self.latest = Some((round, contribution.clone()));
        }
        Ok(Message::Done { who, round, generation, contribution: Box::new(contribution) })
    }

    /// Merges what others have put into the channel.
    async fn merge(&mut self, order: MergeOrder) -> Result<Message, WorkerError> {
        let MergeOrder { round, merge, generation, parts, total } = order;
        let who = self.who;
        // One that was started after the others had handed in knows of the round by this order.
        let exchange = self.exchange()?;
        exchange.enter(round);
        let merged = exchange.merge(merge, &parts, total).await?;
        let times = exchange.take_times();
        let stages = Stages { merge: times.total().as_secs_f64(), ..Stages::default() };
        let used = self.used(&mut Timing::default(), stages);
        Ok(match merged {
            exchange::Merged::Done => Message::Merged { who, round, merge, generation, used },
            exchange::Merged::Missing(sources) => Message::Missing { who, round, merge, generation, sources },
        })
    }

    /// Its side of the exchange.
    fn exchange(&mut self) -> Result<&mut exchange::Exchange, WorkerError> {
        if self.exchange.is_none() {
            let context = self.worker.context().clone();
            let (workshop, channel, shape, who) = (self.workshop.clone(), self.channel.clone(), self.shape, self.who);
            let payload = match self.exchanged() {
                Exchange::Statistics => Part::Statistics,
                Exchange::Gradients | Exchange::Weights | Exchange::Duals => Part::Weights,
            };
            let declared = self.declared()?;
            let lengths = Lengths { payload: declared.length(payload), buffers: declared.length(Part::Buffers) };
            let scheme = scheme::scheme(&workshop, &shape, lengths, &context);
            let scheme = scheme.map_err(|error| WorkerError::Train(error.to_string()))?;
            let scheme = scheme.ok_or_else(|| WorkerError::Train("workers of this job do not merge".to_owned()))?;
            self.exchange = Some(exchange::Exchange::new(who, scheme, channel));
        }
        self.exchange.as_mut().ok_or_else(|| WorkerError::Train("there is no exchange".to_owned()))
    }

    async fn contribution(&mut self, assignment: Assignment) -> Result<Contribution, WorkerError> {
        let start = Instant::now();
        let received = self.receive(&assignment).await?;
        let receive = start.elapsed().as_secs_f64();
        let mut timing = Timing::default();
        let mut contribution = match assignment.task {
            Task::Train { steps, .. } => self.train(&assignment, steps, &mut timing).await?,
            Task::Update => self.update(&assignment, &mut timing).await?,
            Task::Evaluate => self.evaluate(&assignment).await?,
            Task::ShowWeights => Contribution::default(),
        };
        let sending = Instant::now();
        self.send(&assignment, &mut contribution).await?;
        let send = sending.elapsed().as_secs_f64();
        let payload = contribution.payload.as_ref().map_or(0, |payload| payload.byte_count());
        let sent = payload + size_of_val(&contribution.buffers[..]) as u64;
        let stages = Stages { receive, send, ..contribution.used.stages };
        let invocations = contribution.used.invocations;
        contribution.used = self.used(&mut timing, stages);
        (contribution.used.invocations, contribution.used.bytes) = (invocations, received + sent);
        Ok(contribution)
    }

    /// What workers hand over.
    fn exchanged(&self) -> Exchange {
        self.workshop.exchange(&self.shape)
    }

    /// The number of this worker's first function, counted over all workers.
    fn lane(&self) -> u32 {
        self.who.worker * self.shape.fan_out
    }

    /// Loads what the assignment starts from, unless the device already has it. Returns how many bytes were loaded.
    async fn receive(&mut self, assignment: &Assignment) -> Result<u64, WorkerError> {
        let (who, model) = (self.who, assignment.model.clone());
        let is_settled = std::mem::replace(&mut self.is_settled, true) && !assignment.is_new_state;
        let trains = matches!(assignment.task, Task::Train { .. } | Task::ShowWeights);
        let own = assignment.worker_state.clone().filter(|state| trains && !state.weights.is_empty());
        let mut bytes = 0;
        if own.is_none() && self.holds == Holds::Model(model.version.wrapping_sub(1)) {
            bytes += self.take(assignment).await?;
        }
        let holds = self.holds;
        if let Some(own) = &own {
            let declared = self.declared()?;
            // Buffers are of all workers, also where weights are not.
            declared.write(Part::Buffers, &model.buffers)?;
            if holds != Holds::Own {
                declared.write(Part::Weights, &own.weights)?;
                bytes += size_of_val(&own.weights[..]) as u64;
            }
        } else if !(holds == Holds::Model(model.version) || model.of == Some(who) && holds == Holds::Own) {
            bytes += match &assignment.take {
                Some(TakeOrder::Model(slot)) => self.load_from_channel(*slot, &model).await?,
                _ => {
                    model.write(self.declared()?)?;
                    model.bytes()
                }
            };
        }
        if !is_settled {
            let declared = self.declared()?;
            for state in assignment.optimizer.iter().chain(&assignment.worker_state) {
                state.write(declared)?;
            }
        }
        self.holds = if own.is_some() { Holds::Own } else { Holds::Model(model.version) };
        if let Some(gradients) = &assignment.average {
            let declared = self.declared()?;
            declared.write(Part::Gradients, gradients)?;
            declared.descend(assignment.at.rate)?;
            self.holds = Holds::Own;
        }
        self.base = Some(model);
        Ok(bytes)
    }

    /// Makes the model of the one before with what workers have merged, if that is to be had. Returns how many bytes were
    /// taken.
    async fn take(&mut self, assignment: &Assignment) -> Result<u64, WorkerError> {
        let (Some(TakeOrder::Results { round, results, rate }), Some(base)) = (&assignment.take, self.base.clone())
        else {
            return Ok(0);
        };
        let exchanged = self.exchanged();
        let exchange = self.exchange()?;
        if exchange.round() != *round {
            return Ok(0);
        }
        let exchange::Taken::Done(taken) = exchange.take(results).await? else { return Ok(0) };
        let bytes = taken.pieces.iter().map(|(_, numbers)| numbers.byte_count()).sum();
        if taken.samples > 0 {
            let is_plain = self.encoder.is_plain();
            let mut numbers = taken.into_numbers().into_vec();
            let declared = self.declared()?;
            let buffers = numbers.split_off(declared.length(Part::Weights).min(numbers.len()));
            match exchanged {
                Exchange::Gradients => {
                    declared.write(Part::Gradients, &numbers)?;
                    declared.descend(*rate)?;
                }
                Exchange::Weights => {
                    if !is_plain {
                        merge::add(&mut numbers, &base.weights);
                    }
                    declared.write(Part::Weights, &numbers)?;
                }
                // The model of these is made by the coordinator.
                Exchange::Statistics | Exchange::Duals => return Ok(0),
            }
            declared.write(Part::Buffers, &buffers)?;
        }
        self.holds = Holds::Model(assignment.model.version);
        Ok(bytes)
    }

    /// The model that the coordinator has put into the channel; as it came with the assignment if it is not there.
    async fn load_from_channel(&mut self, slot: Slot, model: &GlobalModel) -> Result<u64, WorkerError> {
        let found = match self.channel.get(slot).await {
            Err(error) if error.is_damage() => None,
            found => found?,
        };
        let declared = self.declared()?;
        let lengths = (declared.length(Part::Weights), declared.length(Part::Buffers));
        match found.map(|message| (message.payload, message.buffers)) {
            Some((Payload::Plain(weights), buffers)) if (weights.len(), buffers.len()) == lengths => {
                declared.write(Part::Weights, &weights)?;
                declared.write(Part::Buffers, &buffers)?;
            }
            _ => model.write(declared)?,
        }
        Ok(model.bytes())
    }

    fn declared(&mut self) -> Result<&mut Declared, WorkerError> {
        self.worker.declared_mut().ok_or_else(|| WorkerError::Train("the trainer has declared nothing".to_owned()))
    }

    /// What pulls the weights to those of others, in ADMM.
    fn pull(&mut self, assignment: &Assignment) -> Result<Option<Pull>, WorkerError> {
        let Rule::Admm(admm) = self.workshop.rule() else { return Ok(None) };
        let context = self.worker.context().clone();
        let length = self.declared()?.length(Part::Weights);
        let model = context.tensor(&[length], &assignment.model.weights)?;
        let duals = match assignment.worker_state.as_ref().filter(|state| state.duals.len() == length) {
            Some(state) => context.tensor(&[length], &state.duals)?,
            None => context.zeros(&[length])?,
        };
        Ok(Some(Pull { rho: admm.rho, model, duals }))
    }

    async fn train(
        &mut self,
        assignment: &Assignment,
        steps: u64,
        timing: &mut Timing,
    ) -> Result<Contribution, WorkerError> {
        let (workshop, who, exchange) = (self.workshop.clone(), self.who, self.exchanged());
        let at = &assignment.at;
        match exchange {
            // What was counted in an earlier round has been handed over.
            Exchange::Statistics => self.declared()?.clear_statistics()?,
            // The job's optimizer has done the steps; the trainer's schedule goes by them.
            Exchange::Gradients if !workshop.has_own_weights() => self.declared()?.resume_optimizer(at.step),
            Exchange::Gradients => {}
            Exchange::Weights | Exchange::Duals => {}
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
                self.messages.send(Message::Progress { who, steps, loss, samples }).ok();
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

    /// Rests until it has computed no more than it may.
    async fn rest(&mut self) -> Result<(), WorkerError> {
        let Some(throttle) = &mut self.throttle else { return Ok(()) };
        let rest = throttle.rest(core_time(&self.worker, &self.lease), Instant::now());
        if let Some(rest) = rest {
            self.worker.rest();
            let dismissed = &self.dismissed;
            take_a_rest(rest, || dismissed.load(Relaxed)).await?;
        }
        Ok(())
    }

    async fn update(&mut self, assignment: &Assignment, timing: &mut Timing) -> Result<Contribution, WorkerError> {
        let at = &assignment.at;
        let start = Instant::now();
        if !assignment.statistics.is_empty() {
            self.declared()?.write(Part::Statistics, &assignment.statistics)?;
        }
        let info = self.workshop.step_info(at, self.lane());
        self.worker.update(info).await?;
        self.declared()?.clear_statistics()?;
        self.holds = Holds::Unknown;
        timing.update += start.elapsed();
        Ok(Contribution { used: Used { invocations: 1, ..Used::default() }, ..Contribution::default() })
    }

    async fn evaluate(&mut self, assignment: &Assignment) -> Result<Contribution, WorkerError> {
        let start = Instant::now();
        let (workshop, at, who) = (self.workshop.clone(), &assignment.at, self.who);
        let mut contribution = Contribution::default();
        let info = workshop.step_info(at, self.lane());
        let mut feed = workshop.tests(at, who.worker, self.worker.context())?;
        let mut told = Instant::now();
        loop {
            if told.elapsed() >= Duration::from_secs(1) {
                told = Instant::now();
                self.messages.send(Message::Computes).ok();
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

    /// Copies what is handed over from the device into the contribution, or puts it into the channel.
    async fn send(&mut self, assignment: &Assignment, contribution: &mut Contribution) -> Result<(), WorkerError> {
        let joins = match assignment.task {
            Task::Evaluate => return Ok(()),
            Task::Update | Task::ShowWeights => {
                let is_own = assignment.task == Task::ShowWeights;
                let mut weights = Vec::new();
                let declared = self.declared()?;
                declared.read(Part::Weights, &mut weights)?;
                declared.read(Part::Buffers, &mut contribution.buffers)?;
                if is_own {
                    let state = WorkerState { weights: weights.clone(), ..WorkerState::read(declared)? };
                    contribution.worker_state = Some(state);
                }
                contribution.payload = Some(weights.into());
                return Ok(());
            }
            Task::Train { joins, .. } => joins,
        };
        let (exchanged, rule) = (self.exchanged(), self.workshop.rule());
        let shards = match joins && scheme::workers_merge(&self.workshop, &self.shape) {
            true => Some(self.exchange()?.payload_shards()),
            false => None,
        };
        let mut weights = Vec::new();
        let (encoder, declared) = (&mut self.encoder, self.worker.declared());
        let declared = declared.ok_or_else(|| WorkerError::Train("the trainer has declared nothing".to_owned()))?;
        if exchanged.descends() {
            declared.read(Part::Weights, &mut weights)?;
        }
        declared.read(Part::Buffers, &mut contribution.buffers)?;
        let mut state = WorkerState::read(declared)?;
        let is_peer = self.workshop.has_own_weights();
        if (exchanged.shares_optimizer() && !is_peer) || exchanged.is_sum() {
            // The optimizer is not the worker's.
            (state.moments, state.steps) = (Vec::new(), 0);
        }
        if is_peer {
            declared.read(Part::Weights, &mut state.weights)?;
        }
        let before = assignment.worker_state.as_deref();
        state.duals = before.map(|before| before.duals.clone()).unwrap_or_default();
        if rule.keeps_weights() && (!joins || exchanged == Exchange::Duals) {
            state.weights = weights.clone();
        }
        let whole = 0..declared.length(Part::Weights);
        let ranges = shards.clone().unwrap_or_else(|| vec![whole]);
        let mut frames = None;
        // Nothing was computed, so there is nothing to hand over, but weights, which all have.
        if contribution.samples > 0 || exchanged.descends() {
            contribution.payload = match exchanged {
                // What is kept apart from the model is shown to the coordinator as it is.
                Exchange::Weights if encoder.is_plain() || !joins => Some(weights.into()),
                Exchange::Weights => {
                    frames = Some(encoder.weights(declared, weights, &ranges, assignment)?);
                    None
                }
                Exchange::Gradients if encoder.is_plain() => {
                    let mut gradients = Vec::new();
                    declared.read(Part::Gradients, &mut gradients)?;
                    Some(gradients.into())
                }
                Exchange::Gradients => {
                    frames = Some(encoder.gradients(declared, &ranges, assignment)?);
                    None
                }
                Exchange::Statistics => {
                    let mut statistics = Vec::new();
                    declared.read(Part::Statistics, &mut statistics)?;
                    Some(statistics.into())
                }
                // Between two rounds of ADMM nothing is merged.
                Exchange::Duals if !joins => None,
                Exchange::Duals => {
                    weights.iter_mut().zip(&state.duals).for_each(|(weight, dual)| *weight += dual);
                    Some(weights.into())
                }
            };
        }
        // One that works alone for a while sends later what it has not sent yet.
        state.residual = match encoder.is_plain() || frames.is_none() {
            true => before.map(|before| before.residual.clone()).unwrap_or_default(),
            false => encoder.residual()?,
        };
        contribution.worker_state = Some(state);
        match shards {
            Some(_) => self.put_parts(assignment.round, contribution, frames).await,
            None => self.put_whole(assignment.round, contribution, frames).await,
        }
    }

    /// Puts the parts of the contribution that others merge into the channel, and keeps the others.
    async fn put_parts(
        &mut self,
        round: u64,
        contribution: &mut Contribution,
        frames: Option<Frames>,
    ) -> Result<(), WorkerError> {
        let (samples, is_sum) = (contribution.samples, self.exchanged().is_sum());
        let buffers = if is_sum { Vec::new() } else { std::mem::take(&mut contribution.buffers) };
        let mut numbers = match (&frames, contribution.payload.take()) {
            (None, Some(Payload::Plain(numbers))) => numbers.into_vec(),
            (Some(frames), _) => self.exchange()?.decode(frames).map_err(WorkerError::Train)?,
            _ => Vec::new(),
        };
        let exchange = self.exchange()?;
        if !numbers.is_empty() {
            numbers.extend(buffers);
        }
        // Without samples nobody asks for it, but the round has it.
        numbers.resize(exchange.elements(), 0.0);
        exchange.send(round, exchange::Contribution { samples, numbers: numbers.into(), encoded: frames }).await?;
        Ok(())
    }

    /// Hands the whole contribution to the coordinator, through the channel if there is one.
    async fn put_whole(
        &mut self,
        round: u64,
        contribution: &mut Contribution,
        frames: Option<Frames>,
    ) -> Result<(), WorkerError> {
        if let Some(frame) = frames.and_then(|frames| frames.into_iter().next()) {
            contribution.payload = Some(Payload::Encoded(frame));
        }
        if self.workshop.brief.sync.channel == ChannelKind::Memory || contribution.payload.is_none() {
            return Ok(());
        }
        let Who { worker, claim } = self.who;
        if let Some(payload) = contribution.payload.take() {
            let buffers = std::mem::take(&mut contribution.buffers).into();
            let message = ChannelMessage { samples: contribution.samples, payload, buffers };
            self.channel.put(Slot { round, layer: 0, shard: 0, worker, claim }, message).await?;
            (contribution.is_in_channel, contribution.claim) = (true, claim);
        }
        Ok(())
    }

    /// The resources used since the current work began.
    fn used(&mut self, timing: &mut Timing, stages: Stages) -> Used {
        let now = Seen {
            cpu: thread_cpu(),
            device: self.lease.time() + self.fan_out.as_ref().map_or(Duration::ZERO, FanOut::device_time),
            at: Instant::now(),
            instances: self.worker.instances() + self.fan_out.as_ref().map_or(0, FanOut::instances),
        };
        let before = std::mem::replace(&mut self.seen, now);
        Used {
            stages: Stages {
                data: timing.data.as_secs_f64(),
                compute: timing.compute.as_secs_f64(),
                update: timing.update.as_secs_f64(),
                ..stages
            },
            cpu: now.cpu.saturating_sub(before.cpu),
            device: now.device.saturating_sub(before.device),
            is_gpu: self.worker.context().device().info().kind.is_gpu(),
            wall: now.at - before.at,
            memory: self.lease.used() as u64 + self.worker.memory(),
            invocations: 0,
            cold_starts: now.instances - before.instances,
            bytes: 0,
        }
    }
}
