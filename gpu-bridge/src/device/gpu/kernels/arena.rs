//! Whole arenas at once. All of it is bound by memory: each operand is read and written once, in one pass.

use super::Call;
use super::layout::is_fours;
use crate::device::View;
use crate::device::gpu::launch::Launch;
use crate::device::gpu::pipeline::Kernel;
use crate::error::Result;
use crate::op::Op;

mod optimizer;

pub(super) fn run(call: Call<'_>, op: &Op) -> Result<()> {
    match op {
        Op::Accumulate(op) => in_place(call, &["a"], "y + scale * a", op.scale),
        Op::Blend(op) => in_place(call, &["a"], "y + scale * (a - y)", op.amount),
        Op::AdmmGradient(op) => in_place(call, &["a", "b", "c"], "y + scale * (a - b + c)", op.rho),
        Op::AdmmDual(_) => in_place(call, &["a", "b"], "y + (a - b)", 0.0),
        Op::ClipNorm(op) => clip_norm(call, op.limit),
        Op::Optimize(op) => optimizer::optimize(call, op),
        _ => super::misplaced(op),
    }
}

static IN_PLACE: Kernel = Kernel { name: "in-place", sources: &[include_str!("arena/in_place.wgsl")] };
static CLIP_NORM: Kernel = Kernel { name: "clip-norm", sources: &[include_str!("arena/clip_norm.wgsl")] };

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
