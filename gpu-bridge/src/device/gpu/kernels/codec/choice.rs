//! Which elements are worth sending.
//!
//! The largest are found as on the cores: by how often each digit of their sizes occurs, from the highest on. A thread
//! has a segment of the elements, counts into a row of its own, and in the end knows where in the result it begins; so
//! nothing is a matter of order, and no memory is written by two.

use super::super::Call;
use super::super::layout::Scratch;
use super::bits;
use crate::device::gpu::pipeline::Kernel;
use crate::dtype::DType;
use crate::error::Result;
use crate::op::{Largest, Significant};

const SEGMENT: &str = include_str!("segment.wgsl");
static COUNT: Kernel = Kernel { name: "largest-count", sources: &[SEGMENT, include_str!("count.wgsl")] };
static TOTALS: Kernel = Kernel { name: "largest-totals", sources: &[SEGMENT, include_str!("totals.wgsl")] };
static NEXT: Kernel = Kernel { name: "largest-next", sources: &[SEGMENT, include_str!("next.wgsl")] };
static ABOVE: Kernel = Kernel { name: "largest-above", sources: &[SEGMENT, include_str!("above.wgsl")] };
static BEFORE: Kernel = Kernel { name: "largest-before", sources: &[SEGMENT, include_str!("before.wgsl")] };
static PICK: Kernel = Kernel { name: "largest-pick", sources: &[SEGMENT, include_str!("pick.wgsl")] };
static KEEP: Kernel = Kernel { name: "significant", sources: &[include_str!("keep.wgsl")] };
static KEPT: Kernel = Kernel { name: "significant-count", sources: &[SEGMENT, include_str!("kept.wgsl")] };
static SUM: Kernel = Kernel { name: "significant-sum", sources: &[SEGMENT, include_str!("sum.wgsl")] };

/// The segments where there are enough elements, and the fewest elements of one where there are several.
const SEGMENTS: usize = 1024;
const SHORTEST: usize = 256;

/// Values of a digit, and where the digits of a size start, from the highest on.
const BINS: usize = 256;
const DIGITS: [u32; 4] = [24, 16, 8, 0];

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Body {
    elements: u32,
    segment: u32,
    segments: u32,
    /// Where the digit starts.
    shift: u32,
    /// How many are wanted.
    wanted: u32,
}

impl Body {
    fn new(call: &Call<'_>, elements: usize, wanted: usize) -> Self {
        // A thread goes through a segment after it has set its row of bins to zero.
        let longest = call.longest_loop() - BINS;
        let segment = elements.div_ceil(SEGMENTS).clamp(SHORTEST, longest);
        let segments = elements.div_ceil(segment) as u32;
        Self { elements: elements as u32, segment: segment as u32, segments, shift: 0, wanted: wanted as u32 }
    }
}

pub(super) fn largest(call: Call<'_>, op: &Largest) -> Result<()> {
    let (x, values, indices) = (bits(&call.inputs[0]), bits(&call.outputs[0]), &call.outputs[1]);
    let body = Body::new(&call, x.layout.shape.elements(), op.count);
    let segments = u64::from(body.segments);
    let bins = Scratch::take(&call, body.segments as usize * BINS, DType::U32)?;
    let totals = Scratch::take(&call, BINS, DType::U32)?;
    // The digits of the least element so far, and how many of those that have them are wanted.
    let least = Scratch::take(&call, 2, DType::U32)?;
    // By segment: how many are above the least, and how many are equal to it.
    let found = Scratch::take(&call, 2 * body.segments as usize, DType::U32)?;
    for shift in DIGITS {
        let body = Body { shift, ..body };
        call.launch(&COUNT)
            .bind("x", &x)?
            .bind("least", &least.view())?
            .bind("bins", &bins.view())?
            .body(&body)
            .flops(8 * u64::from(body.elements))
            .threads(segments)?;
        call.launch(&TOTALS).bind("bins", &bins.view())?.body(&body).map(&totals.view())?;
        call.launch(&NEXT).bind("totals", &totals.view())?.bind("least", &least.view())?.body(&body).threads(1)?;
        call.launch(&ABOVE)
            .bind("least", &least.view())?
            .bind("bins", &bins.view())?
            .bind("found", &found.view())?
            .body(&body)
            .threads(segments)?;
    }
    call.launch(&BEFORE).bind("found", &found.view())?.body(&body).threads(1)?;
    call.launch(&PICK)
        .bind("x", &x)?
        .bind("least", &least.view())?
        .bind("found", &found.view())?
        .bind("values", &values)?
        .bind("indices", indices)?
        .body(&body)
        .flops(8 * u64::from(body.elements))
        .threads(segments)
}

pub(super) fn significant(call: Call<'_>, op: &Significant) -> Result<()> {
    let (changes, weights) = (&call.inputs[0], &call.inputs[1]);
    let (kept, count) = (&call.outputs[0], &call.outputs[1]);
    let kept = bits(kept);
    call.launch(&KEEP).bind("changes", &bits(changes))?.bind("weights", weights)?.body(&op.threshold).map(&kept)?;
    let body = Body::new(&call, kept.layout.shape.elements(), 0);
    let counts = Scratch::take(&call, (body.segments as usize).max(1), DType::U32)?;
    call.launch(&KEPT)
        .bind("x", &kept)?
        .bind("counts", &counts.view())?
        .body(&body)
        .threads(u64::from(body.segments))?;
    call.launch(&SUM).bind("counts", &counts.view())?.bind("y", count)?.body(&body).threads(1)
}
