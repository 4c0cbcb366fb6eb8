//! One kernel on some operands: what is bound, with which parameters, on how many threads.

use bytemuck::Pod;
use smallvec::SmallVec;

use super::memory::GpuMemory;
use super::pipeline::{Define, Kernel, LANES, Main, Packing, Slot, Variant};
use super::session::{Core, Dispatch};
use super::slab::Region;
use crate::device::View;
use crate::error::{Error, Result};
use crate::shape::{MAX_RANK, Shape};

/// A kernel being made ready. Operands are bound in the order in which they are named.
pub(super) struct Launch<'a> {
    core: &'a Core,
    op: &'static str,
    kernel: &'static Kernel,
    defines: SmallVec<[(&'static str, Define); 6]>,
    slots: SmallVec<[Slot; 6]>,
    regions: SmallVec<[&'a Region; 6]>,
    /// In the order of the slots.
    offsets: SmallVec<[u32; 6]>,
    /// What walked operands lie along, in elements of the result.
    walk: Option<Walk>,
    /// The strides of operands that are walked, in the order of the slots.
    walked: SmallVec<[[usize; MAX_RANK]; 3]>,
    fault: Option<(u32, u32)>,
    body: SmallVec<[u32; 32]>,
    lanes: u32,
    bytes: u64,
    flops: u64,
}

#[derive(Clone, Copy)]
struct Walk {
    shape: Shape,
}

impl<'a> Launch<'a> {
    pub(super) fn new(core: &'a Core, op: &'static str, kernel: &'static Kernel) -> Self {
        Self {
            core,
            op,
            kernel,
            defines: SmallVec::new(),
            slots: SmallVec::new(),
            regions: SmallVec::new(),
            offsets: SmallVec::new(),
            walk: None,
            walked: SmallVec::new(),
            fault: None,
            body: SmallVec::new(),
            lanes: LANES,
            bytes: 0,
            flops: 0,
        }
    }

    /// What `$NAME` stands for in the kernel's text.
    pub(super) fn define(mut self, name: &'static str, value: impl Into<Define>) -> Self {
        self.defines.push((name, value.into()));
        self
    }

    /// An operand whose elements lie in a row.
    pub(super) fn bind(self, name: &'static str, view: &View<'a>) -> Result<Self> {
        let packing = Packing::One(view.dtype);
        self.operand(name, view, packing)
    }

    /// An operand of f32 in a row that is read four at a time. Its offset must be a multiple of four.
    pub(super) fn bind_fours(self, name: &'static str, view: &View<'a>) -> Result<Self> {
        self.operand(name, view, Packing::Fours)
    }

    /// An operand that is seen under `shape`, to which it broadcasts.
    pub(super) fn walk(mut self, name: &'static str, view: &View<'a>, shape: &Shape) -> Result<Self> {
        let layout = view.layout.expand(shape);
        self.walk = Some(Walk { shape: *shape });
        self = self.operand(name, view, Packing::One(view.dtype))?;
        if let Some(slot) = self.slots.last_mut() {
            slot.walked = true;
        }
        let mut strides = [0; MAX_RANK];
        strides[..shape.rank()].copy_from_slice(layout.strides());
        self.walked.push(strides);
        Ok(self)
    }

    fn operand(mut self, name: &'static str, view: &View<'a>, packing: Packing) -> Result<Self> {
        let memory = GpuMemory::of(view.memory, self.op)?;
        let end = view.layout.end();
        if end as u64 * view.dtype.size() as u64 > memory.region().bytes {
            return Err(Error::Internal { op: self.op, reason: "an operand lies outside its memory".into() });
        }
        if u32::try_from(end).is_err() || u32::try_from(view.layout.shape.elements()).is_err() {
            let reason = format!("`{}`: {:?} has more elements than a GPU can count", self.op, view.layout.shape);
            return Err(Error::TooLarge { reason });
        }
        let pieces = memory.region().bytes.div_ceil(self.core.live().binding_bytes()) as u32;
        self.bytes += view.layout.shape.elements() as u64 * view.dtype.size() as u64;
        self.slots.push(Slot { name, packing, pieces, walked: false });
        self.regions.push(memory.region());
        self.offsets.push(view.layout.offset as u32);
        Ok(self)
    }

    /// Lets the kernel say `out_of_range(index)` of an index that is not below `count`. In a `what` that is a whole
    /// sentence, `{index}` and `{count}` stand for the two numbers, and the error says no more than that.
    pub(super) fn checked(mut self, what: &'static str, count: usize, dtype: crate::DType) -> Self {
        self.slots.push(Slot { name: "fault", packing: Packing::Atomic, pieces: 1, walked: false });
        self.regions.push(self.core.fault_region());
        self.offsets.push(0);
        let code = self.core.fault_code(self.op, what, dtype);
        self.fault = Some((code, u32::try_from(count).unwrap_or(u32::MAX)));
        self
    }

    /// The kernel's own parameters, `struct Body` in its text: fields of 32 bits only.
    pub(super) fn body<T: Pod>(mut self, body: &T) -> Self {
        self.body.extend_from_slice(bytemuck::cast_slice(std::slice::from_ref(body)));
        self
    }

    /// The same, for arrays whose length is defined.
    pub(super) fn body_words(mut self, words: &[u32]) -> Self {
        self.body.extend_from_slice(words);
        self
    }

    /// Counts the elements of the last operand from this one on.
    pub(super) fn starting_at(mut self, element: usize) -> Self {
        if let Some(offset) = self.offsets.last_mut() {
            *offset += element as u32;
        }
        self
    }

    /// Threads of a workgroup.
    pub(super) fn lanes(mut self, lanes: u32) -> Self {
        self.lanes = lanes;
        self
    }

    /// How much work it is, where it is more than reading and writing every operand once.
    pub(super) fn flops(mut self, flops: u64) -> Self {
        self.flops = flops;
        self
    }

    /// Refuses a loop of so many rounds in one thread if nobody could stop it in time.
    pub(super) fn looping(self, rounds: u64, what: &str) -> Result<Self> {
        let most = self.core.live().class.longest_loop;
        if rounds > most {
            let reason = format!(
                "`{}`: {rounds} {what} for one element of the result, the most on this GPU is {most} \
                 (limit `gpu_loop`); use fewer, or a CPU lease",
                self.op
            );
            return Err(Error::TooLarge { reason });
        }
        Ok(self)
    }

    /// Computes every element of `y`, one thread each, by the kernel's `value`.
    pub(super) fn map(self, y: &View<'a>) -> Result<()> {
        let elements = y.layout.shape.elements();
        let per_word = 4 / y.dtype.size();
        let words = (y.layout.offset + elements).div_ceil(per_word) - y.layout.offset / per_word;
        let launch = self.bind("y", y)?;
        let groups = (words as u64).div_ceil(u64::from(launch.lanes));
        launch.dispatch(Main::Map, groups, words as u64, elements as u64)
    }

    /// Calls the kernel's `run` for so many groups of threads.
    pub(super) fn groups(self, groups: u64) -> Result<()> {
        self.dispatch(Main::Run, groups, 0, 0)
    }

    /// Calls the kernel's `run` on at least so many threads; `parameters.count` says how many.
    pub(super) fn threads(self, threads: u64) -> Result<()> {
        let groups = threads.div_ceil(u64::from(self.lanes));
        self.dispatch(Main::Run, groups, threads, 0)
    }

    fn dispatch(mut self, main: Main, groups: u64, count: u64, elements: u64) -> Result<()> {
        if groups == 0 {
            return Ok(());
        }
        if groups.saturating_mul(u64::from(self.lanes)) > u64::from(u32::MAX) {
            return Err(Error::TooLarge { reason: format!("`{}`: {groups} groups of threads", self.op) });
        }
        let (rank, words) = self.parameters([groups, count], (main == Main::Map).then_some(elements));
        let variant = Variant {
            kernel: self.kernel.name,
            main,
            lanes: self.lanes,
            body: !self.body.is_empty(),
            words: words.len(),
            rank: rank as u32,
            defines: self.defines,
            slots: self.slots,
        };
        let live = self.core.live();
        let pipeline = live.pipelines.get(live, self.kernel, &variant)?;
        if self.core.is_rehearsal() {
            return Ok(());
        }
        let group = live.bindings.group(live, &self.regions)?;
        let class = live.class;
        let microseconds = (self.flops / class.flops).max(self.bytes / class.bytes);
        let checks = self.fault.is_some();
        self.core.record(Dispatch { pipeline, group, groups: groups as u32, microseconds, checks }, &words)
    }

    /// The parameters in the order in which [`Variant`] declares them, and the rank of what is walked.
    fn parameters(&mut self, [groups, count]: [u64; 2], elements: Option<u64>) -> (usize, SmallVec<[u32; 64]>) {
        let (rank, sizes) = self.join_axes();
        let mut words = SmallVec::new();
        words.extend([0, groups as u32, count as u32]);
        words.extend(elements.map(|elements| elements as u32));
        let mut walked = self.walked.iter();
        for (slot, &offset) in self.slots.iter().zip(&self.offsets) {
            words.push(offset);
            if slot.walked {
                words.extend(
                    walked.next().into_iter().flat_map(|strides| &strides[..rank]).map(|&stride| stride as u32),
                );
            }
        }
        words.extend(sizes[..rank].iter().map(|&size| size as u32));
        if let Some((code, count)) = self.fault {
            words.extend([code, count]);
        }
        words.extend_from_slice(&self.body);
        (rank, words)
    }

    /// Joins axes that all walked operands step through alike: fewer divisions per element.
    fn join_axes(&mut self) -> (usize, [usize; MAX_RANK]) {
        let Some(Walk { shape }) = self.walk else { return (0, [0; MAX_RANK]) };
        let mut sizes = [1_usize; MAX_RANK];
        let mut rank = 0;
        let mut joined: SmallVec<[[usize; MAX_RANK]; 3]> = smallvec::smallvec![[0; MAX_RANK]; self.walked.len()];
        for axis in (0..shape.rank()).filter(|&axis| shape[axis] != 1) {
            let runs_on = rank > 0
                && self
                    .walked
                    .iter()
                    .zip(&joined)
                    .all(|(strides, joined)| joined[rank - 1] == strides[axis] * shape[axis]);
            if runs_on {
                sizes[rank - 1] *= shape[axis];
            } else {
                sizes[rank] = shape[axis];
                rank += 1;
            }
            for (strides, joined) in self.walked.iter().zip(&mut joined) {
                joined[rank - 1] = strides[axis];
            }
        }
        self.walked = joined;
        (rank.max(1), sizes)
    }
}
