//! The workers of one job: does what the [`Barrier`] says, and tells it what happens.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use weft_gpu::Lease;

use super::JobError;
use super::common::Common;
use super::silence::{Silence, describe};
use super::worker::{Assignment, Born, Hired, Message, Share, Used, WorkerError, hire};
use crate::sync::{Action, Barrier, Event, Exchange, Who};

/// What workers handed over, in the order of the workers.
pub type Shares = Vec<(u32, Box<Share>)>;

/// How often a worker may fail in one round.
pub const ATTEMPTS: u32 = 3;

/// What a running job is told to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    #[default]
    Run,
    /// Somebody has had enough of it.
    Stop,
    /// The node stops; the job goes on when it is there again.
    Pause,
}

/// Why a job does not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Halt {
    Stopped,
    Paused,
    OutOfTime,
    /// Something is in the way that passes: a full device, a bucket that is away.
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

/// What followers are told as it happens.
pub enum News {
    Lost {
        worker: u32,
        reason: String,
    },
    /// The round stands still: whom it waits for, and for how long.
    Silent(String),
    /// It goes on, after so long.
    Heard(Duration),
    /// Steps of the epoch that a worker has done, its latest loss, and samples of this round.
    Progress {
        worker: u32,
        steps: u64,
        loss: f64,
        samples: u64,
    },
}

/// Numbers that a share must have, or its trainer declares something else than the others.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sizes {
    pub payload: usize,
    pub buffers: usize,
    pub weights: usize,
}

pub struct Team {
    common: Arc<Common>,
    barrier: Barrier,
    hired: Vec<Option<Hired>>,
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
    born: Option<Box<Born>>,
    waiting_for: usize,
    /// Of the round.
    assignments: Vec<Option<Assignment>>,
    shares: Vec<Option<Box<Share>>>,
    last_error: String,
    /// Whether that was the node's, and not the function's.
    last_error_passes: bool,
    silence: Silence,
    /// Workers that were lost.
    pub losses: u64,
    /// What those used that handed in no share: starting up, mostly.
    pub overhead: Vec<Used>,
    news: Box<dyn Fn(News) + Send>,
}

/// By which way a team is spoken to.
pub struct Lines {
    pub orders: watch::Receiver<Order>,
    pub kills: mpsc::UnboundedReceiver<u32>,
    pub news: Box<dyn Fn(News) + Send>,
}

impl Team {
    /// Starts all workers, and waits until they are there. Gives what the trainer declares.
    pub async fn start(
        common: Arc<Common>,
        leases: Vec<Vec<Lease>>,
        lines: Lines,
        deadline: Option<Instant>,
    ) -> Result<(Self, Box<Born>), Halt> {
        let workers = common.spec.workers;
        let (barrier, starts) = Barrier::new(workers, common.spec.on_loss, ATTEMPTS);
        let (outbox, messages) = mpsc::unbounded_channel();
        let count = workers as usize;
        let straggler = Some(common.spec.straggler_ms).filter(|ms| *ms > 0).map(Duration::from_millis);
        let mut team = Self {
            barrier,
            hired: (0..count).map(|_| None).collect(),
            leases: leases.into_iter().map(Some).collect(),
            outbox,
            messages,
            orders: lines.orders,
            kills: lines.kills,
            runtime: Handle::current(),
            deadline,
            straggler,
            sizes: Sizes::default(),
            born: None,
            waiting_for: count,
            assignments: vec![None; count],
            shares: (0..count).map(|_| None).collect(),
            last_error: String::new(),
            last_error_passes: false,
            silence: Silence::new(Instant::now()),
            losses: 0,
            overhead: Vec::new(),
            news: lines.news,
            common,
        };
        team.obey(starts)?;
        while team.waiting_for > 0 || team.born.is_none() {
            team.next(None).await?;
        }
        let Some(born) = team.born.take() else { return Err(Halt::Failed("no worker declared a model".to_owned())) };
        Ok((team, born))
    }

    /// One round: those who take part do what they are assigned; gives their shares in the order of the workers.
    pub async fn round(
        &mut self,
        takes_part: impl Fn(u32) -> bool,
        assignment: impl Fn(u32, u64) -> Assignment,
    ) -> Result<Shares, Halt> {
        let round = self.barrier.round() + 1;
        for worker in 0..self.common.spec.workers {
            let index = worker as usize;
            self.assignments[index] = takes_part(worker).then(|| assignment(worker, round));
            self.shares[index] = None;
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

    /// Waits for something to happen, and does what follows from it.
    async fn next(&mut self, overdue: Option<Instant>) -> Result<Option<Shares>, Halt> {
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

    fn hear(&mut self, message: Message) -> Result<Option<Shares>, Halt> {
        let event = match message {
            Message::Ready { who, born, used } => {
                self.overhead.push(used);
                if self.is_current(who) {
                    self.waiting_for = self.waiting_for.saturating_sub(1);
                    self.born = self.born.take().or(born);
                }
                Event::Ready(who)
            }
            Message::Done { who, round, share } => {
                if !self.is_current(who) || round != self.barrier.round() {
                    return Ok(None);
                }
                if let Some(problem) = self.misfit(&share, who) {
                    return self.lose(who, &WorkerError::Train(problem));
                }
                let samples = share.samples;
                self.shares[who.worker as usize] = Some(share);
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

    /// Who fills a place.
    pub fn who(&self, worker: u32) -> Option<Who> {
        self.barrier.claim(worker)
    }

    fn is_current(&self, who: Who) -> bool {
        self.barrier.claim(who.worker) == Some(who)
    }

    /// A trainer that declares something else for this worker than for the first one.
    fn misfit(&self, share: &Share, who: Who) -> Option<String> {
        use super::worker::Task;
        let task = self.assignments[who.worker as usize].as_ref().map(|assignment| assignment.task);
        let payload = match (task, self.common.exchange) {
            (Some(Task::Evaluate) | None, _) => return None,
            (Some(Task::Update), _) | (_, Exchange::Weights) => self.sizes.weights,
            (_, Exchange::Gradients | Exchange::Statistics) if share.samples == 0 || !share.encoded.is_empty() => 0,
            (_, Exchange::Gradients | Exchange::Statistics) => self.sizes.payload,
        };
        let fits = share.payload.len() == payload && share.buffers.len() == self.sizes.buffers;
        (!fits).then(|| "the trainer declares another model for this worker than for worker 0".to_owned())
    }

    fn lose(&mut self, who: Who, error: &WorkerError) -> Result<Option<Shares>, Halt> {
        if !self.is_current(who) {
            return Ok(None);
        }
        // One that was not there yet is still waited for.
        self.hired[who.worker as usize] = None;
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

    fn obey(&mut self, actions: Vec<Action>) -> Result<Option<Shares>, Halt> {
        let mut merged = None;
        for action in actions {
            match action {
                Action::Start(who) => {
                    let leases = self.leases.get_mut(who.worker as usize).and_then(Option::take);
                    let hired = hire(self.common.clone(), who, leases, self.outbox.clone(), self.runtime.clone());
                    self.hired[who.worker as usize] = Some(hired);
                }
                Action::Assign { who, .. } => {
                    let index = who.worker as usize;
                    if let (Some(hired), Some(assignment)) = (&self.hired[index], &self.assignments[index]) {
                        hired.assign(assignment.clone());
                    }
                }
                // The next one takes its place.
                Action::Abandon(who) => self.hired[who.worker as usize] = None,
                Action::Merge { shares, .. } => {
                    let take = |(worker, _): (u32, u64)| Some((worker, self.shares[worker as usize].take()?));
                    merged = Some(shares.into_iter().filter_map(take).collect());
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
