//! Many elements to one.

use smallvec::SmallVec;

use super::Call;
use super::fold::{Folding, Operand, Sizes, Task, fold, fold_kernels};
use crate::device::View;
use crate::device::gpu::pipeline::Kernel;
use crate::dtype::DType;
use crate::error::Result;
use crate::op::{ArgReduce, Extreme, Op, Reduce, Reducer};
use crate::shape::{Axes, Layout, Shape};

pub(super) fn run(call: Call<'_>, op: &Op) -> Result<()> {
    match op {
        Op::Reduce(op) => reduce(call, op),
        Op::ArgReduce(op) => arg_reduce(call, op),
        _ => super::misplaced(op),
    }
}

static SUM: Folding =
    fold_kernels!("sum", text::SUM, include_str!("reduction/sum.wgsl"), include_str!("reduction/sum_finish.wgsl"));

static EXTREME: Folding = fold_kernels!(
    "extreme",
    include_str!("reduction/extreme.wgsl"),
    include_str!("reduction/extreme_step.wgsl"),
    include_str!("reduction/extreme_finish.wgsl")
);

static VARIANCE: Folding =
    fold_kernels!("variance", text::MOMENTS, text::MOMENTS_STEP, include_str!("reduction/variance_finish.wgsl"));

static POSITION: Folding = fold_kernels!(
    "position",
    include_str!("reduction/position.wgsl"),
    include_str!("reduction/position_step.wgsl"),
    include_str!("reduction/position_finish.wgsl")
);

static GATHER: Kernel = Kernel { name: "gather-folded", sources: &[include_str!("reduction/gather.wgsl")] };

fn reduce(call: Call<'_>, op: &Reduce) -> Result<()> {
    fold_axes(call, op.axes, |task| match op.reducer {
        Reducer::Sum => fold(&task.define("TERM", "x").define("RESULT", "state.x"), &SUM),
        Reducer::Mean => fold(&task.define("TERM", "x").define("RESULT", "mean(state.x)"), &SUM),
        Reducer::SumSquares => fold(&task.define("TERM", "x * x").define("RESULT", "state.x"), &SUM),
        Reducer::Max => fold(&task.define("FURTHER", "larger").define("NOTHING", "-infinity()"), &EXTREME),
        Reducer::Min => fold(&task.define("FURTHER", "smaller").define("NOTHING", "infinity()"), &EXTREME),
        Reducer::Variance { correction } => {
            let mut task = task;
            task.attributes.factor = task.sizes.folded().saturating_sub(correction as usize) as f32;
            fold(&task, &VARIANCE)
        }
    })
}

fn arg_reduce(call: Call<'_>, op: &ArgReduce) -> Result<()> {
    let further = match op.extreme {
        Extreme::Max => "above",
        Extreme::Min => "below",
    };
    fold_axes(call, Axes::new(&[op.axis])?, |task| fold(&task.define("FURTHER", further), &POSITION))
}

/// Makes a task of the elements, copied side by side first if those that are folded lie too far scattered.
fn fold_axes(call: Call<'_>, axes: Axes, run: impl FnOnce(Task<'_>) -> Result<()>) -> Result<()> {
    let (x, y) = (&call.inputs[0], Operand::result("y", &call.outputs[0]));
    let shape = &x.layout.shape;
    if let Some(sizes) = Sizes::of(shape, axes) {
        return run(Task::new(call, sizes, &[Operand::element("x", x), y]));
    }
    let mut order: SmallVec<[usize; 8]> = (0..shape.rank()).collect();
    order.sort_by_key(|&axis| axes.contains(axis));
    let seen = x.layout.permute(&order);
    let results = call.outputs[0].layout.shape.elements();
    let sizes = Sizes::rows(results, shape.elements() / results.max(1));
    let block = call.run.heap.take(shape.elements() * 4)?;
    let layout = Layout::contiguous(Shape::new(&[shape.elements()])?);
    let copy = View { memory: block.memory(), layout: &layout, dtype: DType::F32 };
    let scattered = View { layout: &seen, ..*x };
    call.launch(&GATHER).walk("x", &scattered, &seen.shape)?.map(&copy)?;
    run(Task::new(call, sizes, &[Operand::element("x", &copy), y]))
}

/// Adds up numbers that lie in a row, times a factor.
pub(super) fn total(call: Call<'_>, x: &View<'_>, y: &View<'_>, factor: f32) -> Result<()> {
    let operands = [Operand::element("x", x), Operand::result("y", y)];
    let mut task = Task::new(call, Sizes::rows(1, x.layout.shape.elements()), &operands);
    task.attributes.factor = factor;
    fold(&task.define("TERM", "x").define("RESULT", "state.x * parameters.body.attributes.factor"), &SUM)
}
