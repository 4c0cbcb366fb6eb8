//! Whole arenas at once. All of it is bound by memory: each operand is read and written once, in one pass.

use super::Call;
use super::layout::is_fours;
use crate::device::View;
use crate::device::gpu::launch::Launch;
use crate::device::gpu::memory::GpuMemory;
use crate::device::gpu::pipeline::Kernel;
use crate::error::{Error, Result};
use crate::op::{Op, WeightedAverage};

mod optimizer;

pub(super) fn run(call: Call<'_>, op: &Op) -> Result<()> {
    match op {
        Op::Accumulate(op) => in_place(call, &["a"], "y + scale * a", op.scale),
        Op::Blend(op) => in_place(call, &["a"], "y + scale * (a - y)", op.amount),
        Op::AdmmGradient(op) => in_place(call, &["a", "b", "c"], "y + scale * (a - b + c)", op.rho),
        Op::AdmmDual(_) => in_place(call, &["a", "b"], "y + (a - b)", 0.0),
        Op::ClipNorm(op) => clip_norm(call, op.limit),
        Op::Optimize(op) => optimizer::optimize(call, op),
        Op::WeightedAverage(op) => weighted_average(call, op),
        _ => super::misplaced(op),
    }
}

static IN_PLACE: Kernel = Kernel { name: "in-place", sources: &[include_str!("arena/in_place.wgsl")] };
static CLIP_NORM: Kernel = Kernel { name: "clip-norm", sources: &[include_str!("arena/clip_norm.wgsl")] };
static WEIGHTED: Kernel = Kernel { name: "weighted-average", sources: &[include_str!("arena/weighted.wgsl")] };

/// A launch on operands of the same size, by fours if all of them allow.
struct Alike<'a> {
    launch: Launch<'a>,
    fours: bool,
    threads: u64,
}

impl<'a> Alike<'a> {
    fn new(call: &Call<'a>, kernel: &'static Kernel, mut views: impl Iterator<Item = View<'a>>) -> Self {
        let elements = call.outputs[0].layout.shape.elements() as u64;
        let fours = views.all(|view| is_fours(&view));
        let (ty, at, put) = if fours { ("vec4<f32>", "at4", "put4") } else { ("f32", "at", "put") };
        let launch = call.launch(kernel).define("TYPE", ty).define("AT", at).define("PUT", put);
        Self { launch, fours, threads: if fours { elements / 4 } else { elements } }
    }

    fn bind(mut self, name: &'static str, view: &View<'a>) -> Result<Self> {
        self.launch = if self.fours { self.launch.bind_fours(name, view) } else { self.launch.bind(name, view) }?;
        Ok(self)
    }

    fn with(mut self, change: impl FnOnce(Launch<'a>) -> Launch<'a>) -> Self {
        self.launch = change(self.launch);
        self
    }

    fn run(self) -> Result<()> {
        self.launch.threads(self.threads)
    }
}

/// A function of what is written and up to three that are read.
fn in_place(call: Call<'_>, names: &[&'static str], function: &'static str, scale: f32) -> Result<()> {
    let y = &call.outputs[0];
    let reads = match names.len() {
        1 => "let a = a_$AT(i);",
        2 => "let a = a_$AT(i); let b = b_$AT(i);",
        _ => "let a = a_$AT(i); let b = b_$AT(i); let c = c_$AT(i);",
    };
    let all = call.inputs.iter().chain([y]).copied();
    let mut launch = Alike::new(&call, &IN_PLACE, all)
        .with(|launch| launch.define("FUNCTION", function).define("READ_ALL", reads).body(&scale))
        .bind("y", y)?;
    for (name, view) in names.iter().zip(call.inputs) {
        launch = launch.bind(name, view)?;
    }
    launch.run()
}

fn clip_norm(call: Call<'_>, limit: f32) -> Result<()> {
    let (sum, y) = (&call.inputs[0], &call.outputs[0]);
    let launch = Alike::new(&call, &CLIP_NORM, [*y].into_iter()).bind("y", y)?;
    let sum = launch.launch.bind("sum", sum)?.body(&limit);
    sum.threads(launch.threads)
}

/// The most inputs that one launch reads.
const STREAMS: usize = 8;

const NAMES: [&str; STREAMS] = ["x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7"];

/// What a launch adds up, by the number of its inputs less one.
const SUMS: [&str; STREAMS] = [
    "sum += w[0] * x0_$AT(i);",
    "sum += w[0] * x0_$AT(i); sum += w[1] * x1_$AT(i);",
    "sum += w[0] * x0_$AT(i); sum += w[1] * x1_$AT(i); sum += w[2] * x2_$AT(i);",
    "sum += w[0] * x0_$AT(i); sum += w[1] * x1_$AT(i); sum += w[2] * x2_$AT(i); sum += w[3] * x3_$AT(i);",
    "sum += w[0] * x0_$AT(i); sum += w[1] * x1_$AT(i); sum += w[2] * x2_$AT(i); sum += w[3] * x3_$AT(i);
     sum += w[4] * x4_$AT(i);",
    "sum += w[0] * x0_$AT(i); sum += w[1] * x1_$AT(i); sum += w[2] * x2_$AT(i); sum += w[3] * x3_$AT(i);
     sum += w[4] * x4_$AT(i); sum += w[5] * x5_$AT(i);",
    "sum += w[0] * x0_$AT(i); sum += w[1] * x1_$AT(i); sum += w[2] * x2_$AT(i); sum += w[3] * x3_$AT(i);
     sum += w[4] * x4_$AT(i); sum += w[5] * x5_$AT(i); sum += w[6] * x6_$AT(i);",
    "sum += w[0] * x0_$AT(i); sum += w[1] * x1_$AT(i); sum += w[2] * x2_$AT(i); sum += w[3] * x3_$AT(i);
     sum += w[4] * x4_$AT(i); sum += w[5] * x5_$AT(i); sum += w[6] * x6_$AT(i); sum += w[7] * x7_$AT(i);",
];

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct WeightedBody {
    /// Whether what is there already counts.
    goes_on: u32,
    weights: [f32; STREAMS],
}

/// Some inputs at a time, in order, into the result.
fn weighted_average(call: Call<'_>, op: &WeightedAverage) -> Result<()> {
    let y = &call.outputs[0];
    let streams = streams(&call)?;
    for (part, (inputs, weights)) in call.inputs.chunks(streams).zip(op.weights.chunks(streams)).enumerate() {
        let mut body = WeightedBody { goes_on: u32::from(part > 0), weights: [0.0; STREAMS] };
        body.weights[..weights.len()].copy_from_slice(weights);
        let all = inputs.iter().chain([y]).copied();
        let mut launch = Alike::new(&call, &WEIGHTED, all)
            .with(|launch| launch.define("ADD_ALL", SUMS[inputs.len() - 1]).body(&body))
            .bind("y", y)?;
        for (name, input) in NAMES.iter().zip(inputs) {
            launch = launch.bind(name, input)?;
        }
        launch.run()?;
    }
    Ok(())
}

/// How many inputs one launch can read: a large one takes several bindings.
fn streams(call: &Call<'_>) -> Result<usize> {
    let live = call.core.live();
    let most = (live.limits.max_storage_buffers_per_shader_stage as usize - 1).min(16);
    let mut pieces = 1;
    for view in call.inputs.iter().chain(call.outputs) {
        let bytes = GpuMemory::of(view.memory, call.op)?.region().bytes;
        pieces = pieces.max(bytes.div_ceil(live.binding_bytes()) as usize);
    }
    match (most / pieces).saturating_sub(1) {
        0 => Err(Error::TooLarge { reason: format!("`{}`: one input takes {pieces} bindings", call.op) }),
        streams => Ok(streams.min(STREAMS)),
    }
}
