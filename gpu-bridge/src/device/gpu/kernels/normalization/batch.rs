//! Each channel by its mean and variance.

use super::super::Call;
use super::super::fold::{Each, Operand, Sizes, Task, each, each_kernels, put, text};
use crate::device::gpu::pipeline::Kernel;
use crate::error::Result;
use crate::op::{BatchNorm, BatchNormGradient, BatchNormInference, Statistics, Unary};

const NORMALIZE: &str = concat!(include_str!("activation.wgsl"), include_str!("batch_put.wgsl"));

static FORWARD: Each = each_kernels!(
    "batch-norm",
    text::MOMENTS,
    text::MOMENTS_STEP,
    concat!(include_str!("activation.wgsl"), include_str!("batch_put.wgsl"), include_str!("batch.wgsl"))
);

static INFERENCE: Kernel = Kernel {
    name: "batch-norm-inference",
    sources: &[text::MATH, text::FRAME, NORMALIZE, include_str!("batch_given.wgsl"), text::PUT, text::GIVEN],
};

static GRADIENT: Each = each_kernels!(
    "batch-norm-gradient",
    concat!(include_str!("../fold/sum.wgsl"), include_str!("activation.wgsl")),
    include_str!("batch_gradient_step.wgsl"),
    include_str!("batch_gradient.wgsl")
);

/// What the activation is called in the kernels.
fn activation(activation: Option<Unary>) -> &'static str {
    match activation {
        Some(Unary::Relu) => "relu",
        Some(Unary::Relu6) => "relu6",
        Some(Unary::HardSwish) => "hard_swish",
        _ => "identity",
    }
}

pub(super) fn forward(call: Call<'_>, op: &BatchNorm) -> Result<()> {
    let (x, y) = (&call.inputs[0], &call.outputs[0]);
    let operands = [
        Operand::element("x", x),
        Operand::result("scale", &call.inputs[1]),
        Operand::result("shift", &call.inputs[2]),
        Operand::result("y", y),
        Operand::result("mean", &call.outputs[1]),
        Operand::result("variance", &call.outputs[2]),
    ];
    let mut task = Task::new(call, Sizes::channels(&x.layout.shape), &operands);
    task.attributes.epsilon = op.epsilon;
    each(&task.define("ACTIVATION", activation(op.activation)), &FORWARD)
}

pub(super) fn inference(call: Call<'_>, op: &BatchNormInference) -> Result<()> {
    let x = &call.inputs[0];
    let operands = [
        Operand::element("x", x),
        Operand::element("scale", &call.inputs[1]),
        Operand::element("shift", &call.inputs[2]),
        Operand::element("mean", &call.inputs[3]),
        Operand::element("variance", &call.inputs[4]),
        Operand::element("y", &call.outputs[0]),
    ];
    let mut task = Task::new(call, Sizes::channels(&x.layout.shape), &operands);
    task.attributes.epsilon = op.epsilon;
    put(&task.define("ACTIVATION", activation(op.activation)), &INFERENCE)
}

pub(super) fn gradient(call: Call<'_>, op: &BatchNormGradient) -> Result<()> {
    let x = &call.inputs[0];
    let operands = [
        Operand::element("x", x),
        Operand::element("scale", &call.inputs[1]),
        Operand::element("mean", &call.inputs[2]),
        Operand::element("variance", &call.inputs[3]),
        Operand::element("dy", &call.inputs[4]),
        Operand::result("dx", &call.outputs[0]),
        Operand::result("dscale", &call.outputs[1]),
        Operand::result("dshift", &call.outputs[2]),
    ];
    let mut task = Task::new(call, Sizes::channels(&x.layout.shape), &operands);
    task.operands.extend(call.inputs.get(5).map(|shift| Operand::element("shift", shift)));
    task.attributes.epsilon = op.epsilon;
    task.attributes.factor = if op.statistics == Statistics::OfBatch { 1.0 } else { 0.0 };
    let shift = if call.inputs.len() > 5 { "shift_at(result)" } else { "0.0" };
    each(&task.define("ACTIVATION", activation(op.activation)).define("SHIFT", shift), &GRADIENT)
}
