//! One worker: a thread that holds a lease and a trainer's instance, and computes a contribution to each round.
//!
//! It has no state that matters: whatever a round starts from comes with the assignment, and what it leaves is handed over
//! at the end. So a worker can be replaced at any time, by one on another device too. Kernels are synchronous, hence a
//! thread for each; who computes when is decided by the sandbox's turns and the device's shares.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc};
use weft_core::spec::Shape;
use weft_core::sync::Who;
use weft_core::sync::topology::Source;
use weft_core::usage::Used;
use weft_gpu::pool::PoolError;
use weft_gpu::{Cancel, Lease};

use super::channel::Channel;
use super::contribution::Contribution;
use super::model::{GlobalModel, WorkerState};
use super::seam::Outbox;
use super::work_order::WorkOrder;
use super::worker_loop::WorkerLoop;
use super::workshop::Workshop;
use crate::train::declared::Plan;

mod error;

pub use error::WorkerError;

/// How often a worker that finds no room on a device looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What a worker reports to its team. All of it can be written down and sent.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub enum Report {
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
    /// It does not find the numbers of the model that its assignment begins with, and waits for the assignment with all of
    /// them.
    ModelMissing {
        who: Who,
        round: u64,
        generation: u32,
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
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Declaration {
    pub plan: Plan,
    pub model: GlobalModel,
    pub worker_state: WorkerState,
    pub statistics: usize,
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
    reports: Outbox,
    runtime: Handle,
) -> WorkerHandle {
    let (orders, inbox) = mpsc::unbounded_channel();
    let first = leases.as_ref().and_then(|leases| leases.first());
    let cancel = first.map_or_else(Cancel::default, |lease| lease.cancel().clone());
    let dismissed = Arc::new(AtomicBool::new(false));
    let leaves = Arc::new(Notify::new());
    let (cancels, leaving) = (cancel.clone(), leaves.clone());
    let handle = WorkerHandle { who, orders, cancel: cancels, dismissed: dismissed.clone(), leaves };
    let failed = reports.clone();
    let work = move || {
        // However it ends, somebody hears of it.
        let mut obituary = Obituary { reports: reports.clone(), error: WorkerError::Panicked };
        let run = async {
            let leases = match leases {
                Some(taken) => taken,
                None => find_room(&workshop, &shape, &cancel, &dismissed).await?,
            };
            WorkerLoop::open(workshop, channel, shape, who, leases, reports, dismissed).await?.work(inbox).await
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
        failed.lost(WorkerError::Thread(error.to_string()));
    }
    handle
}

struct Obituary {
    reports: Outbox,
    error: WorkerError,
}

impl Drop for Obituary {
    fn drop(&mut self) {
        self.reports.lost(self.error.clone());
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

#[cfg(test)]
mod tests {
    use weft_core::sync::Slot;

    use super::super::contribution::Payload;
    use super::*;
    use crate::train::declared::{Initial, Role, TensorDeclaration};

    #[test]
    fn every_report_is_read_as_it_was_written() {
        let who = Who { worker: 3, claim: u64::MAX };
        let used = Used { cpu: Duration::from_nanos(7), ..Used::default() };
        let mut plan = Plan::default();
        let (name, shape) = ("weight".to_owned(), weft_gpu::Shape::new(&[2]).unwrap());
        plan.declare(TensorDeclaration { name, role: Role::Weight, shape, initial: Initial::Constant(0.5) }).unwrap();
        let model = GlobalModel { weights: vec![0.5, -0.0].into(), ..GlobalModel::default() };
        let worker_state = WorkerState { moments: vec![1.0], steps: 2, ..WorkerState::default() };
        let declaration = Some(Box::new(Declaration { plan, model, worker_state, statistics: 4 }));
        let slot = Slot { round: 1, layer: 0, shard: 0, worker: 3, claim: 1 };
        let contribution = Contribution { payload: Some(Payload::Stored(slot)), samples: 9, ..Contribution::default() };
        let (round, merge, generation) = (1 << 40, 5, 2);
        for report in [
            Report::Ready { who, declaration, used: used.clone() },
            Report::Ready { who, declaration: None, used: used.clone() },
            Report::Done { who, round, generation, contribution: Box::new(contribution) },
            Report::Merged { who, round, merge, generation, used },
            Report::ModelMissing { who, round, generation },
            Report::Missing { who, round, merge, generation, sources: vec![Source::Worker(1), Source::Merge(0)] },
            Report::Lost { who, error: PoolError::Empty.into() },
            Report::Lost { who, error: WorkerError::Straggler(1) },
            Report::Progress { who, steps: 3, loss: 0.1 + 0.2, samples: 64 },
            Report::Computes,
        ] {
            let packed = rmp_serde::to_vec_named(&report).unwrap();
            assert_eq!(rmp_serde::from_slice::<Report>(&packed).unwrap(), report);
        }
    }
}
