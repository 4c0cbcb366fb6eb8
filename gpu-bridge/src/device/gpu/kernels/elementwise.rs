//! Element by element.

use super::Call;
use crate::device::View;
use crate::device::gpu::pipeline::Kernel;
use crate::dtype::DType;
use crate::error::Result;
use crate::op::{Comparison, Op};

mod function;

pub(super) fn run(call: Call<'_>, op: &Op) -> Result<()> {
    let software = call.is_software();
    let inputs = call.inputs;
    match op {
        Op::Unary(op) => map(call, function::unary(*op, software), &[&inputs[0]]),
        Op::UnaryGradient(op) => map(call, function::unary_gradient(op.0, software), &[&inputs[0], &inputs[1]]),
        Op::UnaryGradientFromOutput(op) => {
            map(call, function::unary_gradient_from_output(op.0, software), &[&inputs[0], &inputs[1]])
        }
        Op::Binary(op) => map(call, function::binary(*op, software), &[&inputs[0], &inputs[1]]),
        Op::BinaryGradient(op) => {
            map(call, function::binary_gradient(op, software), &[&inputs[0], &inputs[1], &inputs[2]])
        }
        Op::Compare(op) => compare(call, op.0),
        Op::Select(_) => select(call),
        Op::Cast(_) => cast(call),
        _ => super::misplaced(op),
    }
}

static EACH: Kernel = Kernel {
    name: "each",
    sources: &[
        include_str!("math.wgsl"),
        include_str!("elementwise/function.wgsl"),
        include_str!("elementwise/apply.wgsl"),
        include_str!("elementwise/each.wgsl"),
    ],
};
static FOURS: Kernel = Kernel {
    name: "fours",
    sources: &[
        include_str!("math.wgsl"),
        include_str!("elementwise/function.wgsl"),
        include_str!("elementwise/apply.wgsl"),
        include_str!("elementwise/fours.wgsl"),
    ],
};
static COMPARE: Kernel = Kernel { name: "compare", sources: &[include_str!("elementwise/compare.wgsl")] };
static SELECT: Kernel = Kernel { name: "select", sources: &[include_str!("elementwise/select.wgsl")] };
static CAST: Kernel = Kernel { name: "cast", sources: &[include_str!("elementwise/cast.wgsl")] };

/// A function of up to three numbers `a`, `b` and `c` as an expression, and its attributes `p` and `q`.
#[derive(Clone, Copy, Debug)]
struct Function {
    text: &'static str,
    attributes: Attributes,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
struct Attributes {
    p: f32,
    q: f32,
}

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Applies a function of f32 to every element of its operands.
fn map<'a>(call: Call<'a>, function: Function, operands: &[&View<'a>]) -> Result<()> {
    let y = &call.outputs[0];
    let shape = &y.layout.shape;
    let in_fours = |view: &View<'_>| {
        view.layout.shape == *shape && view.layout.is_contiguous() && view.layout.offset.is_multiple_of(4)
    };
    let fours = shape.elements().is_multiple_of(4) && in_fours(y) && operands.iter().all(|view| in_fours(view));
    let mut launch = call.launch(if fours { &FOURS } else { &EACH }).define("FUNCTION", function.text);
    // What stands for an operand that is not there is not looked at.
    let texts = match operands.len() {
        1 => ["a_of(i), 0.0, 0.0", "let a = a_at4(i); let b = a; let c = a;"],
        2 => ["a_of(i), b_of(i), 0.0", "let a = a_at4(i); let b = b_at4(i); let c = a;"],
        _ => ["a_of(i), b_of(i), c_of(i)", "let a = a_at4(i); let b = b_at4(i); let c = c_at4(i);"],
    };
    launch = launch.define("OPERANDS", texts[usize::from(fours)]).body(&function.attributes);
    for (name, view) in NAMES.into_iter().zip(operands) {
        launch = if fours { launch.bind_fours(name, view)? } else { launch.walk(name, view, shape)? };
    }
    if fours { launch.bind_fours("y", y)?.threads(shape.elements() as u64 / 4) } else { launch.map(y) }
}

fn compare(call: Call<'_>, comparison: Comparison) -> Result<()> {
    let y = &call.outputs[0];
    let (sign, nan) = match comparison {
        Comparison::Eq => ("==", false),
        Comparison::Ne => ("!=", true),
        Comparison::Lt => ("<", false),
        Comparison::Le => ("<=", false),
        Comparison::Gt => (">", false),
        Comparison::Ge => (">=", false),
    };
    call.launch(&COMPARE)
        .define("SIGN", sign)
        .define("NAN", nan)
        .define("TYPE", super::wgsl_type(call.inputs[0].dtype))
        .walk("a", &call.inputs[0], &y.layout.shape)?
        .walk("b", &call.inputs[1], &y.layout.shape)?
        .map(y)
}

fn select(call: Call<'_>) -> Result<()> {
    let y = &call.outputs[0];
    call.launch(&SELECT)
        .define("TYPE", super::wgsl_type(y.dtype))
        .walk("condition", &call.inputs[0], &y.layout.shape)?
        .walk("a", &call.inputs[1], &y.layout.shape)?
        .walk("b", &call.inputs[2], &y.layout.shape)?
        .map(y)
}

fn cast(call: Call<'_>) -> Result<()> {
    let (x, y) = (&call.inputs[0], &call.outputs[0]);
    call.launch(&CAST)
        .define("FROM", super::wgsl_type(x.dtype))
        .define("TO", super::wgsl_type(y.dtype))
        .define("KEPT", if y.dtype == DType::U8 { "min(x, 255u)" } else { "x" })
        .walk("x", x, &y.layout.shape)?
        .map(y)
}
