//! Rows added where their indices say, always in the same order.
//!
//! A thread has one column, one chunk of the items and one slice of the sums: it goes through the items of its chunk in
//! order and adds those that belong to its slice. Chunks have sums of their own, which are added in order at the end; they
//! pay where there are many more items than sums. Slices cost that each of their threads looks at all indices of a chunk,
//! and pay where there are more threads than columns.

use super::super::Call;
use super::{Scratch, zero};
use crate::device::View;
use crate::device::gpu::pipeline::Kernel;
use crate::dtype::DType;
use crate::error::Result;

static SCATTER: Kernel = Kernel { name: "scatter-add", sources: &[include_str!("scatter.wgsl")] };
static SUM_CHUNKS: Kernel = Kernel { name: "sum-chunks", sources: &[include_str!("sum_chunks.wgsl")] };

/// How the work is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Cut {
    /// Items of a chunk.
    pub(in super::super) grain: usize,
    pub(in super::super) chunks: usize,
    /// A power of two.
    pub(in super::super) slices: usize,
}

/// The fewest items of a chunk.
const GRAIN: usize = 64;

/// The most floats of the sums of all chunks.
const SUMS: usize = 1 << 24;

impl Cut {
    /// For so many items into `count` sums of `width` columns.
    pub(in super::super) fn new(call: &Call<'_>, items: usize, count: usize, width: usize) -> Self {
        let (threads, most_chunks, most_slices) = if call.is_software() { (64, 64, 16) } else { (1 << 14, 256, 256) };
        // Adding up the chunks' sums must not be more work than the items.
        let worth = (2 * items / count.max(1)).min(SUMS / (count * width).max(1));
        let chunks = (items / GRAIN).min(worth).min(threads / width.max(1)).clamp(1, most_chunks);
        let grain = items.div_ceil(chunks).max(1);
        let chunks = items.div_ceil(grain).max(1);
        let idle = threads / (chunks * width).max(1);
        let slices = idle.clamp(1, most_slices).min(count.max(1));
        Self { grain, chunks, slices: (slices + 1).next_power_of_two() / 2 }
    }

    /// Where in each chunk a launch begins. A thread goes through a chunk in order, so where chunks are long that takes
    /// several, and sums go on where the launch before left them.
    pub(in super::super) fn launches(&self, call: &Call<'_>) -> impl Iterator<Item = usize> + use<> {
        (0..self.grain).step_by(call.longest_loop())
    }
}

/// What is added.
#[derive(Clone, Copy)]
pub(in super::super) enum Source<'a> {
    /// The rows of a tensor, one for each index.
    Rows(View<'a>),
    /// For each index a value times the row of a tensor that a number (u32) names. The numbers are known to be in range.
    Scaled { values: View<'a>, rows: View<'a>, of: View<'a> },
}

/// Zeros of `count` rows of `width` columns, with each row added at its index.
pub(in super::super) struct Scatter<'a> {
    pub(in super::super) source: Source<'a>,
    pub(in super::super) index: View<'a>,
    /// What a wrong index is called.
    pub(in super::super) what: &'static str,
    pub(in super::super) count: usize,
    pub(in super::super) width: usize,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct ScatterBody {
    items: u32,
    count: u32,
    width: u32,
    grain: u32,
    slices: u32,
    /// Floats of a chunk's sums.
    size: u32,
    /// Where in each chunk a launch begins, and how many items of the chunk it goes through at most.
    skipped: u32,
    most: u32,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct SumBody {
    chunks: u32,
    size: u32,
}

impl Scatter<'_> {
    pub(in super::super) fn run(&self, call: &Call<'_>, y: &View<'_>) -> Result<()> {
        let cut = Cut::new(call, self.index.layout.shape.elements(), self.count, self.width);
        if cut.chunks == 1 {
            zero(call, y)?;
            return self.add(call, y, cut);
        }
        let size = self.count * self.width;
        let sums = Scratch::take(call, (cut.chunks * size).next_multiple_of(4), DType::F32)?;
        zero(call, &sums.view())?;
        self.add(call, &sums.view(), cut)?;
        call.launch(&SUM_CHUNKS)
            .bind("sums", &sums.view())?
            .body(&SumBody { chunks: cut.chunks as u32, size: size as u32 })
            .map(y)
    }

    fn add(&self, call: &Call<'_>, sums: &View<'_>, cut: Cut) -> Result<()> {
        cut.launches(call).try_for_each(|skipped| self.add_some(call, sums, cut, skipped))
    }

    /// Adds the items of each chunk from one of its items on, as many as a thread may go through.
    fn add_some(&self, call: &Call<'_>, sums: &View<'_>, cut: Cut, skipped: usize) -> Result<()> {
        let each = (cut.grain - skipped).min(call.longest_loop());
        let launch = call
            .launch(&SCATTER)
            .lanes(if call.is_software() { 16 } else { 64 })
            .bind("index", &self.index)?
            .bind("y", sums)?
            .checked(self.what, self.count, self.index.dtype)
            .body(&ScatterBody {
                items: self.index.layout.shape.elements() as u32,
                count: self.count as u32,
                width: self.width as u32,
                grain: cut.grain as u32,
                slices: cut.slices as u32,
                size: (self.count * self.width) as u32,
                skipped: skipped as u32,
                most: each as u32,
            })
            .flops(
                ((each * cut.chunks) as u64).saturating_mul(self.width as u64).saturating_mul(2 * cut.slices as u64),
            );
        let launch = match &self.source {
            Source::Rows(rows) => launch.define("SOURCE", "rows_at(item * width + column)").bind("rows", rows)?,
            Source::Scaled { values, rows, of } => launch
                .define("SOURCE", "values_at(item) * rows_at(of_at(item) * width + column)")
                .bind("values", values)?
                .bind("rows", rows)?
                .bind("of", of)?,
        };
        launch.threads((cut.chunks * cut.slices * self.width) as u64)
    }
}
