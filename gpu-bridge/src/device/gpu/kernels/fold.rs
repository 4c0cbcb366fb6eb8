//! Many elements to one state per result; what reductions, normalization and losses are made of.
//!
//! - [`fold`]: the states are what is wanted
//! - [`each`]: every element becomes something by the state of its result
//! - [`put`]: the same, where there is nothing to find out first
//!
//! A state is four numbers. What they mean, and how elements are folded into them, is said in WGSL that
//! [`fold_kernels`] and [`each_kernels`] put together with the frame in `fold/`. How the work is cut is in [`plan`].

use smallvec::SmallVec;

use super::Call;
use crate::device::View;
use crate::device::gpu::launch::Launch;
use crate::device::gpu::pipeline::{Define, Kernel};
use crate::dtype::DType;
use crate::error::Result;
use crate::heap::Block;
use crate::shape::{Layout, Shape};

mod plan;
mod sets;

pub(super) use plan::Sizes;
use plan::{Plan, Purpose};
pub(super) use sets::{Each, Folding, each_kernels, fold_kernels, text};

/// Numbers that kernels of this kind are given.
#[repr(C)]
#[derive(Clone, Copy, Default, bytemuck::Pod, bytemuck::Zeroable)]
pub(super) struct Attributes {
    /// Elements of a result.
    pub(super) count: f32,
    pub(super) epsilon: f32,
    pub(super) factor: f32,
    pub(super) smoothing: f32,
}

/// A tensor and what it is called in the kernels.
#[derive(Clone, Copy)]
pub(super) struct Operand<'a> {
    name: &'static str,
    view: View<'a>,
    /// The shape that it is walked under, if it is.
    walk: Option<Shape>,
    /// Whether kernels that give results have it, or else those that see the elements.
    result: bool,
}

impl<'a> Operand<'a> {
    /// For kernels that see the elements.
    pub(super) fn element(name: &'static str, view: &View<'a>) -> Self {
        Self { name, view: *view, walk: None, result: false }
    }

    /// For kernels that give results.
    pub(super) fn result(name: &'static str, view: &View<'a>) -> Self {
        Self { result: true, ..Self::element(name, view) }
    }

    /// For kernels that see the elements, which lie apart in it.
    pub(super) fn walked(name: &'static str, view: &View<'a>, shape: &Shape) -> Self {
        Self { walk: Some(*shape), ..Self::element(name, view) }
    }
}

/// What is to be folded.
pub(super) struct Task<'a> {
    pub(super) call: Call<'a>,
    pub(super) sizes: Sizes,
    pub(super) attributes: Attributes,
    pub(super) operands: SmallVec<[Operand<'a>; 8]>,
    pub(super) defines: SmallVec<[(&'static str, Define); 2]>,
    /// What an index is called that may be out of range, how many there are, and its type.
    pub(super) checked: Option<(&'static str, usize, DType)>,
    /// Operations for each element.
    pub(super) flops: u64,
}

/// States of parts, in memory of their own.
struct States {
    block: Block,
    layout: Layout,
}

impl States {
    fn new(call: &Call<'_>, count: usize) -> Result<Self> {
        let layout = Layout::contiguous(Shape::new(&[count, 4])?);
        Ok(Self { block: call.run.heap.take(count * 16)?, layout })
    }

    fn view(&self) -> View<'_> {
        View { memory: self.block.memory(), layout: &self.layout, dtype: DType::F32 }
    }
}

/// One launch of several that make a task.
#[derive(Clone, Copy, Default)]
struct Level<'a> {
    /// States that are read.
    from: Option<&'a States>,
    /// States that are written.
    into: Option<&'a States>,
    /// Whether the elements are seen.
    elements: bool,
    /// Whether it gives results.
    last: bool,
}

impl<'a> Task<'a> {
    pub(super) fn new(call: Call<'a>, sizes: Sizes, operands: &[Operand<'a>]) -> Self {
        let attributes = Attributes { count: sizes.folded() as f32, ..Attributes::default() };
        let operands = operands.iter().copied().collect();
        Self { call, sizes, attributes, operands, defines: SmallVec::new(), checked: None, flops: 4 }
    }

    pub(super) fn define(mut self, name: &'static str, value: impl Into<Define>) -> Self {
        self.defines.push((name, value.into()));
        self
    }

    fn software(&self) -> bool {
        self.call.is_software()
    }

    fn launch(&self, kernel: &'static Kernel, plan: &Plan, level: Level<'_>) -> Result<()> {
        let mut launch: Launch<'_> = self.call.launch(kernel).lanes(plan.lanes());
        for operand in self.operands.iter().filter(|operand| if operand.result { level.last } else { level.elements }) {
            launch = match &operand.walk {
                Some(shape) => launch.walk(operand.name, &operand.view, shape)?,
                None => launch.bind(operand.name, &operand.view)?,
            };
        }
        let views = [level.from.map(States::view), level.into.map(States::view)];
        for (name, view) in ["from", "into"].into_iter().zip(&views) {
            if let Some(view) = view {
                launch = launch.bind_fours(name, view)?;
            }
        }
        for &(name, value) in &self.defines {
            launch = launch.define(name, value);
        }
        if let (true, Some((what, count, dtype))) = (level.last, self.checked) {
            launch = launch.checked(what, count, dtype);
        }
        let elements = plan.sizes().elements() as u64;
        launch.body(&plan.body()).body(&self.attributes).flops(elements * self.flops).groups(plan.groups())
    }

    /// Folds parts until the rest can be folded in one go, or, with `all`, until each result has one state. None if there
    /// never were parts.
    fn fold_parts(
        &self,
        parts: &'static [Kernel; 2],
        rest: &'static [Kernel; 2],
        all: bool,
    ) -> Result<Option<(States, Sizes)>> {
        let way = usize::from(!self.software());
        let mut states: Option<(States, Sizes)> = None;
        loop {
            let (from, sizes, purpose) = match &states {
                None => (None, self.sizes, Purpose::Fold),
                Some((states, sizes)) => (Some(states), *sizes, Purpose::Rest),
            };
            let plan = Plan::new(&sizes, self.software(), purpose);
            let done = if all { from.is_some() && sizes.folded() == 1 } else { plan.parts() == 1 };
            if done {
                return Ok(states);
            }
            let into = States::new(&self.call, plan.parts() * sizes.results())?;
            let kernel = if from.is_some() { &rest[way] } else { &parts[way] };
            self.launch(kernel, &plan, Level { from, into: Some(&into), elements: from.is_none(), last: false })?;
            states = Some((into, plan.left()));
        }
    }
}

/// Folds the elements and finishes the results.
pub(super) fn fold(task: &Task<'_>, folding: &'static Folding) -> Result<()> {
    if task.sizes.results() == 0 {
        return Ok(());
    }
    let way = usize::from(!task.software());
    match task.fold_parts(&folding.parts, &folding.rest, false)? {
        None => {
            let plan = Plan::new(&task.sizes, task.software(), Purpose::Fold);
            task.launch(&folding.whole[way], &plan, Level { elements: true, last: true, ..Level::default() })
        }
        Some((states, sizes)) => {
            let plan = Plan::new(&sizes, task.software(), Purpose::Rest);
            let level = Level { from: Some(&states), last: true, ..Level::default() };
            task.launch(&folding.rest_whole[way], &plan, level)
        }
    }
}

/// Folds the elements, then gives each what it becomes.
pub(super) fn each(task: &Task<'_>, each: &'static Each) -> Result<()> {
    if task.sizes.results() == 0 {
        return Ok(());
    }
    let software = task.software();
    if let Some(plan) = Plan::fused(&task.sizes, software) {
        let level = Level { elements: true, last: true, ..Level::default() };
        return task.launch(&each.fused[usize::from(!software)], &plan, level);
    }
    let states = task.fold_parts(&each.parts, &each.rest, true)?;
    let plan = Plan::new(&task.sizes, software, Purpose::Put);
    let from = states.as_ref().map(|(states, _)| states);
    task.launch(&each.spread, &plan, Level { from, elements: true, last: true, ..Level::default() })
}

/// Gives each element what it becomes, by a kernel with the frame's `given`.
pub(super) fn put(task: &Task<'_>, kernel: &'static Kernel) -> Result<()> {
    if task.sizes.results() == 0 {
        return Ok(());
    }
    let plan = Plan::new(&task.sizes, task.software(), Purpose::Put);
    task.launch(kernel, &plan, Level { elements: true, last: true, ..Level::default() })
}
