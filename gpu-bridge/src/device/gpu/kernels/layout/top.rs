//! The largest elements of rows.
//!
//! A row is cut into segments, of each of which the largest are picked; what was picked is a shorter row, and so on until
//! one segment is left. To pick, either a thread per element counts how many come before it, or (few of them, on a
//! software GPU) a thread per segment keeps a sorted list. Where hardly any would be left out, the row is sorted instead.

use super::super::Call;
use super::rows::check;
use super::{Scratch, zero};
use crate::device::View;
use crate::device::gpu::pipeline::Kernel;
use crate::dtype::DType;
use crate::error::Result;
use crate::op::{TopK, TopKGradient};
use crate::shape::{Layout, Shape};

const ORDER: &str = include_str!("top_order.wgsl");
static RANK: Kernel = Kernel { name: "top-k-rank", sources: &[ORDER, include_str!("top_rank.wgsl")] };
static INSERT: Kernel = Kernel { name: "top-k-insert", sources: &[ORDER, include_str!("top_insert.wgsl")] };
static SORT: Kernel = Kernel { name: "top-k-sort", sources: &[ORDER, include_str!("top_sort.wgsl")] };
static VALUES: Kernel = Kernel { name: "top-k-values", sources: &[include_str!("top_values.wgsl")] };
static GRADIENT: Kernel = Kernel { name: "top-k-gradient", sources: &[include_str!("top_gradient.wgsl")] };
static SCATTER: Kernel = Kernel { name: "top-k-scatter", sources: &[include_str!("top_scatter.wgsl")] };

/// The most that are kept in a sorted list.
const FEW: usize = 128;

/// A segment in which a thread per element counts.
const SEGMENT: std::ops::RangeInclusive<usize> = 256..=2048;

/// Up to this many indices, each element of a gradient looks through all of its row.
const LOOKED_THROUGH: usize = 64;

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Body {
    /// Elements of a row of `x`.
    size: u32,
    /// Elements of a row of what is picked from, and of a segment of it.
    length: u32,
    segment: u32,
    segments: u32,
    /// How many are picked of a segment.
    picked: u32,
}

pub(super) fn top_k(call: Call<'_>, op: &TopK) -> Result<()> {
    let (x, values, indices) = (&call.inputs[0], &call.outputs[0], &call.outputs[1]);
    let (size, count) = (x.layout.shape.from_end(0), op.count);
    let rows = x.layout.shape.elements() / size.max(1);
    let segment = (4 * count).clamp(*SEGMENT.start(), *SEGMENT.end());
    if size > segment && 4 * count > segment {
        sort(&call, x, indices, rows, size, count)?;
    } else {
        pick(&call, x, indices, rows, size, count)?;
    }
    call.launch(&VALUES).bind("x", x)?.bind("indices", indices)?.body(&[size as u32, count as u32]).map(values)
}

fn pick(call: &Call<'_>, x: &View<'_>, indices: &View<'_>, rows: usize, size: usize, count: usize) -> Result<()> {
    let inserts = call.is_software() && count <= FEW;
    let mut from: Option<Scratch> = None;
    let mut length = size;
    loop {
        let segment = match inserts {
            // A list for each row will do where there are many, and rows are not too long: in a row that rises, each
            // element goes through all of the list.
            true if rows >= 16 => (call.longest_loop() / (count + 2)).max(2 * count),
            true => length.div_ceil(16).min(call.longest_loop() / (count + 2)).max(2 * count),
            false => (4 * count).clamp(*SEGMENT.start(), *SEGMENT.end()),
        };
        let segment = segment.min(length);
        let segments = length.div_ceil(segment);
        let into = match segments {
            1 => None,
            _ => Some(Scratch::take(call, rows * segments * count, DType::U32)?),
        };
        let body = Body {
            size: size as u32,
            length: length as u32,
            segment: segment as u32,
            segments: segments as u32,
            picked: count as u32,
        };
        // What is not used must be bound all the same.
        let none = Scratch::take(call, 1, DType::U32)?;
        let launch = call
            .launch(if inserts { &INSERT } else { &RANK })
            .define("RAW", from.is_none())
            .bind("x", x)?
            .bind("candidates", &from.as_ref().unwrap_or(&none).view())?
            .bind("y", &into.as_ref().map_or(*indices, Scratch::view))?
            .body(&body);
        let units = (rows * segments) as u64;
        if inserts {
            launch.flops(units * segment as u64 * (16 + 4 * count as u64)).lanes(16).threads(units)?;
        } else {
            let compared = units * (segment * segment) as u64;
            launch.flops(4 * compared).threads(units * segment as u64)?;
        }
        let Some(into) = into else { return Ok(()) };
        from = Some(into);
        length = segments * count;
    }
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct SortBody {
    size: u32,
    /// Elements of a row with what it is filled up with: a power of two.
    length: u32,
    /// The runs that are sorted by now are half as long.
    run: u32,
    /// How far apart what is compared lies. 0: the order is still to be written.
    distance: u32,
}

/// Bitonic: every pass puts pairs in order, none of which has to know of another.
fn sort(call: &Call<'_>, x: &View<'_>, indices: &View<'_>, rows: usize, size: usize, count: usize) -> Result<()> {
    let length = size.next_power_of_two();
    let order = Scratch::take(call, rows * length, DType::U32)?;
    let pass = |run: usize, distance: usize| {
        let body = SortBody { size: size as u32, length: length as u32, run: run as u32, distance: distance as u32 };
        let threads = if distance == 0 { rows * length } else { rows * length / 2 };
        call.launch(&SORT).bind("x", x)?.bind("order", &order.view())?.body(&body).threads(threads as u64)
    };
    pass(0, 0)?;
    let mut run = 2;
    while run <= length {
        let mut distance = run / 2;
        while distance > 0 {
            pass(run, distance)?;
            distance /= 2;
        }
        run *= 2;
    }
    let first = Layout::contiguous(Shape::new(&[rows, length])?);
    let first = first.slice(&[0, 0], &Shape::new(&[rows, count])?, &[1, 1]);
    let from = View { layout: &first, ..order.view() };
    let into = Layout::contiguous_at(first.shape, indices.layout.offset);
    let into = View { layout: &into, ..*indices };
    let launch = call.launch(&super::COPY).define("TYPE", "u32").define("AT", "of");
    launch.walk("x", &from, &first.shape)?.map(&into)
}

pub(super) fn top_k_gradient(call: Call<'_>, op: &TopKGradient) -> Result<()> {
    let (dy, indices, dx) = (&call.inputs[0], &call.inputs[1], &call.outputs[0]);
    if dx.layout.shape.elements() == 0 {
        return check(&call, indices, "index", op.size);
    }
    let count = dy.layout.shape.from_end(0);
    if count <= LOOKED_THROUGH {
        let launch = call.launch(&GRADIENT).bind("dy", dy)?.bind("indices", indices)?;
        let launch = launch.checked("index", op.size, indices.dtype).body(&[op.size as u32, count as u32]);
        return launch.flops((dx.layout.shape.elements() * count * 2) as u64).map(dx);
    }
    zero(&call, dx)?;
    // A thread goes through a row in order; a long one takes several launches.
    let rows = dx.layout.shape.elements() / op.size;
    for skipped in (0..count).step_by(call.longest_loop()) {
        let most = (count - skipped).min(call.longest_loop());
        call.launch(&SCATTER)
            .bind("dy", dy)?
            .bind("indices", indices)?
            .bind("dx", dx)?
            .checked("index", op.size, indices.dtype)
            .body(&[op.size, count, skipped, most].map(|size| size as u32))
            .flops(16 * (rows * most) as u64)
            .threads(rows as u64)?;
    }
    Ok(())
}
