//! The workers of one job: does what the state machines of [`weft_core::sync`] say, and tells them what happens.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use weft_core::spec::{Memory, Shape};
use weft_core::sync::{Action, Barrier, Who, arrivals};
use weft_core::usage::Used;
use weft_gpu::Lease;

use super::JobError;
use super::channel::Channel;
use super::contribution::{Contribution, Payload};
use super::seam::{Outbox, Seam};
use super::silence::{Silence, describe};
use super::work_order::{Assignment, MergeOrder, Task, WorkOrder};
use super::worker::{Declaration, Report, WorkerError, WorkerHandle, start_worker};
use super::workshop::Workshop;

mod free;
mod rounds;

use free::Free;
pub use rounds::Round;

/// The contributions of a round, in the order of the workers.
pub type Contributions = Vec<(u32, Box<Contribution>)>;

/// How often one worker may fail in one round.
pub const ATTEMPTS: u32 = 3;

/// How long workers that are dismissed are waited for.
const LAST_WORDS: Duration = Duration::from_secs(30);

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
    /// What comes next might cost more than the job may, for this reason.
    OutOfBudget(String),
    /// It has come to the epoch at which it was to rest.
    Rested(u64),
    /// Something temporary is in the way: a full device, a bucket that cannot be reached.
    Waits(String),
    /// A worker of a job that may have more memory has run out of it.
    OutOfMemory(String),
    Failed(String),
}

impl Halt {
    /// What an error comes to.
    pub fn of(error: &JobError) -> Self {
        let text = error.to_string();
        match error {
            JobError::OutOfMemory(_) => Self::OutOfMemory(text),
            error if error.passes() => Self::Waits(text),
            _ => Self::Failed(text),
        }
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
    /// How far a worker is in the epoch, its latest loss, and samples of this round.
    Progress {
        worker: u32,
        steps: EpochSteps,
        loss: f64,
        samples: u64,
    },
}

/// Steps of an epoch that are done, and all of them: also those before the shape changed in the middle of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EpochSteps {
    pub done: u64,
    pub all: u64,
}

impl EpochSteps {
    /// So many more are done.
    fn and(self, steps: u64) -> Self {
        Self { done: (self.done + steps).min(self.all), all: self.all }
    }
}

/// The lengths that every contribution must have.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sizes {
    pub payload: usize,
    pub buffers: usize,
    pub weights: usize,
}

/// Who says what a worker is to do. Asked when it can begin, and again when it was lost and is back.
pub trait Director {
    fn assignment(&mut self, who: Who, round: u64) -> Result<Assignment, Halt>;
    /// The same with all numbers of the model, for one that does not find them.
    fn in_full(&mut self, who: Who, round: u64) -> Result<Assignment, Halt>;
}

/// Who says what workers do that do not wait for each other, and what becomes of what they hand in.
pub trait FreeDirector {
    /// What a worker is to do in its round of this number.
    fn assignment(&mut self, who: Who, clock: u64) -> Result<Assignment, Halt>;
    /// A contribution has arrived, computed from a model that has changed so often since.
    fn arrived(&mut self, worker: u32, contribution: Box<Contribution>, staleness: u64) -> Result<(), Halt>;
    /// A peer, which has handed in `own`, takes a step with the mean of these contributions. Each comes with its age: the
    /// rounds that the peer has done since it was published.
    fn average(&mut self, who: Who, own: &Contribution, of: &[(&Contribution, u64)]) -> Result<(), Halt>;
}

pub struct Team {
    workshop: Arc<Workshop>,
    channel: Arc<dyn Channel>,
    shape: Shape,
    barrier: Barrier,
    /// Instead of the barrier, where workers do not wait for each other.
    free: Option<Free>,
    handles: Vec<Option<WorkerHandle>>,
    /// For those that are started first.
    leases: Vec<Option<Vec<Lease>>>,
    outbox: mpsc::UnboundedSender<Report>,
    reports: mpsc::UnboundedReceiver<Report>,
    orders: watch::Receiver<Order>,
    kills: mpsc::UnboundedReceiver<u32>,
    runtime: Handle,
    deadline: Option<Instant>,
    /// When what is done now is ended, as it might cost more than there is.
    pub spend_until: Option<Instant>,
    straggler: Option<Duration>,
    pub sizes: Sizes,
    /// Of this epoch, as it was when the shape last changed.
    pub epoch_steps: EpochSteps,
    declaration: Option<Box<Declaration>>,
    waiting_for: usize,
    /// What the workers of this round do.
    task: Option<Task>,
    contributions: Vec<Option<Box<Contribution>>>,
    last_error: String,
    /// Whether that was the node's, and not the function's.
    last_error_passes: bool,
    silence: Silence,
    seam: Seam,
    /// How many workers were lost so far.
    pub losses: u64,
    /// Resources of workers, each with its number, that have not handed in a contribution, such as those of starting up or merging.
    pub overhead: Vec<(u32, Used)>,
    news: Box<dyn Fn(News) + Send>,
}

/// The control channels of a running team.
pub struct Lines {
    pub orders: watch::Receiver<Order>,
    pub kills: mpsc::UnboundedReceiver<u32>,
    pub news: Box<dyn Fn(News) + Send>,
}

/// Nobody is told anything before the first round.
struct Nobody;

impl Director for Nobody {
    fn assignment(&mut self, _: Who, _: u64) -> Result<Assignment, Halt> {
        Err(Halt::Failed("a worker was to begin before the first round".to_owned()))
    }

    fn in_full(&mut self, who: Who, round: u64) -> Result<Assignment, Halt> {
        Director::assignment(self, who, round)
    }
}

impl FreeDirector for Nobody {
    fn assignment(&mut self, who: Who, clock: u64) -> Result<Assignment, Halt> {
        Director::assignment(self, who, clock)
    }

    fn arrived(&mut self, _: u32, _: Box<Contribution>, _: u64) -> Result<(), Halt> {
        Ok(())
    }

    fn average(&mut self, _: Who, _: &Contribution, _: &[(&Contribution, u64)]) -> Result<(), Halt> {
        Ok(())
    }
}

/// What starts the workers.
enum Starts {
    Barrier(Vec<Action>),
    Free(Vec<arrivals::Action>),
}

/// Something that a team waits for.
enum Happened {
    Said(Box<Report>),
    Killed(u32),
    /// The round, or a worker of it, has taken longer than it may.
    Overdue,
}

impl Team {
    /// Starts all workers and waits until they are ready. Returns what the trainer declared.
    pub async fn start(
        workshop: Arc<Workshop>,
        channel: Arc<dyn Channel>,
        shape: Shape,
        leases: Vec<Vec<Lease>>,
        lines: Lines,
        deadline: Option<Instant>,
    ) -> Result<(Self, Box<Declaration>), Halt> {
        let (outbox, reports) = mpsc::unbounded_channel();
        let (straggler, on_loss) = (workshop.spec().straggler, workshop.spec().words.on_loss);
        let mut team = Self {
            barrier: Barrier::new(0, on_loss, ATTEMPTS).0,
            free: None,
            handles: Vec::new(),
            leases: Vec::new(),
            outbox,
            reports,
            orders: lines.orders,
            kills: lines.kills,
            runtime: Handle::current(),
            deadline,
            spend_until: None,
            straggler,
            sizes: Sizes::default(),
            epoch_steps: EpochSteps::default(),
            declaration: None,
            waiting_for: 0,
            task: None,
            contributions: Vec::new(),
            last_error: String::new(),
            last_error_passes: false,
            silence: Silence::new(Instant::now()),
            seam: Seam::of_environment(),
            losses: 0,
            overhead: Vec::new(),
            news: lines.news,
            workshop,
            channel,
            shape,
        };
        let declaration = team.employ(shape, leases).await?;
        Ok((team, declaration))
    }

    /// Starts the workers of a shape, where there are none, and waits until they are ready. Returns what the trainer
    /// declared. Rounds go on counting, so that what earlier workers left in the channel is not taken for theirs.
    pub async fn employ(&mut self, shape: Shape, leases: Vec<Vec<Lease>>) -> Result<Box<Declaration>, Halt> {
        let (workers, count) = (shape.workers, shape.workers as usize);
        let (on_loss, pace) = (self.workshop.spec().words.on_loss, self.workshop.brief.sync.pace);
        let starts = match (pace.is_free() && workers > 1, &mut self.free) {
            (true, Some(free)) => Starts::Free(free.resize(workers)),
            (true, None) => {
                let (free, starts) = Free::new(workers, pace, on_loss);
                self.free = Some(free);
                Starts::Free(starts)
            }
            (false, _) => {
                self.free = None;
                Starts::Barrier(self.barrier.resize(workers))
            }
        };
        self.shape = shape;
        self.handles = (0..count).map(|_| None).collect();
        self.leases = leases.into_iter().map(Some).collect();
        self.contributions = (0..count).map(|_| None).collect();
        (self.waiting_for, self.declaration, self.task) = (count, None, None);
        match starts {
            Starts::Barrier(starts) => drop(self.obey(starts, &mut Nobody)?),
            Starts::Free(starts) => drop(self.obey_free(starts, &mut Nobody)?),
        }
        while self.waiting_for > 0 || self.declaration.is_none() {
            match self.free {
                Some(_) => drop(self.next_free(None, &mut Nobody).await?),
                None => drop(self.next(None, &mut Nobody).await?),
            }
        }
        self.declaration.take().ok_or_else(|| Halt::Failed("no worker declared a model".to_owned()))
    }

    /// Ends all workers, and waits until they have given back what they held.
    pub async fn dismiss(&mut self) {
        self.barrier.resize(0);
        if let Some(free) = &mut self.free {
            free.resize(0);
        }
        self.handles.clear();
        self.leases.clear();
        self.contributions.clear();
        let (outbox, reports) = mpsc::unbounded_channel();
        self.outbox = outbox;
        // What they still say is heard by nobody. Each lets go of its lease before it does of this.
        let mut last_words = std::mem::replace(&mut self.reports, reports);
        let over = async {
            while let Some(report) = last_words.recv().await {
                if let Report::Ready { who, used, .. } | Report::Merged { who, used, .. } = report {
                    self.overhead.push((who.worker, used));
                }
            }
        };
        if tokio::time::timeout(LAST_WORDS, over).await.is_err() {
            tracing::warn!(job = %self.workshop.brief.job, "a worker that was dismissed does not end");
        }
    }

    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Waits for a message, an order or a deadline. Nothing has happened where followers were only told of the silence.
    async fn happen(&mut self, overdue: Option<Instant>) -> Result<Option<Happened>, Halt> {
        let tell_at = self.silence.tell_at();
        let alarm = [self.deadline, self.spend_until, overdue].into_iter().flatten().fold(tell_at, Instant::min);
        let ring = tokio::time::sleep_until(alarm.into());
        let happened = tokio::select! {
            biased;
            ordered = self.orders.wait_for(|order| *order != Order::Run) => {
                return match ordered.map_or(Order::Stop, |order| *order) {
                    Order::Pause => Err(Halt::Paused),
                    _ => Err(Halt::Stopped),
                };
            }
            Some(report) = self.reports.recv() => Happened::Said(Box::new(report)),
            Some(worker) = self.kills.recv() => Happened::Killed(worker),
            () = ring => Happened::Overdue,
        };
        let now = Instant::now();
        match happened {
            Happened::Said(report) => {
                if let Some(silent) = self.silence.heard(now) {
                    (self.news)(News::Heard(silent));
                }
                Ok(Some(Happened::Said(report)))
            }
            Happened::Killed(worker) => Ok(Some(Happened::Killed(worker))),
            Happened::Overdue if self.deadline.is_some_and(|deadline| deadline <= now) => Err(Halt::OutOfTime),
            Happened::Overdue if self.spend_until.is_some_and(|until| until <= now) => {
                Err(Halt::OutOfBudget("the round takes longer than it may".to_owned()))
            }
            Happened::Overdue if overdue.is_none_or(|overdue| overdue > now) => {
                let silent = self.silence.tell(now);
                let awaited = self.free.as_ref().map_or_else(|| self.barrier.awaited(), Free::awaited);
                (self.news)(News::Silent(describe(&awaited, silent)));
                Ok(None)
            }
            Happened::Overdue => Ok(Some(Happened::Overdue)),
        }
    }

    fn note_straggler(&mut self) {
        self.last_error = WorkerError::Straggler(self.workshop.spec().words.straggler_ms).to_string();
        self.last_error_passes = false;
    }

    /// The worker that currently fills a place.
    pub fn who(&self, worker: u32) -> Option<Who> {
        self.free.as_ref().map_or_else(|| self.barrier.claim(worker), |free| free.claim(worker))
    }

    fn is_current(&self, who: Who) -> bool {
        self.who(who.worker) == Some(who)
    }

    /// What is wrong with a contribution whose sizes differ from what the first worker's trainer declared.
    pub fn misfit(&self, contribution: &Contribution) -> Option<String> {
        let wanted = match self.task {
            Some(Task::Evaluate | Task::EvaluateNew) | None => return None,
            Some(Task::Update | Task::ShowWeights) => self.sizes.weights,
            Some(Task::Train { .. }) => self.sizes.payload,
        };
        let fits = match &contribution.payload {
            Some(Payload::Plain(numbers)) => {
                numbers.len() == wanted && contribution.buffers.len() == self.sizes.buffers
            }
            // Its length is known when it is decoded.
            Some(Payload::Encoded(_)) => contribution.buffers.len() == self.sizes.buffers,
            // It is looked at when it is taken from the channel; or nothing was computed.
            Some(Payload::Stored(_)) | None => true,
        };
        (!fits).then(|| "the trainer declares another model for this worker than for worker 0".to_owned())
    }

    /// Lets go of a worker that has ended, and tells of it. Whether it was still the one that counts.
    fn note_lost(&mut self, who: Who, error: &WorkerError) -> Result<bool, Halt> {
        let is_current = self.is_current(who);
        if is_current {
            // One that was not there yet is still waited for.
            self.handles[who.worker as usize] = None;
            self.last_error = error.to_string();
            self.last_error_passes = error.passes();
            self.tell_lost(who.worker, self.last_error.clone());
            let spec = self.workshop.spec();
            let may_have_more = spec.words.memory == Memory::Auto || spec.plan.is_some_and(|plan| plan.tries());
            if matches!(error, WorkerError::OutOfMemory(_)) && may_have_more {
                return Err(Halt::OutOfMemory(self.last_error.clone()));
            }
        }
        Ok(is_current)
    }

    /// What it means that a worker has failed too often.
    fn give_up(&self, worker: u32) -> Halt {
        let text = format!("worker {worker} failed {ATTEMPTS} times in a row: {}", self.last_error);
        if self.last_error_passes { Halt::Waits(text) } else { Halt::Failed(text) }
    }

    fn tell_lost(&mut self, worker: u32, reason: String) {
        self.losses += 1;
        (self.news)(News::Lost { worker, reason });
    }

    fn order(&self, who: Who, order: WorkOrder) {
        if let Some(handle) = self.handles.get(who.worker as usize).and_then(Option::as_ref) {
            handle.order(order);
        }
    }

    fn start_worker(&mut self, who: Who) {
        let index = who.worker as usize;
        let leases = self.leases.get_mut(index).and_then(Option::take);
        let (workshop, channel) = (self.workshop.clone(), self.channel.clone());
        let outbox = Outbox::new(who, self.seam, self.outbox.clone());
        let handle = start_worker(workshop, channel, self.shape, who, leases, outbox, self.runtime.clone());
        self.handles[index] = Some(handle);
    }
}
