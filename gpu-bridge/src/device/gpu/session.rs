//! One owner's handle of a GPU: what it asks for is written down here, and given to the [`Engine`] in batches.
//!
//! A batch is a few milliseconds of work, so that others get their turn, and enough operations that handing it over costs
//! little. What a kernel finds out while it runs (an index out of range) is told by the next read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::engine::Engine;
use super::kernels;
use super::live::{Live, PARAMETER_BYTES};
use super::memory::GpuMemory;
use super::slab::Region;
use crate::device::{Device, DeviceInfo, Memory, View, Wait};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::op::Op;
use crate::run::{Cancel, Run};
use crate::share::{Member, Owner};

/// A batch is handed over when it is estimated to take this long.
const BATCH_MICROSECONDS: u64 = 4_000;

/// A dispatch that is estimated to take longer is cut into several.
const DISPATCH_MICROSECONDS: u64 = 2_000;

/// The most bytes of parameters and uploads in a batch.
pub(super) const ARENA_BYTES: u64 = 4 << 20;

/// The most bytes that one batch reads back.
pub(super) const READBACK_BYTES: u64 = 4 << 20;

/// The most commands of a batch.
const BATCH_COMMANDS: usize = 4096;

/// The most batches of one owner that wait; who wants to add another waits.
const BATCHES_WAITING: usize = 4;

/// How often somebody who waits looks whether the work was cancelled.
const CANCEL_INTERVAL: Duration = Duration::from_millis(10);

/// A kernel that is ready to run.
pub(super) struct Dispatch {
    pub(super) pipeline: wgpu::ComputePipeline,
    pub(super) group: wgpu::BindGroup,
    pub(super) groups: u32,
    /// An estimate.
    pub(super) microseconds: u64,
    /// Whether it may find something wrong.
    pub(super) checks: bool,
}

/// What a GPU is to do. Offsets `from` lie in the batch's arena.
pub(super) enum Command {
    Dispatch { pipeline: wgpu::ComputePipeline, group: wgpu::BindGroup, parameters: Parameters, groups: u32 },
    Clear(Region),
    Upload { from: u64, to: Region, at: u64, bytes: u64 },
    Download { from: Region, at: u64, bytes: u64 },
}

/// Where the parameters of a dispatch are.
#[derive(Clone, Copy)]
pub(super) enum Parameters {
    /// Among the batch's words; they become part of the command.
    Immediate { from: u32, to: u32 },
    /// There in the batch's arena.
    Uniform(u32),
}

/// Work that is handed over as one.
pub(super) struct Batch {
    pub(super) commands: Vec<Command>,
    /// Parameters that are part of commands.
    pub(super) words: Vec<u32>,
    /// Parameters that are not, and bytes on their way to the GPU.
    pub(super) arena: Vec<u8>,
    pub(super) microseconds: u64,
    /// Regions that nobody uses once this batch has been submitted.
    pub(super) freed: Vec<Region>,
    /// Where kernels write what they find, and whether any of these does.
    pub(super) fault: Region,
    pub(super) checks: bool,
    pub(super) reply: Option<Arc<Reply>>,
    pub(super) progress: Arc<Progress>,
    /// What others had had of the GPU when it arrived at the engine.
    pub(super) asked: Wait,
}

/// Where the bytes that were read arrive.
#[derive(Default)]
pub(super) struct Reply {
    bytes: Mutex<Option<Result<Vec<u8>>>>,
    arrived: Condvar,
}

impl Reply {
    pub(super) fn send(&self, bytes: Result<Vec<u8>>) {
        *self.bytes.lock().unwrap_or_else(PoisonError::into_inner) = Some(bytes);
        self.arrived.notify_all();
    }

    fn wait(&self, progress: &Progress) -> Result<Vec<u8>> {
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(bytes) = bytes.take() {
                return bytes;
            }
            progress.check_cancel()?;
            bytes = self.arrived.wait_timeout(bytes, CANCEL_INTERVAL).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// How far the work of a session is. The engine writes, the session reads.
#[derive(Default)]
pub(super) struct Progress {
    state: Mutex<ProgressState>,
    changed: Condvar,
    nanoseconds: AtomicU64,
    cancel: OnceLock<Cancel>,
}

#[derive(Default)]
struct ProgressState {
    waiting: usize,
    /// What a kernel found, until a read has told it.
    found: Option<[u32; 3]>,
    /// After this nothing is certain any more.
    broken: Option<Error>,
}

impl Progress {
    /// A batch was taken over by the engine.
    pub(super) fn started(&self) {
        self.lock().waiting -= 1;
        self.changed.notify_all();
    }

    pub(super) fn charge(&self, time: Duration) {
        self.nanoseconds.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    pub(super) fn found(&self, [count, code, index, limit]: [u32; 4]) {
        if count > 0 {
            self.lock().found.get_or_insert([code, index, limit]);
        }
    }

    pub(super) fn broke(&self, error: Error) {
        self.lock().broken.get_or_insert(error);
        self.changed.notify_all();
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancel.get().is_some_and(Cancel::is_cancelled)
    }

    fn check_cancel(&self) -> Result<()> {
        if self.is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
    }

    fn check(&self) -> Result<()> {
        match &self.lock().broken {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, ProgressState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether operations are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Run,
    /// Kernels are compiled, and that is all. Memory is only a number.
    Rehearsal,
}

/// What the session and its memory share.
pub(super) struct Core {
    engine: Arc<Engine>,
    mode: Mode,
    member: Member,
    /// Where kernels say what they found: how often, code, index, limit.
    fault: Region,
    codes: Mutex<Vec<(&'static str, &'static str, DType)>>,
    recorded: Mutex<Batch>,
    freed: Mutex<Vec<Region>>,
    progress: Arc<Progress>,
}

impl Core {
    pub(super) fn live(&self) -> &Live {
        self.engine.live()
    }

    pub(super) fn fault_region(&self) -> &Region {
        &self.fault
    }

    /// A number that stands for this kind of wrong index.
    pub(super) fn fault_code(&self, op: &'static str, what: &'static str, dtype: DType) -> u32 {
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        let code = (op, what, dtype);
        let index = codes.iter().position(|known| *known == code).unwrap_or_else(|| {
            codes.push(code);
            codes.len() - 1
        });
        index as u32
    }

    /// Whether kernels are compiled and no more.
    pub(super) fn is_rehearsal(&self) -> bool {
        self.mode == Mode::Rehearsal
    }

    /// Writes down a dispatch with its parameters, in several parts if it is long.
    pub(super) fn record(&self, dispatch: Dispatch, parameters: &[u32]) -> Result<()> {
        let parts = dispatch.microseconds.div_ceil(DISPATCH_MICROSECONDS).clamp(1, u64::from(dispatch.groups)) as u32;
        let mut base = 0;
        for part in 0..parts {
            let end = (u64::from(dispatch.groups) * u64::from(part + 1) / u64::from(parts)) as u32;
            let mut recorded = self.recorded()?;
            let at = self.write_parameters(&mut recorded, [base, end], &parameters[2..]);
            recorded.commands.push(Command::Dispatch {
                pipeline: dispatch.pipeline.clone(),
                group: dispatch.group.clone(),
                parameters: at,
                groups: end - base,
            });
            recorded.microseconds += dispatch.microseconds / u64::from(parts);
            recorded.checks |= dispatch.checks;
            base = end;
            self.flush_if_full(&mut recorded)?;
        }
        Ok(())
    }

    fn write_parameters(&self, recorded: &mut Batch, groups: [u32; 2], rest: &[u32]) -> Parameters {
        if self.live().immediate_bytes(groups.len() + rest.len()) > 0 {
            let from = recorded.words.len();
            recorded.words.extend_from_slice(&groups);
            recorded.words.extend_from_slice(rest);
            // Kernels see vectors of four.
            let to = recorded.words.len().next_multiple_of(4);
            recorded.words.resize(to, 0);
            return Parameters::Immediate { from: from as u32, to: to as u32 };
        }
        let at = recorded.reserve(self.parameter_alignment());
        recorded.arena.extend_from_slice(bytemuck::cast_slice(&groups));
        recorded.arena.extend_from_slice(bytemuck::cast_slice(rest));
        debug_assert!(recorded.arena.len() as u64 - at <= PARAMETER_BYTES, "too many parameters");
        Parameters::Uniform(at as u32)
    }

    /// Takes a region back, once all that was asked for before has been submitted.
    pub(super) fn give(&self, region: Region) {
        if self.is_rehearsal() {
            return;
        }
        self.freed.lock().unwrap_or_else(PoisonError::into_inner).push(region);
    }

    fn parameter_alignment(&self) -> u64 {
        u64::from(self.live().limits.min_uniform_buffer_offset_alignment).max(4)
    }

    fn recorded(&self) -> Result<MutexGuard<'_, Batch>> {
        self.live().faults.check()?;
        self.progress.check()?;
        Ok(self.recorded.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn flush_if_full(&self, recorded: &mut Batch) -> Result<()> {
        let full = recorded.microseconds >= BATCH_MICROSECONDS
            || recorded.commands.len() >= BATCH_COMMANDS
            || recorded.arena.len() as u64 + PARAMETER_BYTES + self.parameter_alignment() > ARENA_BYTES;
        if full { self.flush(recorded) } else { Ok(()) }
    }

    /// Hands over what is written down. Waits while too much of this owner's is waiting already.
    fn flush(&self, recorded: &mut Batch) -> Result<()> {
        let mut state = self.progress.lock();
        while state.waiting >= BATCHES_WAITING && state.broken.is_none() {
            self.live().faults.check()?;
            self.progress.check_cancel()?;
            let waited = self.progress.changed.wait_timeout(state, CANCEL_INTERVAL);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.waiting += 1;
        drop(state);
        self.hand_over(recorded);
        Ok(())
    }

    fn hand_over(&self, recorded: &mut Batch) {
        let mut batch = std::mem::replace(recorded, self.empty_batch());
        batch.freed = std::mem::take(&mut self.freed.lock().unwrap_or_else(PoisonError::into_inner));
        self.engine.submit(self.member, batch);
    }

    fn empty_batch(&self) -> Batch {
        Batch::new(self.fault.clone(), Arc::clone(&self.progress))
    }

    fn allocate(self: &Arc<Self>, bytes: usize) -> Result<GpuMemory> {
        self.live().faults.check()?;
        if self.is_rehearsal() {
            let region = Region { bytes: (bytes as u64).next_multiple_of(256), ..self.fault.clone() };
            return Ok(GpuMemory::new(region, Arc::clone(self)));
        }
        let region = match self.live().slabs.take(bytes as u64) {
            Err(Error::DeviceFull { .. }) => {
                // What was freed may not have come back yet.
                self.wait()?;
                self.live().slabs.take(bytes as u64)?
            }
            region => region?,
        };
        let memory = GpuMemory::new(region, Arc::clone(self));
        if memory.region().used {
            let mut recorded = self.recorded()?;
            recorded.commands.push(Command::Clear(memory.region().clone()));
            self.flush_if_full(&mut recorded)?;
        }
        Ok(memory)
    }

    fn upload(&self, region: &Region, mut at: u64, bytes: &[u8]) -> Result<()> {
        if self.is_rehearsal() {
            return Ok(());
        }
        for piece in bytes.chunks((ARENA_BYTES / 4) as usize) {
            let mut recorded = self.recorded()?;
            if recorded.arena.len() as u64 + piece.len() as u64 + 2 * PARAMETER_BYTES > ARENA_BYTES {
                self.flush(&mut recorded)?;
            }
            let from = recorded.reserve(4);
            recorded.arena.extend_from_slice(piece);
            let bytes = piece.len() as u64;
            recorded.commands.push(Command::Upload { from, to: region.clone(), at, bytes });
            recorded.microseconds += bytes / self.live().class.bytes;
            at += bytes;
            self.flush_if_full(&mut recorded)?;
        }
        Ok(())
    }

    /// Waits for all that was asked for, and gives bytes of a region, both ends at multiples of four.
    fn download(&self, from: Option<(&Region, u64, u64)>) -> Result<Vec<u8>> {
        if self.is_rehearsal() {
            return Ok(from.map_or(Vec::new(), |(_, _, bytes)| vec![0; bytes as usize]));
        }
        let reply = Arc::new(Reply::default());
        {
            let mut recorded = self.recorded()?;
            if let Some((region, at, bytes)) = from {
                recorded.commands.push(Command::Download { from: region.clone(), at, bytes });
            }
            recorded.reply = Some(Arc::clone(&reply));
            self.flush(&mut recorded)?;
        }
        let bytes = reply.wait(&self.progress)?;
        self.progress.check()?;
        if let Some([code, index, count]) = self.progress.lock().found.take() {
            return Err(self.explain(code, index, count));
        }
        Ok(bytes)
    }

    fn explain(&self, code: u32, index: u32, count: u32) -> Error {
        let codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        let &(op, what, dtype) = codes.get(code as usize).unwrap_or(&("kernel", "index", DType::U32));
        let index = if dtype == DType::I32 { i64::from(index as i32) } else { i64::from(index) };
        // A whole sentence stands for itself.
        if what.contains("{index}") {
            let reason = what.replace("{index}", &index.to_string()).replace("{count}", &count.to_string());
            return Error::BadArgument { op, reason };
        }
        Error::IndexOutOfRange { op, what, index, count: count as usize }
    }

    fn wait(&self) -> Result<()> {
        self.download(None).map(drop)
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        let mut last = Batch::new(self.fault.clone(), Arc::clone(&self.progress));
        let recorded = self.recorded.get_mut().unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(recorded, &mut last);
        // Nobody will see what was not asked for yet; but the regions come back.
        last.commands.clear();
        last.freed = std::mem::take(self.freed.get_mut().unwrap_or_else(PoisonError::into_inner));
        last.freed.push(self.fault.clone());
        self.progress.lock().waiting += 1;
        self.engine.submit(self.member, last);
        self.engine.leave(self.member);
    }
}

impl Batch {
    fn new(fault: Region, progress: Arc<Progress>) -> Self {
        Self {
            commands: Vec::new(),
            words: Vec::new(),
            arena: Vec::new(),
            microseconds: 0,
            freed: Vec::new(),
            fault,
            checks: false,
            reply: None,
            progress,
            asked: Wait::default(),
        }
    }

    /// The next place in the arena with this alignment.
    fn reserve(&mut self, alignment: u64) -> u64 {
        let at = (self.arena.len() as u64).next_multiple_of(alignment);
        self.arena.resize(at as usize, 0);
        at
    }
}

/// One owner's handle of a GPU.
pub(super) struct Session {
    core: Arc<Core>,
    info: DeviceInfo,
}

impl Session {
    pub(super) fn open(
        engine: &Arc<Engine>,
        owner: &Owner,
        weight: std::num::NonZeroU32,
        info: DeviceInfo,
        mode: Mode,
    ) -> Result<Self> {
        let fault = engine.live().slabs.take(16)?;
        let progress = Arc::new(Progress::default());
        let mut batch = Batch::new(fault.clone(), Arc::clone(&progress));
        batch.commands.push(Command::Clear(fault.clone()));
        let core = Core {
            member: engine.join(owner, weight),
            engine: Arc::clone(engine),
            mode,
            fault,
            codes: Mutex::default(),
            recorded: Mutex::new(batch),
            freed: Mutex::default(),
            progress,
        };
        Ok(Self { core: Arc::new(core), info })
    }

    pub(super) fn core(&self) -> &Core {
        &self.core
    }
}

impl Device for Session {
    fn info(&self) -> DeviceInfo {
        self.info.clone()
    }

    fn is_lost(&self) -> bool {
        self.core.engine.live().faults.is_lost()
    }

    fn time(&self) -> Duration {
        Duration::from_nanos(self.core.progress.nanoseconds.load(Ordering::Relaxed))
    }

    fn longest_wait(&self) -> Wait {
        self.core.engine.longest_wait(self.core.member)
    }

    fn allocate(&self, bytes: usize) -> Result<Box<dyn Memory>> {
        Ok(Box::new(self.core.allocate(bytes)?))
    }

    fn write(&self, memory: &dyn Memory, offset: usize, bytes: &[u8]) -> Result<()> {
        let region = GpuMemory::of(memory, "write")?.region();
        check_range("write", region, offset, bytes.len())?;
        if bytes.is_empty() {
            return Ok(());
        }
        // The words at both ends may hold bytes that stay.
        let (start, end) = (offset.next_multiple_of(4).min(offset + bytes.len()), (offset + bytes.len()) & !3);
        if start < end {
            self.core.upload(region, start as u64, &bytes[start - offset..end - offset])?;
        }
        if start > offset {
            kernels::patch(&self.core, memory, offset, &bytes[..start - offset])?;
        }
        if end >= start && end < offset + bytes.len() {
            kernels::patch(&self.core, memory, end, &bytes[end - offset..])?;
        }
        Ok(())
    }

    fn read(&self, memory: &dyn Memory, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let region = GpuMemory::of(memory, "read")?.region();
        check_range("read", region, offset, bytes.len())?;
        if bytes.is_empty() {
            return self.core.wait();
        }
        let mut at = offset;
        for piece in bytes.chunks_mut(READBACK_BYTES as usize - 8) {
            let start = at & !3;
            let end = (at + piece.len()).next_multiple_of(4);
            let words = self.core.download(Some((region, start as u64, (end - start) as u64)))?;
            piece.copy_from_slice(&words[at - start..at - start + piece.len()]);
            at += piece.len();
        }
        Ok(())
    }

    fn run(&self, op: &Op, inputs: &[View<'_>], outputs: &[View<'_>], run: &Run<'_>) -> Result<()> {
        self.core.progress.cancel.get_or_init(|| run.cancel.clone());
        kernels::run(&self.core, op, inputs, outputs, run)
    }
}

fn check_range(op: &'static str, region: &Region, offset: usize, bytes: usize) -> Result<()> {
    match offset.checked_add(bytes) {
        Some(end) if end as u64 <= region.bytes => Ok(()),
        _ => Err(Error::Internal { op, reason: "the bytes lie outside the memory".into() }),
    }
}
