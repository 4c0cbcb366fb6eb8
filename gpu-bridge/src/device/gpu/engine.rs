//! The thread that owns a GPU's queue: takes batches from sessions by turn, submits them, and sees them through.
//!
//! Whose turn it is, is decided by the device time that each session has used, by weight ([`Shares`]). Two batches are at
//! the GPU at a time, so that it has something to do while the next is encoded. Errors go to the session whose batch it
//! was. When the device is lost, everybody is told, and the thread ends: a new device has a new one.
//!
//! An owner that reads the result of each batch before it asks for the next has nothing waiting most of the time. It
//! still competes: while its batch is at the GPU, and for [`GRACE`] after, nobody who is owed less goes before it.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::live::Live;
use super::ring::{Ring, Slot};
use super::session::Batch;
use crate::device::Wait;
use crate::error::{Error, Result};
use crate::share::{self, Member, Shares};

/// Batches at the GPU at a time.
///
/// So a lease of long operations delays one of short operations by no more than so many batches, of some milliseconds
/// each; for each such lease that is owed as much.
pub const IN_FLIGHT: usize = 2;

/// How long a batch may be at the GPU. It was estimated at milliseconds; one that is not back by then never comes back, and
/// the device is given up, so that nobody waits for it any longer.
const LONGEST_BATCH: Duration = Duration::from_secs(60);

/// How long a turn is kept for an owner that is between two batches while others wait.
const GRACE: Duration = Duration::from_micros(500);

pub(super) struct Engine {
    live: Arc<Live>,
    queue: Arc<Queue>,
    owner: Option<JoinHandle<()>>,
}

struct Queue {
    state: Mutex<State>,
    wake: Condvar,
    counts: Counts,
}

#[derive(Default)]
struct State {
    shares: Shares,
    waiting: HashMap<Member, Waiting>,
    /// Batches that came back, and their device time.
    clock: Wait,
    stop: bool,
}

#[derive(Default)]
struct Waiting {
    batches: VecDeque<Box<Batch>>,
    /// Batches at the GPU.
    in_flight: usize,
    /// When the last of them came back.
    since: Option<Instant>,
    /// Those of its own among the batches that came back.
    clock: Wait,
    /// The most that others had of the GPU between a batch's arrival and its end.
    longest: Wait,
    leaving: bool,
}

/// What others had of the GPU so far, seen by one of its owners.
fn others(all: Wait, own: Wait) -> Wait {
    Wait { time: all.time.saturating_sub(own.time), turns: all.turns - own.turns }
}

/// Whose batch is next.
enum Pick {
    Batch(Member, Box<Batch>),
    /// The one that is owed most has its batch at the GPU.
    Hold,
    /// The one that is owed most may be about to ask for more, until then.
    Until(Instant),
    Nobody,
}

/// What was done so far.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) submissions: AtomicU64,
    pub(super) dispatches: AtomicU64,
    /// Time of this thread for encoding.
    pub(super) encode_nanoseconds: AtomicU64,
}

impl Engine {
    pub(super) fn start(live: Arc<Live>) -> Result<Arc<Self>> {
        let queue = Arc::new(Queue { state: Mutex::default(), wake: Condvar::new(), counts: Counts::default() });
        let ring = Ring::new(&live, IN_FLIGHT + 1)?;
        let owner = Owner { live: Arc::clone(&live), queue: Arc::clone(&queue), ring, in_flight: VecDeque::new() };
        let thread = std::thread::Builder::new()
            .name("weft-gpu".into())
            .spawn(move || owner.run())
            .map_err(|error| Error::Internal { op: "open", reason: format!("no thread for the GPU: {error}") })?;
        Ok(Arc::new(Self { live, queue, owner: Some(thread) }))
    }

    pub(super) fn live(&self) -> &Arc<Live> {
        &self.live
    }

    /// Lets the thread look whether the device is still there.
    pub(super) fn wake(&self) {
        let _state = self.queue.lock();
        self.queue.wake.notify_all();
    }

    pub(super) fn counts(&self) -> &Counts {
        &self.queue.counts
    }

    pub(super) fn join(&self, owner: &share::Owner, weight: NonZeroU32) -> Member {
        let mut state = self.queue.lock();
        let member = state.shares.join(owner, weight);
        state.waiting.insert(member, Waiting::default());
        member
    }

    /// A session is gone; what it left is still seen through.
    pub(super) fn leave(&self, member: Member) {
        let mut state = self.queue.lock();
        if let Some(waiting) = state.waiting.get_mut(&member) {
            waiting.leaving = true;
        }
        state.forget_if_gone(member);
        self.queue.wake.notify_all();
    }

    pub(super) fn longest_wait(&self, member: Member) -> Wait {
        self.queue.lock().waiting.get(&member).map_or_else(Wait::default, |waiting| waiting.longest)
    }

    pub(super) fn submit(&self, member: Member, mut batch: Batch) {
        let mut state = self.queue.lock();
        if self.live.faults.is_lost() {
            drop(state);
            batch.fail(&self.live.faults.error());
            return;
        }
        let clock = state.clock;
        if let Some(waiting) = state.waiting.get_mut(&member) {
            batch.asked = others(clock, waiting.clock);
            waiting.batches.push_back(Box::new(batch));
        }
        state.shares.ready(member);
        self.queue.wake.notify_all();
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.queue.lock().stop = true;
        self.queue.wake.notify_all();
        // Sessions keep the engine alive, and the thread keeps no session: it never joins itself.
        if let Some(owner) = self.owner.take() {
            let _ = owner.join();
        }
        self.live.pipelines.save();
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The next batch of whoever is owed most.
    fn pick(&mut self) -> Pick {
        let now = Instant::now();
        while let Some(member) = self.shares.next() {
            let Some(waiting) = self.waiting.get_mut(&member) else {
                self.shares.leave(member);
                continue;
            };
            if let Some(batch) = waiting.batches.pop_front() {
                waiting.in_flight += 1;
                return Pick::Batch(member, batch);
            }
            if waiting.in_flight > 0 {
                return Pick::Hold;
            }
            match waiting.since.map(|since| since + GRACE) {
                Some(end) if end > now && !waiting.leaving && !self.stop => return Pick::Until(end),
                _ => self.shares.idle(member),
            }
        }
        Pick::Nobody
    }

    /// A batch has come back; `asked` is what others had had when it arrived.
    fn returned(&mut self, member: Member, used: Duration, asked: Wait) {
        self.shares.charge(member, used);
        if let Some(waiting) = self.waiting.get_mut(&member) {
            waiting.in_flight -= 1;
            waiting.since = Some(Instant::now());
            let waited = others(others(self.clock, waiting.clock), asked);
            let longest = &mut waiting.longest;
            (longest.time, longest.turns) = (longest.time.max(waited.time), longest.turns.max(waited.turns));
            (waiting.clock.time, waiting.clock.turns) = (waiting.clock.time + used, waiting.clock.turns + 1);
        }
        (self.clock.time, self.clock.turns) = (self.clock.time + used, self.clock.turns + 1);
        self.forget_if_gone(member);
    }

    /// A member that left is forgotten once it has nothing to do any more.
    fn forget_if_gone(&mut self, member: Member) {
        let gone = |waiting: &Waiting| waiting.leaving && waiting.batches.is_empty() && waiting.in_flight == 0;
        if self.waiting.get(&member).is_some_and(gone) {
            self.waiting.remove(&member);
            self.shares.leave(member);
        }
    }
}

struct Owner {
    live: Arc<Live>,
    queue: Arc<Queue>,
    ring: Ring,
    in_flight: VecDeque<InFlight>,
}

/// A batch at the GPU.
struct InFlight {
    member: Member,
    batch: Box<Batch>,
    slot: Slot,
    submission: wgpu::SubmissionIndex,
    since: Instant,
}

enum Next {
    Submit(Member, Box<Batch>),
    Retire,
    Stop,
}

impl Owner {
    fn run(mut self) {
        loop {
            if self.live.faults.is_lost() {
                self.give_up();
                return;
            }
            match self.next() {
                Next::Submit(member, batch) => {
                    // What goes wrong inside the GPU's library must not take the others down with it.
                    let attempt = catch_unwind(AssertUnwindSafe(|| self.submit(member, batch)));
                    if attempt.is_err() {
                        self.live.faults.lose("its library failed while it encoded");
                    }
                }
                Next::Retire => {
                    let attempt = catch_unwind(AssertUnwindSafe(|| self.retire()));
                    if attempt.is_err() {
                        self.live.faults.lose("its library failed while it read back");
                    }
                }
                Next::Stop => return,
            }
        }
    }

    fn next(&mut self) -> Next {
        let mut state = self.queue.lock();
        loop {
            if self.live.faults.is_lost() || self.in_flight.len() == IN_FLIGHT {
                return Next::Retire;
            }
            let pick = state.pick();
            state = match pick {
                Pick::Batch(member, batch) => return Next::Submit(member, batch),
                _ if !self.in_flight.is_empty() => return Next::Retire,
                Pick::Until(end) => {
                    let left = end.saturating_duration_since(Instant::now());
                    self.queue.wake.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
                Pick::Hold | Pick::Nobody if state.stop => return Next::Stop,
                Pick::Hold | Pick::Nobody => self.queue.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    fn submit(&mut self, member: Member, batch: Box<Batch>) {
        batch.progress.started();
        let since = Instant::now();
        if batch.commands.is_empty() && batch.reply.is_none() {
            self.free(&batch);
            self.queue.lock().returned(member, Duration::ZERO, batch.asked);
            return;
        }
        let Some(slot) = self.ring.take() else {
            batch.fail(&Error::Internal { op: "submit", reason: "no staging buffers are left".into() });
            self.queue.lock().returned(member, Duration::ZERO, batch.asked);
            return;
        };
        let live = Arc::clone(&self.live);
        let ((submission, encoded), error) = live.scoped(|| slot.submit(&live, &batch));
        let counts = &self.queue.counts;
        counts.submissions.fetch_add(1, Ordering::Relaxed);
        counts.dispatches.fetch_add(batch.dispatches(), Ordering::Relaxed);
        counts.encode_nanoseconds.fetch_add(encoded.as_nanos() as u64, Ordering::Relaxed);
        self.free(&batch);
        match error {
            None => self.in_flight.push_back(InFlight { member, batch, slot, submission, since }),
            Some(error) => {
                tracing::error!("a batch was refused by the GPU: {error}");
                let error = match error {
                    _ if self.live.faults.is_lost() => self.live.faults.error(),
                    wgpu::Error::OutOfMemory { .. } => Error::DeviceFull { wanted: 0, reason: error.to_string() },
                    _ => Error::Internal { op: "submit", reason: error.to_string() },
                };
                batch.fail(&error);
                self.ring.give(slot);
                self.queue.lock().returned(member, Duration::ZERO, batch.asked);
            }
        }
    }

    /// Waits for the oldest batch at the GPU.
    fn retire(&mut self) {
        let Some(InFlight { member, batch, slot, submission, since }) = self.in_flight.pop_front() else { return };
        let wait = wgpu::PollType::Wait { submission_index: Some(submission), timeout: Some(LONGEST_BATCH) };
        if let Err(error) = self.live.device.poll(wait) {
            self.live.faults.lose(&error.to_string());
        }
        if self.live.faults.is_lost() {
            batch.fail(&self.live.faults.error());
            return;
        }
        match slot.finish(&self.live, &batch, since.elapsed()) {
            Ok(finished) => {
                self.queue.lock().returned(member, finished.time, batch.asked);
                batch.progress.charge(finished.time);
                batch.progress.found(finished.found);
                if let Some(reply) = &batch.reply {
                    reply.send(Ok(finished.bytes));
                }
                self.ring.give(slot);
            }
            Err(error) => {
                self.live.faults.lose(&error.to_string());
                batch.fail(&self.live.faults.error());
            }
        }
    }

    fn free(&self, batch: &Batch) {
        for region in &batch.freed {
            if self.live.slabs.give(region) {
                self.live.bindings.forget(region.id);
            }
        }
    }

    /// The device is lost: everybody who waits is told.
    fn give_up(&mut self) {
        let error = self.live.faults.error();
        for InFlight { batch, .. } in self.in_flight.drain(..) {
            batch.fail(&error);
        }
        let mut state = self.queue.lock();
        for (_, waiting) in state.waiting.drain() {
            for batch in waiting.batches {
                batch.progress.started();
                batch.fail(&error);
            }
        }
    }
}

impl Batch {
    fn fail(&self, error: &Error) {
        self.progress.broke(error.clone());
        if let Some(reply) = &self.reply {
            reply.send(Err(error.clone()));
        }
    }
}
