//! Tensors from nothing.

use super::Call;
use crate::device::gpu::pipeline::Kernel;
use crate::dtype::DType;
use crate::error::Result;
use crate::op::{Fill, Op};

pub(super) fn run(call: Call<'_>, op: &Op) -> Result<()> {
    match op {
        Op::Fill(op) => fill(call, op),
        _ => super::misplaced(op),
    }
}

static FILL: Kernel = Kernel { name: "fill", sources: &[include_str!("random/fill.wgsl")] };

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct FillBody {
    bits: u32,
}

fn fill(call: Call<'_>, op: &Fill) -> Result<()> {
    let y = &call.outputs[0];
    let bits = match op.dtype {
        DType::F32 => (op.value as f32).to_bits(),
        DType::F16 => half::f16::from_f64(op.value).to_f32().to_bits(),
        DType::U8 => u32::from(op.value as u8),
        DType::I32 => op.value as i32 as u32,
        DType::U32 => op.value as u32,
    };
    call.launch(&FILL).define("TYPE", super::wgsl_type(op.dtype)).body(&FillBody { bits }).map(y)
}
