//! What happens to the sums of a product: slices added, scale, bias, activation.

use super::tiling::Plan;
use crate::device::View;
use crate::device::gpu::kernels::Call;
use crate::device::gpu::launch::Launch;
use crate::device::gpu::pipeline::Kernel;
use crate::error::Result;
use crate::op::Unary;

static COMBINE: Kernel =
    Kernel { name: "matmul-combine", sources: &[include_str!("combine.wgsl"), include_str!("finish.wgsl")] };

/// `Body` in `combine.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Body {
    rows: u32,
    columns: u32,
    slices: u32,
    put_rows: u32,
    put_columns: u32,
    scale: f32,
    a: f32,
    b: f32,
}

/// What is done with the sums.
#[derive(Clone, Copy)]
pub(in super::super) struct Finish<'a> {
    pub(in super::super) scale: f32,
    pub(in super::super) bias: Option<View<'a>>,
    pub(in super::super) activation: Option<Unary>,
    /// Where the values before the activation go.
    pub(in super::super) before: Option<View<'a>>,
}

impl<'a> Finish<'a> {
    pub(in super::super) const NOTHING: Self = Self { scale: 1.0, bias: None, activation: None, before: None };

    /// Whether it is no more than a scale.
    pub(super) fn is_scale(&self) -> bool {
        self.bias.is_none() && self.activation.is_none() && self.before.is_none()
    }

    /// What `finish.wgsl` needs.
    pub(super) fn define(&self, launch: Launch<'a>) -> Result<Launch<'a>> {
        let launch = launch.define("ACTIVATED", self.activation.map_or("x", activation));
        match &self.bias {
            Some(bias) => launch.define("BIASED", "x + bias_at(column)").bind("bias", bias),
            None => Ok(launch.define("BIASED", "x")),
        }
    }

    /// Adds the slices of products in `parts`, and finishes the sums.
    pub(in super::super) fn combine(&self, call: &Call<'a>, parts: &View<'a>, plan: &Plan) -> Result<()> {
        let tiling = plan.tiling;
        let (a, b) = self.attributes();
        let body = Body {
            rows: tiling.rows,
            columns: tiling.columns,
            slices: plan.slices as u32,
            put_rows: tiling.put_rows,
            put_columns: tiling.put_columns,
            scale: self.scale,
            a,
            b,
        };
        let launch = self.define(call.launch(&COMBINE).bind("part", parts)?)?;
        let launch = match &self.before {
            Some(before) => launch.define("PUT_BEFORE", "before_put(i, before);").bind("before", before)?,
            None => launch.define("PUT_BEFORE", ""),
        };
        launch.body(&body).map(&call.outputs[0])
    }

    /// The numbers that the activation takes.
    pub(super) fn attributes(&self) -> (f32, f32) {
        match self.activation {
            Some(Unary::Leaky { slope }) => (slope, 0.0),
            Some(Unary::Clamp { low, high }) => (low, high),
            Some(Unary::Pow { exponent }) => (exponent, 0.0),
            Some(Unary::Affine { scale, offset }) => (scale, offset),
            Some(Unary::SoftThreshold { threshold }) => (threshold, 0.0),
            _ => (0.0, 0.0),
        }
    }
}

/// An activation of `x`, by the functions in `finish.wgsl`.
fn activation(unary: Unary) -> &'static str {
    match unary {
        Unary::Neg => "-x",
        Unary::Exp => "exp(x)",
        Unary::Log => "log(x)",
        Unary::Sqrt => "sqrt(x)",
        Unary::Rsqrt => "inverseSqrt(x)",
        Unary::Abs => "abs(x)",
        Unary::Sign => "sign_of(x)",
        Unary::Tanh => "tanh(x)",
        Unary::Sigmoid => "sigmoid(x)",
        Unary::Relu => "select(x, 0.0, x <= 0.0)",
        Unary::Relu6 => "clamped(x, 0.0, 6.0)",
        Unary::Leaky { .. } => "select(parameters.body.a * x, x, x > 0.0)",
        Unary::Gelu => "gelu(x)",
        Unary::Silu => "silu(x)",
        Unary::HardSwish => "hard_swish(x)",
        Unary::HardSigmoid => "hard_sigmoid(x)",
        Unary::Clamp { .. } => "clamped(x, parameters.body.a, parameters.body.b)",
        Unary::Pow { .. } => "pow(x, parameters.body.a)",
        Unary::Affine { .. } => "parameters.body.a * x + parameters.body.b",
        Unary::SoftThreshold { .. } => "x - clamped(x, -parameters.body.a, parameters.body.a)",
    }
}
