//! Losses, each with its gradient.

use super::Call;
use super::fold::{Attributes, Each, Folding, Operand, Sizes, Task, each, each_kernels, fold, fold_kernels, put, text};
use super::reduction::total;
use crate::device::View;
use crate::device::gpu::pipeline::Kernel;
use crate::dtype::DType;
use crate::error::Result;
use crate::op::{Loss, LossKind, Op};
use crate::shape::{Layout, Shape};

pub(super) fn run(call: Call<'_>, op: &Op) -> Result<()> {
    match op {
        Op::Loss(op) if op.kind.takes_labels() => labelled(call, op),
        Op::Loss(op) => elementwise(call, op),
        _ => super::misplaced(op),
    }
}

static ELEMENTS: Folding = fold_kernels!(
    "loss",
    text::SUM,
    concat!(include_str!("math.wgsl"), include_str!("loss/elements.wgsl")),
    include_str!("loss/finish.wgsl")
);

static CROSS_ENTROPY: Each = each_kernels!(
    "cross-entropy",
    text::POWERS,
    include_str!("loss/cross_entropy_step.wgsl"),
    concat!(include_str!("loss/label.wgsl"), include_str!("loss/cross_entropy.wgsl"))
);

static NLL: Kernel = Kernel {
    name: "nll",
    sources: &[text::FRAME, include_str!("loss/label.wgsl"), include_str!("loss/nll.wgsl"), text::PUT, text::GIVEN],
};

/// Losses of elements that have a target each.
fn elementwise(call: Call<'_>, op: &Loss) -> Result<()> {
    let (function, flops) = match op.kind {
        LossKind::Hinge => ("hinge", 4),
        LossKind::Mse => ("squared", 4),
        _ => ("binary_cross_entropy", 40),
    };
    let x = &call.inputs[0];
    let operands = [
        Operand::element("x", x),
        Operand::element("t", &call.inputs[1]),
        Operand::element("gradient", &call.outputs[1]),
        Operand::result("loss", &call.outputs[0]),
    ];
    let count = x.layout.shape.elements();
    let mut task = Task::new(call, Sizes::rows(1, count), &operands);
    task.attributes.factor = op.reduction.factor(count) as f32;
    task.flops = flops;
    fold(&task.define("LOSS", function), &ELEMENTS)
}

/// Losses of rows `[rows, classes]` that have a label each: first each row's, then their sum.
fn labelled(call: Call<'_>, op: &Loss) -> Result<()> {
    let (x, labels) = (&call.inputs[0], &call.inputs[1]);
    let (rows, classes) = (x.layout.shape[0], x.layout.shape[1]);
    let block = call.run.heap.take(rows * 4)?;
    let layout = Layout::contiguous(Shape::new(&[rows])?);
    let losses = View { memory: block.memory(), layout: &layout, dtype: DType::F32 };
    let operands = [
        Operand::element("x", x),
        Operand::result("labels", labels),
        Operand::result("gradient", &call.outputs[1]),
        Operand::result("losses", &losses),
    ];
    let factor = op.reduction.factor(rows) as f32;
    let mut task = Task::new(call, Sizes::rows(rows, classes), &operands);
    task.checked = Some(("label", classes, labels.dtype));
    task.attributes = Attributes { factor, ..task.attributes };
    if let LossKind::SoftmaxCrossEntropy { smoothing } = op.kind {
        task.attributes.smoothing = smoothing;
        task.flops = 32;
        each(&task.define("LOSS", "cross_entropy"), &CROSS_ENTROPY)?;
    } else {
        put(&task.define("LOSS", "nll"), &NLL)?;
    }
    total(call, &losses, &call.outputs[0], factor)
}
