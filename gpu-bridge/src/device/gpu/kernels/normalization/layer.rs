//! Each row by its own mean and variance.

use super::super::Call;
use super::super::fold::{Each, Folding, Operand, Sizes, Task, each, each_kernels, fold, fold_kernels};
use crate::error::Result;
use crate::op::LayerNorm;

static FORWARD: Each = each_kernels!("layer-norm", text::MOMENTS, text::MOMENTS_STEP, include_str!("layer.wgsl"));

static GRADIENT: Each = each_kernels!(
    "layer-norm-gradient",
    text::SUM,
    include_str!("layer_gradient_step.wgsl"),
    include_str!("layer_gradient.wgsl")
);

static PARAMETERS: Folding = fold_kernels!(
    "layer-norm-parameters",
    text::SUM,
    include_str!("layer_parameters.wgsl"),
    include_str!("layer_parameters_finish.wgsl")
);

pub(super) fn forward(call: Call<'_>, op: &LayerNorm) -> Result<()> {
    let operands = [
        Operand::element("x", &call.inputs[0]),
        Operand::result("scale", &call.inputs[1]),
        Operand::result("shift", &call.inputs[2]),
        Operand::result("y", &call.outputs[0]),
        Operand::result("mean", &call.outputs[1]),
        Operand::result("rstd", &call.outputs[2]),
    ];
    let channels = call.inputs[1].layout.shape.elements();
    let rows = call.outputs[1].layout.shape.elements();
    let mut task = Task::new(call, Sizes::rows(rows, channels), &operands);
    task.attributes.epsilon = op.epsilon;
    each(&task, &FORWARD)
}

pub(super) fn gradient(call: Call<'_>) -> Result<()> {
    let [x, scale, mean, rstd, dy] = [0, 1, 2, 3, 4].map(|input| &call.inputs[input]);
    let (channels, rows) = (scale.layout.shape.elements(), mean.layout.shape.elements());
    let operands = [
        Operand::element("x", x),
        Operand::element("scale", scale),
        Operand::element("mean", mean),
        Operand::element("rstd", rstd),
        Operand::element("dy", dy),
        Operand::result("dx", &call.outputs[0]),
    ];
    each(&Task::new(call, Sizes::rows(rows, channels), &operands), &GRADIENT)?;
    let operands = [
        Operand::element("x", x),
        Operand::element("mean", mean),
        Operand::element("rstd", rstd),
        Operand::element("dy", dy),
        Operand::result("dscale", &call.outputs[1]),
        Operand::result("dshift", &call.outputs[2]),
    ];
    fold(&Task::new(call, Sizes::columns(rows, channels), &operands), &PARAMETERS)
}
