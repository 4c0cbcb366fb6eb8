//! One worker: a thread that holds a lease and a trainer's instance, and computes a contribution to each round.
//!
//! It has no state that matters: whatever a round starts from comes with the assignment, and what it leaves is handed over
//! at the end. So a worker can be replaced at any time, by one on another device too. Kernels are synchronous, hence a
//! thread for each; who computes when is decided by the sandbox's turns and the device's shares.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc};
use weft_core::spec::Shape;
use weft_core::sync::barrier::{MergeResult, Part};
use weft_core::sync::topology::Source;
use weft_core::sync::{Slot, Who};
use weft_core::usage::Used;
use weft_gpu::pool::PoolError;
use weft_gpu::{Cancel, Lease};

use super::channel::{Channel, ChannelError, Payload};
use super::model::{GlobalModel, WorkerState};
use super::worker_loop::WorkerLoop;
use super::workshop::{Cursor, Workshop};
use crate::dataset::batches::{BatchError, Cause};
use crate::sandbox::InvokeError;
use crate::train::declared::Plan;
use crate::train::run::{Metrics, TrainError};

/// How often a worker that finds no room on a device looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What a worker is to do in a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Task {
    Train {
        steps: u64,
        /// Whether all go on from one model afterwards; otherwise each from its own weights.
        joins: bool,
    },
    /// Turns the merged statistics into weights. One worker does it for all.
    Update,
    Evaluate,
    /// Hands its own weights over.
    ShowWeights,
}

/// What a worker is told to do.
pub enum WorkOrder {
    /// Its part of a round. With a generation above 0 it may be one that it has done already: then it hands in the same
    /// once more.
    Work { assignment: Box<Assignment>, generation: u32 },
    /// A merge of what others have put into the channel.
    Merge(MergeOrder),
}

/// What a worker takes from the channel before it begins.
#[derive(Clone, Debug)]
pub enum TakeOrder {
    /// What workers have merged in a round, and the learning rate that goes with it.
    Results { round: u64, results: Arc<Vec<MergeResult>>, rate: f32 },
    /// The model, which the coordinator has put there.
    Model(Slot),
}

/// One merge of a round, all parts of which are there.
#[derive(Clone, Debug)]
pub struct MergeOrder {
    pub round: u64,
    /// Which of the plan's.
    pub merge: usize,
    pub generation: u32,
    pub parts: Vec<Part>,
    /// Samples of all parts of the round that count.
    pub total: u64,
}

/// What one worker is given at the start of a round.
#[derive(Clone)]
pub struct Assignment {
    pub round: u64,
    pub task: Task,
    pub at: Cursor,
    pub model: Arc<GlobalModel>,
    /// Where the worker finds what makes this model of the one before, if workers take it from the channel.
    pub take: Option<TakeOrder>,
    /// The state of the optimizer that all workers share, for one that does not have it.
    pub optimizer: Option<Arc<WorkerState>>,
    pub worker_state: Option<Arc<WorkerState>>,
    /// Whether that state is not what the worker left, so that it has to be loaded.
    pub is_new_state: bool,
    /// Gradients that a peer takes a step with, on its own weights, before anything else.
    pub average: Option<Arc<Vec<f32>>>,
    /// The merged statistics of all workers; only for [`Task::Update`].
    pub statistics: Arc<Vec<f32>>,
}

/// What a worker hands over at the end of a round.
#[derive(Clone, Debug, Default)]
pub struct Contribution {
    pub samples: u64,
    pub loss: f64,
    /// The loss of the latest step.
    pub latest: f64,
    /// Gradients, weights, statistics or duals, as the rule asks for; nothing where nothing was computed, or where it lies
    /// in the channel already.
    pub payload: Option<Payload>,
    /// Whether payload and buffers lie in the channel, for the coordinator to take.
    pub is_in_channel: bool,
    /// Of the worker that made it.
    pub claim: u64,
    pub buffers: Vec<f32>,
    pub worker_state: Option<WorkerState>,
    /// Metrics by name, each summed over samples.
    pub metrics: Metrics,
    pub used: Used,
}

impl Contribution {
    /// The numbers that were handed over, as they are.
    pub fn take_numbers(&mut self) -> Vec<f32> {
        match self.payload.take() {
            Some(Payload::Plain(numbers)) => numbers.into_vec(),
            Some(Payload::Encoded(_)) | None => Vec::new(),
        }
    }
}

/// What a worker tells its team.
pub enum Message {
    /// It waits for work. The first worker also brings what its trainer declared, with the first values.
    Ready {
        who: Who,
        declaration: Option<Box<Declaration>>,
        used: Used,
    },
    Done {
        who: Who,
        round: u64,
        generation: u32,
        contribution: Box<Contribution>,
    },
    Merged {
        who: Who,
        round: u64,
        merge: usize,
        generation: u32,
        used: Used,
    },
    /// It could not merge, because these parts were not to be had, or were damaged.
    Missing {
        who: Who,
        round: u64,
        merge: usize,
        generation: u32,
        sources: Vec<Source>,
    },
    Lost {
        who: Who,
        error: WorkerError,
    },
    Progress {
        who: Who,
        steps: u64,
        loss: f64,
        samples: u64,
    },
    /// It is computing something that has no steps to report, such as validation.
    Computes,
}

/// The model that a trainer declared in `init`, with its first values.
pub struct Declaration {
    pub plan: Plan,
    pub model: GlobalModel,
    pub worker_state: WorkerState,
    pub statistics: usize,
}

/// Why a worker ended.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WorkerError {
    #[error("{0}")]
    Train(String),
    /// It needed more memory than it may have.
    #[error("{0}")]
    OutOfMemory(String),
    /// What the node could not do for it: read its samples, give it memory, keep its device.
    #[error("{0}")]
    Node(String),
    #[error("no device: {0}")]
    Device(#[from] PoolError),
    #[error("it was killed")]
    Killed,
    #[error("it was stopped")]
    Stopped,
    #[error("it did not finish its round within `straggler` = {0} ms")]
    Straggler(u64),
    #[error("it panicked; the node's log says where")]
    Panicked,
    #[error("no thread could be started: {0}")]
    Thread(String),
}

impl WorkerError {
    /// Whether it may be gone when it is tried again later, whatever the function is.
    pub fn passes(&self) -> bool {
        matches!(self, Self::Node(_) | Self::Device(_) | Self::Thread(_))
    }
}

impl From<TrainError> for WorkerError {
    fn from(error: TrainError) -> Self {
        match error {
            TrainError::Data(error) => error.into(),
            TrainError::Trainer(error) => error.into(),
            TrainError::Device(error) => error.into(),
            other => Self::Train(other.to_string()),
        }
    }
}

impl From<InvokeError> for WorkerError {
    fn from(error: InvokeError) -> Self {
        match (error.is_the_nodes_fault(), error.is_out_of_memory()) {
            (true, _) => Self::Node(error.to_string()),
            (false, true) => Self::OutOfMemory(error.to_string()),
            (false, false) => Self::Train(error.to_string()),
        }
    }
}

impl From<weft_gpu::Error> for WorkerError {
    fn from(error: weft_gpu::Error) -> Self {
        match error {
            weft_gpu::Error::DeviceLost { .. } | weft_gpu::Error::DeviceFull { .. } => Self::Node(error.to_string()),
            weft_gpu::Error::OutOfMemory { .. } => Self::OutOfMemory(error.to_string()),
            _ => Self::Train(error.to_string()),
        }
    }
}

impl From<ChannelError> for WorkerError {
    fn from(error: ChannelError) -> Self {
        match error.passes() {
            true => Self::Node(error.to_string()),
            false => Self::Train(error.to_string()),
        }
    }
}

impl From<BatchError> for WorkerError {
    fn from(error: BatchError) -> Self {
        match &error.cause {
            // A block that is not there will not come back.
            Cause::Read { error: cause, .. } if cause.kind() != std::io::ErrorKind::NotFound => {
                Self::Node(error.to_string())
            }
            Cause::Thread(_) => Self::Node(error.to_string()),
            Cause::Device(weft_gpu::Error::OutOfMemory { .. }) => Self::OutOfMemory(error.to_string()),
            _ => Self::Train(error.to_string()),
        }
    }
}

/// The job's handle of a running worker. Dropping it ends the worker.
pub struct WorkerHandle {
    pub who: Who,
    orders: mpsc::UnboundedSender<WorkOrder>,
    cancel: Cancel,
    dismissed: Arc<AtomicBool>,
    /// Ends whatever it waits for, a channel say.
    leaves: Arc<Notify>,
}

impl WorkerHandle {
    pub fn order(&self, order: WorkOrder) {
        // One that has gone has said so, or is about to.
        self.orders.send(order).ok();
    }

    /// Stops whatever the worker does.
    pub fn dismiss(&self) {
        self.dismissed.store(true, Relaxed);
        self.cancel.cancel();
        self.leaves.notify_one();
    }
}

impl Drop for WorkerHandle {
    fn drop(&mut self) {
        self.dismiss();
    }
}

/// Starts a worker's thread. A job's first workers are given their leases, which must all be there before any of them
/// starts; a worker that is started again waits for leases itself.
pub fn start_worker(
    workshop: Arc<Workshop>,
    channel: Arc<dyn Channel>,
    shape: Shape,
    who: Who,
    leases: Option<Vec<Lease>>,
    messages: mpsc::UnboundedSender<Message>,
    runtime: Handle,
) -> WorkerHandle {
    let (orders, inbox) = mpsc::unbounded_channel();
    let first = leases.as_ref().and_then(|leases| leases.first());
    let cancel = first.map_or_else(Cancel::default, |lease| lease.cancel().clone());
    let dismissed = Arc::new(AtomicBool::new(false));
    let leaves = Arc::new(Notify::new());
    let (cancels, leaving) = (cancel.clone(), leaves.clone());
    let handle = WorkerHandle { who, orders, cancel: cancels, dismissed: dismissed.clone(), leaves };
    let report = messages.clone();
    let work = move || {
        // However it ends, somebody hears of it.
        let mut obituary = Obituary { who, messages: messages.clone(), error: WorkerError::Panicked };
        let run = async {
            let leases = match leases {
                Some(taken) => taken,
                None => find_room(&workshop, &shape, &cancel, &dismissed).await?,
            };
            WorkerLoop::open(workshop, channel, shape, who, leases, messages, dismissed).await?.work(inbox).await
        };
        let run = async {
            tokio::select! {
                biased;
                done = run => done,
                () = leaving.notified() => Ok(()),
            }
        };
        obituary.error = match runtime.block_on(run) {
            Ok(()) => WorkerError::Stopped,
            Err(error) => error,
        };
    };
    let name = format!("worker-{}", who.worker);
    if let Err(error) = std::thread::Builder::new().name(name).spawn(work) {
        report.send(Message::Lost { who, error: WorkerError::Thread(error.to_string()) }).ok();
    }
    handle
}

struct Obituary {
    who: Who,
    messages: mpsc::UnboundedSender<Message>,
    error: WorkerError,
}

impl Drop for Obituary {
    fn drop(&mut self) {
        self.messages.send(Message::Lost { who: self.who, error: self.error.clone() }).ok();
    }
}

/// Waits for leases. Those of the worker before are about to be returned.
async fn find_room(
    workshop: &Workshop,
    shape: &Shape,
    cancel: &Cancel,
    dismissed: &AtomicBool,
) -> Result<Vec<Lease>, WorkerError> {
    loop {
        if dismissed.load(Relaxed) {
            return Err(WorkerError::Stopped);
        }
        match workshop.leases(shape, cancel) {
            Ok(leases) => return Ok(leases),
            Err(PoolError::NothingFits { wanted, largest, .. }) if wanted <= largest => {}
            // A device that is lost is there again in a moment.
            Err(PoolError::Device(_)) => {}
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// The mean of each metric over the samples of all workers.
pub fn means<'a>(contributions: impl Iterator<Item = &'a Contribution>) -> BTreeMap<String, f64> {
    let (mut sums, mut samples) = (BTreeMap::<String, f64>::new(), 0);
    for contribution in contributions {
        for (name, sum) in &contribution.metrics {
            *sums.entry(name.clone()).or_default() += sum;
        }
        samples += contribution.samples;
    }
    sums.into_iter().map(|(name, sum)| (name, sum / samples.max(1) as f64)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::LimitHit;

    #[test]
    fn what_the_node_could_not_do_for_a_worker_passes_and_what_its_function_did_does_not() {
        let memory = |name| InvokeError::Limit(LimitHit::Memory { name, limit: 1 });
        let said = |kind| InvokeError::Function { kind, message: "so".to_owned() };
        let lost = || weft_gpu::Error::DeviceLost { reason: "reset".to_owned() };
        for error in [memory("max_memory"), InvokeError::Host("no thread".to_owned()), said("device-lost")] {
            assert!(WorkerError::from(error.clone()).passes(), "{error}");
            assert!(WorkerError::from(TrainError::from(error.clone())).passes(), "{error}");
        }
        assert!(WorkerError::from(lost()).passes() && WorkerError::from(TrainError::from(lost())).passes());
        let trap = InvokeError::Trap { trap: "unreachable".to_owned(), said: None };
        for error in [memory("memory"), said("other"), InvokeError::Limit(LimitHit::Wall(1)), trap] {
            assert!(!WorkerError::from(error.clone()).passes(), "{error}");
        }
        assert!(!WorkerError::from(weft_gpu::Error::OutOfMemory { wanted: 1, used: 1, limit: 1 }).passes());
    }
}
