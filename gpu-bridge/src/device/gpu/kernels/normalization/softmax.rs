//! Rows to probabilities.

use super::super::Call;
use super::super::fold::{Each, Operand, Sizes, Task, each, each_kernels};
use crate::device::View;
use crate::error::Result;

static SOFTMAX: Each =
    each_kernels!("softmax", text::POWERS, include_str!("softmax_step.wgsl"), include_str!("softmax.wgsl"));

static GRADIENT: Each = each_kernels!(
    "softmax-gradient",
    text::SUM,
    include_str!("softmax_gradient_step.wgsl"),
    include_str!("softmax_gradient.wgsl")
);

/// Operations of a power.
const POWER_FLOPS: u64 = 16;

/// A task for the rows of the last axis.
fn rows<'a>(call: Call<'a>, like: &View<'a>, operands: &[Operand<'a>]) -> Task<'a> {
    let length = like.layout.shape.from_end(0);
    let count = like.layout.shape.elements().checked_div(length).unwrap_or(0);
    Task::new(call, Sizes::rows(count, length), operands)
}

pub(super) fn softmax(call: Call<'_>) -> Result<()> {
    powers(call, "1.0 / state.y", "exp_(less) * ready.share", "false")
}

pub(super) fn log_softmax(call: Call<'_>) -> Result<()> {
    powers(call, "log_(state.y)", "less - ready.share", "false")
}

pub(super) fn masked_softmax(call: Call<'_>) -> Result<()> {
    powers(call, "1.0 / state.y", "exp_(less) * ready.share", "mask_of(at) == 0u")
}

fn powers(call: Call<'_>, share: &'static str, result: &'static str, masked: &'static str) -> Result<()> {
    let (x, y) = (&call.inputs[0], &call.outputs[0]);
    let mut task = rows(call, x, &[Operand::element("x", x), Operand::result("y", y)]);
    task.operands.extend(call.inputs.get(1).map(|mask| Operand::walked("mask", mask, &x.layout.shape)));
    task.flops = 2 * POWER_FLOPS;
    each(&task.define("SHARE", share).define("RESULT", result).define("MASKED", masked), &SOFTMAX)
}

/// `y (dy - sum(y dy))`
pub(super) fn softmax_gradient(call: Call<'_>) -> Result<()> {
    gradient(call, "y_at(at) * dy_at(at)", "y * (dy - sum)")
}

/// `dy - e^y sum(dy)`
pub(super) fn log_softmax_gradient(call: Call<'_>) -> Result<()> {
    gradient(call, "dy_at(at)", "dy - exp_(y) * sum")
}

fn gradient(call: Call<'_>, term: &'static str, result: &'static str) -> Result<()> {
    let (y, dy, dx) = (&call.inputs[0], &call.inputs[1], &call.outputs[0]);
    let operands = [Operand::element("y", y), Operand::element("dy", dy), Operand::result("dx", dx)];
    let mut task = rows(call, y, &operands);
    task.flops = POWER_FLOPS;
    each(&task.define("TERM", term).define("RESULT", result), &GRADIENT)
}
