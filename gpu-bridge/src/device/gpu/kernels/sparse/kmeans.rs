//! The two steps of k-means.

use crate::device::gpu::kernels::Call;
use crate::device::gpu::kernels::layout::{Cut, Scratch, zero};
use crate::device::gpu::pipeline::Kernel;
use crate::dtype::DType;
use crate::error::Result;
use crate::op::KMeansAccumulate;

const EXACT: &str = include_str!("exact.wgsl");
static ASSIGN: Kernel = Kernel { name: "k-means-assign", sources: &[include_str!("assign.wgsl")] };
static ACCUMULATE: Kernel = Kernel { name: "k-means-accumulate", sources: &[EXACT, include_str!("accumulate.wgsl")] };
static COMBINE: Kernel = Kernel { name: "k-means-combine", sources: &[EXACT, include_str!("combine.wgsl")] };
static COUNT: Kernel = Kernel { name: "k-means-count", sources: &[include_str!("count.wgsl")] };

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct AssignBody {
    dimensions: u32,
    centroids: u32,
    points: u32,
    /// The first centroid of a launch, and how many times four of them it goes through.
    first: u32,
    quads: u32,
}

/// Points of a thread, and how many centroids it compares them with at a time.
const POINTS: u64 = 4;
const QUAD: usize = 4;

pub(super) fn assign(call: Call<'_>) -> Result<()> {
    let (points, centroids) = (&call.inputs[0], &call.inputs[1]);
    let [count, dimensions] = [points.layout.shape[0], points.layout.shape[1]];
    let clusters = centroids.layout.shape[0];
    if dimensions == 0 {
        // All centroids are where the points are. They take no memory, so there may be any number of both.
        zero(&call, &call.outputs[0])?;
        return zero(&call, &call.outputs[1]);
    }
    let lanes = if call.is_software() { 16 } else { 64 };
    // A thread goes through all centroids, so these are cut where they are many: each launch goes on from what the one
    // before it found. With four of them it goes through all dimensions, and through the points that it compares.
    let quads = (call.longest_loop() / (2 * dimensions + 32)).max(1);
    for first in (0..clusters).step_by(quads * QUAD) {
        let some = (clusters - first).min(quads * QUAD);
        call.launch(&ASSIGN)
            .lanes(lanes)
            .bind("points", points)?
            .bind("centroids", centroids)?
            .bind("indices", &call.outputs[0])?
            .bind("distances", &call.outputs[1])?
            .body(&AssignBody {
                dimensions: dimensions as u32,
                centroids: clusters as u32,
                points: count as u32,
                first: first as u32,
                quads: some.div_ceil(QUAD) as u32,
            })
            .flops((count as u64).saturating_mul((some * dimensions) as u64).saturating_mul(3))
            .looping(2 * dimensions as u64, "coordinates")?
            .groups((count as u64).div_ceil(POINTS * u64::from(lanes)))?;
    }
    Ok(())
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct AccumulateBody {
    /// A zero that compilers know nothing of.
    nought: u32,
    points: u32,
    clusters: u32,
    dimensions: u32,
    grain: u32,
    slices: u32,
    chunks: u32,
    /// Where in each chunk a launch begins, and how many points of the chunk it goes through at most.
    skipped: u32,
    most: u32,
}

/// Sums with twice the digits, so that the millionth point of a cluster counts as much as the first. Cut as a scatter
/// is; each thread has one coordinate, or the number of points.
pub(super) fn accumulate(call: Call<'_>, op: &KMeansAccumulate) -> Result<()> {
    let (points, assignment) = (&call.inputs[0], &call.inputs[1]);
    let (sums, counts) = (&call.outputs[0], &call.outputs[1]);
    let [count, dimensions] = [points.layout.shape[0], points.layout.shape[1]];
    let row = dimensions + 1;
    let cut = Cut::new(&call, count, op.clusters, 2 * row);
    // Per chunk and cluster, as bits: each sum and what rounding took from it, then the number of points.
    let partial = Scratch::take(&call, (cut.chunks * op.clusters * row * 2).next_multiple_of(4), DType::U32)?;
    zero(&call, &partial.view())?;
    let body = AccumulateBody {
        nought: 0,
        points: count as u32,
        clusters: op.clusters as u32,
        dimensions: dimensions as u32,
        grain: cut.grain as u32,
        slices: cut.slices as u32,
        chunks: cut.chunks as u32,
        skipped: 0,
        most: call.longest_loop() as u32,
    };
    for skipped in cut.launches(&call) {
        let each = (cut.grain - skipped).min(call.longest_loop());
        call.launch(&ACCUMULATE)
            .lanes(if call.is_software() { 16 } else { 64 })
            .bind("points", points)?
            .bind("assignment", assignment)?
            .bind("partial_sums", &partial.view())?
            .checked("cluster", op.clusters, DType::U32)
            .body(&AccumulateBody { skipped: skipped as u32, ..body })
            .flops(((each * cut.chunks) as u64 * row as u64).saturating_mul(4 * cut.slices as u64))
            .threads((cut.chunks * cut.slices * row) as u64)?;
    }
    call.launch(&COMBINE).bind("partial_sums", &partial.view())?.body(&body).map(sums)?;
    call.launch(&COUNT).bind("partial_sums", &partial.view())?.body(&body).map(counts)
}
