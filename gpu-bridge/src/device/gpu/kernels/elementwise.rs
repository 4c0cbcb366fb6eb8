//! Element by element.

use super::Call;
use crate::device::gpu::pipeline::Kernel;
use crate::error::Result;
use crate::op::{Binary, Op, Unary};

pub(super) fn run(call: Call<'_>, op: &Op) -> Result<()> {
    match op {
        Op::Unary(op) => unary(call, *op),
        Op::Binary(op) => binary(call, *op),
        _ => super::misplaced(op),
    }
}

static UNARY: Kernel = Kernel { name: "unary", sources: &[include_str!("elementwise/unary.wgsl")] };
static BINARY: Kernel = Kernel { name: "binary", sources: &[include_str!("elementwise/binary.wgsl")] };

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct UnaryBody {
    a: f32,
    b: f32,
}

fn unary(call: Call<'_>, unary: Unary) -> Result<()> {
    let y = &call.outputs[0];
    let (function, a, b) = match unary {
        Unary::Neg => ("negative", 0.0, 0.0),
        Unary::Relu => ("relu", 0.0, 0.0),
        Unary::Affine { scale, offset } => ("affine", scale, offset),
        _ => return Err(crate::Error::Internal { op: call.op, reason: "no kernel".into() }),
    };
    call.launch(&UNARY)
        .define("FUNCTION", function)
        .walk("x", &call.inputs[0], &y.layout.shape)?
        .body(&UnaryBody { a, b })
        .map(y)
}

fn binary(call: Call<'_>, binary: Binary) -> Result<()> {
    let y = &call.outputs[0];
    let function = match binary {
        Binary::Add => "a + b",
        Binary::Sub => "a - b",
        Binary::Mul => "a * b",
        Binary::Div => "a / b",
        Binary::Maximum => "larger(a, b)",
        Binary::Minimum => "smaller(a, b)",
        Binary::Pow => "pow(a, b)",
    };
    call.launch(&BINARY)
        .define("FUNCTION", function)
        .walk("a", &call.inputs[0], &y.layout.shape)?
        .walk("b", &call.inputs[1], &y.layout.shape)?
        .map(y)
}
