//! The workers of one job: does what the [`Barrier`] says, and tells it what happens.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use weft_gpu::Lease;

use super::JobError;
use super::common::Common;
use super::silence::{Silence, describe};
use super::worker::{Assignment, Contribution, Declaration, Message, Used, WorkerError, WorkerHandle, start_worker};
use crate::sync::{Action, Barrier, Event, Exchange, Who};

/// The contributions of a round, in the order of the workers.
pub type Contributions = Vec<(u32, Box<Contribution>)>;

/// How often one worker may fail in one round.
pub const ATTEMPTS: u32 = 3;

/// An order to a running job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    #[default]
    Run,
    /// The user stops it.
    Stop,
    /// The node stops. The job goes on after the restart.
    Pause,
}

/// Why a job does not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Halt {
    Stopped,
    Paused,
    OutOfTime,
    /// Something temporary is in the way: a full device, a bucket that cannot be reached.
    Waits(String),
    Failed(String),
}

impl Halt {
    /// What an error comes to.
    pub fn of(error: &JobError) -> Self {
        let text = error.to_string();
        if error.passes() { Self::Waits(text) } else { Self::Failed(text) }
    }
}

/// What the job's followers are told while it runs.
pub enum News {
    Lost {
        worker: u32,
        reason: String,
    },
    /// The round stands still: which workers it waits for, and since when.
    Silent(String),
    /// The round goes on after it stood still for this long.
    Heard(Duration),
    /// Steps of the epoch that a worker has done, its latest loss, and samples of this round.
    Progress {
        worker: u32,
        steps: u64,
        loss: f64,
        samples: u64,
    },
}

/// The lengths that every contribution must have.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sizes {
    pub payload: usize,
    pub buffers: usize,
    pub weights: usize,
}

pub struct Team {
    common: Arc<Common>,
    barrier: Barrier,
    handles: Vec<Option<WorkerHandle>>,
    /// For those that are started first.
    leases: Vec<Option<Vec<Lease>>>,
    outbox: mpsc::UnboundedSender<Message>,
    messages: mpsc::UnboundedReceiver<Message>,
    orders: watch::Receiver<Order>,
    kills: mpsc::UnboundedReceiver<u32>,
    runtime: Handle,
    deadline: Option<Instant>,
    straggler: Option<Duration>,
    pub sizes: Sizes,
    declaration: Option<Box<Declaration>>,
    waiting_for: usize,
    /// Of the round.
    assignments: Vec<Option<Assignment>>,
    contributions: Vec<Option<Box<Contribution>>>,
    last_error: String,
    /// Whether that was the node's, and not the function's.
    last_error_passes: bool,
    silence: Silence,
    /// How many workers were lost so far.
    pub losses: u64,
    /// Resources of workers that have not handed in a contribution, such as those of starting up.
    pub overhead: Vec<Used>,
    news: Box<dyn Fn(News) + Send>,
}

/// The control channels of a running team.
pub struct Lines {
    pub orders: watch::Receiver<Order>,
    pub kills: mpsc::UnboundedReceiver<u32>,
    pub news: Box<dyn Fn(News) + Send>,
}

impl Team {
    /// Starts all workers and waits until they are ready. Returns what the trainer declared.
    pub async fn start(
        common: Arc<Common>,
        leases: Vec<Vec<Lease>>,
        lines: Lines,
        deadline: Option<Instant>,
    ) -> Result<(Self, Box<Declaration>), Halt> {
        let workers = common.spec.workers;
        let (barrier, starts) = Barrier::new(workers, common.spec.on_loss, ATTEMPTS);
        let (outbox, messages) = mpsc::unbounded_channel();
        let count = workers as usize;
        let straggler = Some(common.spec.straggler_ms).filter(|ms| *ms > 0).map(Duration::from_millis);
        let mut team = Self {
            barrier,
            handles: (0..count).map(|_| None).collect(),
            leases: leases.into_iter().map(Some).collect(),
            outbox,
            messages,
            orders: lines.orders,
            kills: lines.kills,
            runtime: Handle::current(),
            deadline,
            straggler,
            sizes: Sizes::default(),
            declaration: None,
            waiting_for: count,
            assignments: vec![None; count],
            contributions: (0..count).map(|_| None).collect(),
            last_error: String::new(),
            last_error_passes: false,
            silence: Silence::new(Instant::now()),
            losses: 0,
            overhead: Vec::new(),
            news: lines.news,
            common,
        };
        team.obey(starts)?;
        while team.waiting_for > 0 || team.declaration.is_none() {
            team.next(None).await?;
        }
        let Some(declaration) = team.declaration.take() else {
            return Err(Halt::Failed("no worker declared a model".to_owned()));
        };
        Ok((team, declaration))
    }

    /// One round: every worker that takes part gets an assignment. Returns their contributions in the order of the
    /// workers.
    pub async fn round(
        &mut self,
        takes_part: impl Fn(u32) -> bool,
        assignment: impl Fn(u32, u64) -> Assignment,
    ) -> Result<Contributions, Halt> {
        let round = self.barrier.round() + 1;
        for worker in 0..self.common.spec.workers {
            let index = worker as usize;
            self.assignments[index] = takes_part(worker).then(|| assignment(worker, round));
            self.contributions[index] = None;
        }
        let overdue = self.straggler.map(|straggler| Instant::now() + straggler);
        // One that was told of may have ended without a word: with a straggler that was left behind.
        if let Some(silent) = self.silence.heard(Instant::now()) {
            (self.news)(News::Heard(silent));
        }
        let begin = self.barrier.begin(takes_part);
        if let Some(merged) = self.obey(begin)? {
            return Ok(merged);
        }
        loop {
            if let Some(merged) = self.next(overdue).await? {
                return Ok(merged);
            }
        }
    }

    /// Waits for a message, an order or a deadline, and handles it.
    async fn next(&mut self, overdue: Option<Instant>) -> Result<Option<Contributions>, Halt> {
        let tell_at = self.silence.tell_at();
        let alarm = [self.deadline, overdue].into_iter().flatten().fold(tell_at, Instant::min);
        let ring = tokio::time::sleep_until(alarm.into());
        enum Happened {
            Ordered(Order),
            Said(Message),
            Killed(u32),
            Rang,
        }
        let happened = tokio::select! {
            biased;
            ordered = self.orders.wait_for(|order| *order != Order::Run) => {
                Happened::Ordered(ordered.map_or(Order::Stop, |order| *order))
            }
            Some(message) = self.messages.recv() => Happened::Said(message),
            Some(worker) = self.kills.recv() => Happened::Killed(worker),
            () = ring => Happened::Rang,
        };
        match happened {
            Happened::Ordered(Order::Pause) => Err(Halt::Paused),
            Happened::Ordered(_) => Err(Halt::Stopped),
            Happened::Said(message) => {
                if let Some(silent) = self.silence.heard(Instant::now()) {
                    (self.news)(News::Heard(silent));
                }
                self.hear(message)
            }
            Happened::Killed(worker) => match self.barrier.claim(worker) {
                Some(who) => self.lose(who, &WorkerError::Killed),
                None => Ok(None),
            },
            Happened::Rang if self.deadline.is_some_and(|deadline| deadline <= Instant::now()) => Err(Halt::OutOfTime),
            Happened::Rang if overdue.is_none_or(|overdue| overdue > Instant::now()) => {
                let silent = self.silence.tell(Instant::now());
                (self.news)(News::Silent(describe(&self.barrier.awaited(), silent)));
                Ok(None)
            }
            Happened::Rang => {
                self.last_error = WorkerError::Straggler(self.common.spec.straggler_ms).to_string();
                self.last_error_passes = false;
                let actions = self.barrier.handle(Event::Overdue { round: self.barrier.round() });
                for action in &actions {
                    if let Action::Abandon(who) = action {
                        self.tell_lost(who.worker, self.last_error.clone());
                    }
                }
                self.obey(actions)
            }
        }
    }

    fn hear(&mut self, message: Message) -> Result<Option<Contributions>, Halt> {
        let event = match message {
            Message::Ready { who, declaration, used } => {
                self.overhead.push(used);
                if self.is_current(who) {
                    self.waiting_for = self.waiting_for.saturating_sub(1);
                    self.declaration = self.declaration.take().or(declaration);
                }
                Event::Ready(who)
            }
            Message::Done { who, round, contribution } => {
                if !self.is_current(who) || round != self.barrier.round() {
                    return Ok(None);
                }
                if let Some(problem) = self.misfit(&contribution, who) {
                    return self.lose(who, &WorkerError::Train(problem));
                }
                let samples = contribution.samples;
                self.contributions[who.worker as usize] = Some(contribution);
                Event::Done { who, round, samples }
            }
            Message::Lost { who, error } => return self.lose(who, &error),
            Message::Progress { who, steps, loss, samples } => {
                (self.news)(News::Progress { worker: who.worker, steps, loss, samples });
                return Ok(None);
            }
            Message::Computes => return Ok(None),
        };
        let actions = self.barrier.handle(event);
        self.obey(actions)
    }

    /// The worker that currently fills a place.
    pub fn who(&self, worker: u32) -> Option<Who> {
        self.barrier.claim(worker)
    }

    fn is_current(&self, who: Who) -> bool {
        self.barrier.claim(who.worker) == Some(who)
    }

    /// What is wrong with a contribution whose sizes differ from what the first worker's trainer declared.
    fn misfit(&self, contribution: &Contribution, who: Who) -> Option<String> {
        use super::worker::Task;
        let task = self.assignments[who.worker as usize].as_ref().map(|assignment| assignment.task);
        let payload = match (task, self.common.exchange) {
            (Some(Task::Evaluate) | None, _) => return None,
            (Some(Task::Update), _) | (_, Exchange::Weights) => self.sizes.weights,
            (_, Exchange::Gradients | Exchange::Statistics)
                if contribution.samples == 0 || !contribution.encoded.is_empty() =>
            {
                0
            }
            (_, Exchange::Gradients | Exchange::Statistics) => self.sizes.payload,
        };
        let fits = contribution.payload.len() == payload && contribution.buffers.len() == self.sizes.buffers;
        (!fits).then(|| "the trainer declares another model for this worker than for worker 0".to_owned())
    }

    fn lose(&mut self, who: Who, error: &WorkerError) -> Result<Option<Contributions>, Halt> {
        if !self.is_current(who) {
            return Ok(None);
        }
        // One that was not there yet is still waited for.
        self.handles[who.worker as usize] = None;
        self.last_error = error.to_string();
        self.last_error_passes = error.passes();
        self.tell_lost(who.worker, self.last_error.clone());
        let actions = self.barrier.handle(Event::Lost(who));
        self.obey(actions)
    }

    fn tell_lost(&mut self, worker: u32, reason: String) {
        self.losses += 1;
        (self.news)(News::Lost { worker, reason });
    }

    fn obey(&mut self, actions: Vec<Action>) -> Result<Option<Contributions>, Halt> {
        let mut merged = None;
        for action in actions {
            match action {
                Action::Start(who) => {
                    let leases = self.leases.get_mut(who.worker as usize).and_then(Option::take);
                    let handle =
                        start_worker(self.common.clone(), who, leases, self.outbox.clone(), self.runtime.clone());
                    self.handles[who.worker as usize] = Some(handle);
                }
                Action::Assign { who, .. } => {
                    let index = who.worker as usize;
                    if let (Some(handle), Some(assignment)) = (&self.handles[index], &self.assignments[index]) {
                        handle.assign(assignment.clone());
                    }
                }
                // The next one takes its place.
                Action::Abandon(who) => self.handles[who.worker as usize] = None,
                Action::Merge { contributions, .. } => {
                    let take = |(worker, _): (u32, u64)| Some((worker, self.contributions[worker as usize].take()?));
                    merged = Some(contributions.into_iter().filter_map(take).collect());
                }
                Action::GiveUp { worker, .. } => {
                    let text = format!("worker {worker} failed {ATTEMPTS} times in a row: {}", self.last_error);
                    return Err(if self.last_error_passes { Halt::Waits(text) } else { Halt::Failed(text) });
                }
            }
        }
        Ok(merged)
    }
}
