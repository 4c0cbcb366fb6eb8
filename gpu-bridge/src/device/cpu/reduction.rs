//! Sums, means and extremes.
//!
//! Whatever the axes, the elements are seen as `[kept, folded, kept, folded]`. If the last of these is not there, whole
//! rows are folded into one another ([`columns`]), else runs of elements into one ([`rows`]).

use smallvec::SmallVec;

use super::elementwise::gather;
use super::memory::{Input, Output};
use crate::error::Result;
use crate::op::{ArgReduce, Extreme, Reduce, Reducer};
use crate::run::Run;
use crate::shape::{Axes, Layout, Shape};

mod columns;
mod fold;
mod rows;

use fold::{Extremum, Fold, Position, Sum, SumSquares, Variance};

/// Elements per tile: about ten microseconds, and few enough for the second-level cache.
const TILE: usize = 1 << 16;

pub(super) fn reduce(op: &Reduce, inputs: &[Input<'_>], outputs: &mut [Output<'_>], run: &Run<'_>) -> Result<()> {
    let (x, y) = (&inputs[0], &mut outputs[0]);
    match op.reducer {
        Reducer::Sum => fold_axes(Sum { mean: false }, op.axes, x, y, run),
        Reducer::Mean => fold_axes(Sum { mean: true }, op.axes, x, y, run),
        Reducer::Max => fold_axes(Extremum::<true>, op.axes, x, y, run),
        Reducer::Min => fold_axes(Extremum::<false>, op.axes, x, y, run),
        Reducer::SumSquares => fold_axes(SumSquares, op.axes, x, y, run),
        Reducer::Variance { correction } => fold_axes(Variance { correction }, op.axes, x, y, run),
    }
}

pub(super) fn arg_reduce(
    op: &ArgReduce,
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
) -> Result<()> {
    let (x, y) = (&inputs[0], &mut outputs[0]);
    let axes = Axes::new(&[op.axis])?;
    match op.extreme {
        Extreme::Max => fold_axes(Position::<true>, axes, x, y, run),
        Extreme::Min => fold_axes(Position::<false>, axes, x, y, run),
    }
}

/// How many elements are kept and folded, from the outermost axes to the innermost.
#[derive(Clone, Copy)]
struct Sizes {
    kept_outer: usize,
    folded_outer: usize,
    kept_inner: usize,
    folded_inner: usize,
}

impl Sizes {
    /// None if kept and folded axes alternate more often than that.
    fn new(shape: &Shape, axes: Axes) -> Option<Self> {
        // Alternating from the innermost on: folded, kept, folded, kept.
        let mut sizes = [1; 4];
        let mut place = 0;
        for (axis, &size) in shape.iter().enumerate().rev().filter(|&(_, &size)| size != 1) {
            if axes.contains(axis) != (place % 2 == 0) {
                place += 1;
            }
            *sizes.get_mut(place)? *= size;
        }
        let [folded_inner, kept_inner, folded_outer, kept_outer] = sizes;
        Some(Self { kept_outer, folded_outer, kept_inner, folded_inner })
    }

    /// Elements that are folded into one.
    fn folded(&self) -> usize {
        self.folded_outer * self.folded_inner
    }
}

fn fold_axes<F: Fold>(fold: F, axes: Axes, input: &Input<'_>, output: &mut Output<'_>, run: &Run<'_>) -> Result<()> {
    let (x, y) = (input.floats()?, output.elements()?);
    if x.is_empty() {
        return run.fill(y, fold.finish(F::EMPTY, 0));
    }
    let shape = &input.layout.shape;
    match Sizes::new(shape, axes) {
        Some(sizes) if sizes.folded_inner == 1 && sizes.folded_outer > 1 => columns::fold(fold, x, &sizes, y, run),
        Some(sizes) => rows::fold(fold, x, &sizes, y, run),
        None => fold_scattered(fold, axes, shape, x, y, run),
    }
}

/// Folded elements that lie too far scattered are first copied side by side.
fn fold_scattered<F: Fold>(
    fold: F,
    axes: Axes,
    shape: &Shape,
    x: &[f32],
    y: &mut [F::Result],
    run: &Run<'_>,
) -> Result<()> {
    let mut order: SmallVec<[usize; 8]> = (0..shape.rank()).collect();
    order.sort_by_key(|&axis| axes.contains(axis));
    let layout = Layout::contiguous(*shape).permute(&order);
    let mut copy = run.scratch(x.len())?;
    gather(x, &layout, copy.floats(), run)?;
    let sizes = Sizes { kept_outer: 1, folded_outer: 1, kept_inner: y.len(), folded_inner: x.len() / y.len() };
    rows::fold(fold, copy.floats(), &sizes, y, run)
}
