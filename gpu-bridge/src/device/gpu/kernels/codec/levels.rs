//! Elements as levels of their bucket, packed: a group of threads finds the scale of a bucket, a thread makes a word.

use super::super::Call;
use super::bits;
use crate::device::gpu::pipeline::{Kernel, LANES};
use crate::error::Result;
use crate::op::codec::levels::levels;
use crate::op::{Dequantize, Quantize};

static SCALES: Kernel = Kernel { name: "quantize-scales", sources: &[include_str!("scales.wgsl")] };
static QUANTIZE: Kernel =
    Kernel { name: "quantize", sources: &[include_str!("../random/philox.wgsl"), include_str!("quantize.wgsl")] };
static DEQUANTIZE: Kernel = Kernel { name: "dequantize", sources: &[include_str!("dequantize.wgsl")] };

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Buckets {
    elements: u32,
    bucket: u32,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct QuantizeBody {
    seed: [u32; 2],
    offset: [u32; 2],
    zero: u32,
    elements: u32,
    bucket: u32,
}

pub(super) fn quantize(call: Call<'_>, op: &Quantize) -> Result<()> {
    let (x, scales, codes) = (&call.inputs[0], &call.outputs[0], &call.outputs[1]);
    let (elements, bucket) = (x.layout.shape.elements() as u32, op.bucket as u32);
    call.launch(&SCALES)
        .bind("x", &bits(x))?
        .bind("y", scales)?
        .body(&Buckets { elements, bucket })
        .looping(u64::from(bucket.min(elements).div_ceil(LANES)), "elements of a bucket")?
        .groups(scales.layout.shape.elements() as u64)?;
    let halves = |wide: u64| [wide as u32, (wide >> 32) as u32];
    let (seed, offset) = (halves(op.stream.seed), halves(op.stream.offset));
    call.launch(&QUANTIZE)
        .define("BITS", op.bits)
        .define("LEVELS", levels(op.bits))
        .bind("x", x)?
        .bind("scales", scales)?
        .body(&QuantizeBody { seed, offset, zero: 0, elements, bucket })
        .flops(100 * u64::from(elements))
        .map(codes)
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct DequantizeBody {
    bucket: u32,
    /// What a scale is multiplied with to be a step between levels.
    inverse: f32,
}

pub(super) fn dequantize(call: Call<'_>, op: &Dequantize) -> Result<()> {
    let (scales, codes, y) = (&call.inputs[0], &call.inputs[1], &call.outputs[0]);
    call.launch(&DEQUANTIZE)
        .define("BITS", op.bits)
        .define("LEVELS", levels(op.bits))
        .bind("scales", &bits(scales))?
        .bind("codes", codes)?
        .body(&DequantizeBody { bucket: op.bucket as u32, inverse: 1.0 / levels(op.bits) as f32 })
        .map(y)
}
