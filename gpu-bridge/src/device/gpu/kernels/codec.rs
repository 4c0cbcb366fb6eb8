//! What workers exchange in fewer bytes. The files of `op/codec` define every bit of it.

use super::Call;
use crate::device::View;
use crate::device::gpu::pipeline::Kernel;
use crate::dtype::DType;
use crate::error::Result;
use crate::op::{AddAt, Op};

mod choice;
mod levels;

static CAST: Kernel = Kernel { name: "cast-saturating", sources: &[include_str!("codec/cast.wgsl")] };
static ADD_AT: Kernel = Kernel { name: "add-at", sources: &[include_str!("codec/add_at.wgsl")] };

pub(super) fn run(call: Call<'_>, op: &Op) -> Result<()> {
    match op {
        Op::CastSaturating(_) => call.launch(&CAST).bind("x", &bits(&call.inputs[0]))?.map(&call.outputs[0]),
        Op::Quantize(op) => levels::quantize(call, op),
        Op::Dequantize(op) => levels::dequantize(call, op),
        Op::Largest(op) => choice::largest(call, op),
        Op::Significant(op) => choice::significant(call, op),
        Op::AddAt(op) => add_at(call, op),
        _ => super::misplaced(op),
    }
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct AddAtBody {
    elements: u32,
    scale: f32,
}

fn add_at(call: Call<'_>, op: &AddAt) -> Result<()> {
    let (values, indices, sums) = (&call.inputs[0], &call.inputs[1], &call.outputs[0]);
    let elements = sums.layout.shape.elements();
    call.launch(&ADD_AT)
        .bind("values", values)?
        .bind("indices", indices)?
        .bind("y", sums)?
        .checked(AddAt::NOT_RISING, elements, DType::U32)
        .body(&AddAtBody { elements: elements as u32, scale: op.scale })
        .threads(indices.layout.shape.elements() as u64)
}

/// The same view, its floats as bits: compilers may take it for granted that a float is a number.
fn bits<'a>(view: &View<'a>) -> View<'a> {
    View { dtype: DType::U32, ..*view }
}
