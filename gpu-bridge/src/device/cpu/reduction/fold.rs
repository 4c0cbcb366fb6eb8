//! What elements are folded into.
//!
//! Few elements are folded in f32, in many lanes; what comes of them is merged in f64. So the error does not grow with the
//! number of elements: a sum is within 1e-6 of the sum of the sizes of its terms.

use crate::dtype::Element;

/// What is known of some elements: two numbers, which mean something to the fold.
pub(super) type State = [f64; 2];

/// Lanes that are folded side by side.
const LANES: usize = 32;

/// The most elements that are summed in f32.
const BLOCK: usize = 1 << 12;

pub(super) trait Fold: Copy + Sync {
    type Result: Element;

    /// Of nothing.
    const EMPTY: State = [0.0; 2];

    /// Of elements that lie side by side, at least one.
    fn row(self, x: &[f32]) -> State;

    /// Of runs of elements, one after the other.
    #[inline(always)]
    fn runs<'a>(self, runs: impl Iterator<Item = &'a [f32]>) -> State {
        let mut all: Option<(State, usize)> = None;
        for run in runs {
            let state = self.row(run);
            all = Some(match all {
                None => (state, run.len()),
                Some(all) => (self.merge(all, (state, run.len())), all.1 + run.len()),
            });
        }
        all.map_or(Self::EMPTY, |(state, _)| state)
    }

    /// Of each column of some rows, at least one: `x` holds all rows, `stride` apart, as wide as the states.
    fn columns(self, x: &[f32], stride: usize, first: &mut [f32], second: &mut [f32]);

    /// Of elements and those that follow them. Each state comes with how many there are.
    fn merge(self, a: (State, usize), b: (State, usize)) -> State;

    fn finish(self, state: State, count: usize) -> Self::Result;
}

/// Folds lane by lane, then the lanes by halves.
#[inline(always)]
fn lanes(x: &[f32], start: f32, step: impl Fn(f32, f32) -> f32, join: impl Fn(f32, f32) -> f32) -> f32 {
    if x.len() < LANES {
        let mut one = start;
        for &x in x {
            one = step(one, x);
        }
        return one;
    }
    let mut lanes = [start; LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane = step(*lane, x);
        }
    }
    for (lane, &x) in lanes.iter_mut().zip(rest) {
        *lane = step(*lane, x);
    }
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] = join(lanes[lane], lanes[lane + width]);
        }
        width /= 2;
    }
    lanes[0]
}

/// The sum of `term` over elements that lie side by side.
#[inline(always)]
fn total(x: &[f32], term: impl Fn(f32) -> f32) -> f64 {
    let mut total = 0.0;
    for block in x.chunks(BLOCK) {
        total += f64::from(lanes(block, 0.0, |sum, x| sum + term(x), |a, b| a + b));
    }
    total
}

/// The sum of `term` over runs of elements: short ones share their lanes.
#[inline(always)]
fn total_of_runs<'a>(runs: impl Iterator<Item = &'a [f32]>, term: impl Fn(f32) -> f32) -> f64 {
    let (mut all, mut sums, mut count) = (0.0, [0.0_f32; LANES], 0);
    for run in runs {
        if run.len() >= BLOCK {
            all += total(run, &term);
            continue;
        }
        if count + run.len() > BLOCK {
            all += sum_of_lanes(std::mem::replace(&mut sums, [0.0; LANES]));
            count = 0;
        }
        count += run.len();
        let (chunks, rest) = run.as_chunks::<LANES>();
        for chunk in chunks {
            sums.iter_mut().zip(chunk).for_each(|(sum, &x)| *sum += term(x));
        }
        sums.iter_mut().zip(rest).for_each(|(sum, &x)| *sum += term(x));
    }
    all + sum_of_lanes(sums)
}

#[inline(always)]
fn sum_of_lanes(mut sums: [f32; LANES]) -> f64 {
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            sums[lane] += sums[lane + width];
        }
        width /= 2;
    }
    f64::from(sums[0])
}

/// The sum of `term` over each column of rows that lie `stride` apart.
#[inline(always)]
fn column_totals(x: &[f32], stride: usize, totals: &mut [f32], term: impl Fn(f32) -> f32) {
    totals.fill(0.0);
    for row in x.chunks(stride) {
        for (total, &x) in totals.iter_mut().zip(row) {
            *total += term(x);
        }
    }
}

/// Sums, and what comes of them when they are divided by the count.
#[derive(Clone, Copy)]
pub(super) struct Sum {
    pub(super) mean: bool,
}

impl Fold for Sum {
    type Result = f32;

    #[inline(always)]
    fn row(self, x: &[f32]) -> State {
        [total(x, |x| x), 0.0]
    }

    #[inline(always)]
    fn runs<'a>(self, runs: impl Iterator<Item = &'a [f32]>) -> State {
        [total_of_runs(runs, |x| x), 0.0]
    }

    #[inline(always)]
    fn columns(self, x: &[f32], stride: usize, first: &mut [f32], _: &mut [f32]) {
        column_totals(x, stride, first, |x| x);
    }

    #[inline(always)]
    fn merge(self, (a, _): (State, usize), (b, _): (State, usize)) -> State {
        [a[0] + b[0], 0.0]
    }

    #[inline(always)]
    fn finish(self, state: State, count: usize) -> f32 {
        (if self.mean { state[0] / count as f64 } else { state[0] }) as f32
    }
}

#[derive(Clone, Copy)]
pub(super) struct SumSquares;

impl Fold for SumSquares {
    type Result = f32;

    #[inline(always)]
    fn row(self, x: &[f32]) -> State {
        [total(x, |x| x * x), 0.0]
    }

    #[inline(always)]
    fn runs<'a>(self, runs: impl Iterator<Item = &'a [f32]>) -> State {
        [total_of_runs(runs, |x| x * x), 0.0]
    }

    #[inline(always)]
    fn columns(self, x: &[f32], stride: usize, first: &mut [f32], _: &mut [f32]) {
        column_totals(x, stride, first, |x| x * x);
    }

    #[inline(always)]
    fn merge(self, (a, _): (State, usize), (b, _): (State, usize)) -> State {
        [a[0] + b[0], 0.0]
    }

    #[inline(always)]
    fn finish(self, state: State, _: usize) -> f32 {
        state[0] as f32
    }
}

/// The mean and the sum of squared distances from it: first the one, then the other, so that nothing cancels.
#[derive(Clone, Copy)]
pub(super) struct Variance {
    pub(super) correction: u32,
}

impl Fold for Variance {
    type Result = f32;

    #[inline(always)]
    fn row(self, x: &[f32]) -> State {
        let mean = total(x, |x| x) / x.len() as f64;
        // The distances are from the mean as an f32, and so is what is merged.
        let center = mean as f32;
        [f64::from(center), total(x, |x| (x - center) * (x - center))]
    }

    #[inline(always)]
    fn columns(self, x: &[f32], stride: usize, first: &mut [f32], second: &mut [f32]) {
        column_totals(x, stride, first, |x| x);
        let share = 1.0 / x.len().div_ceil(stride) as f32;
        for sum in &mut *first {
            *sum *= share;
        }
        second.fill(0.0);
        for row in x.chunks(stride) {
            for ((sum, &mean), &x) in second.iter_mut().zip(&*first).zip(row) {
                *sum += (x - mean) * (x - mean);
            }
        }
    }

    #[inline(always)]
    fn merge(self, (a, count_a): (State, usize), (b, count_b): (State, usize)) -> State {
        let (count_a, count_b) = (count_a as f64, count_b as f64);
        let share = count_b / (count_a + count_b);
        let distance = b[0] - a[0];
        [a[0] + distance * share, a[1] + b[1] + distance * distance * count_a * share]
    }

    #[inline(always)]
    fn finish(self, state: State, count: usize) -> f32 {
        match count.saturating_sub(self.correction as usize) {
            0 => f32::NAN,
            left => (state[1] / left as f64) as f32,
        }
    }
}

/// Whether a value is further out than another. NaN is furthest.
#[inline(always)]
fn beyond<const MAX: bool>(x: f32, than: f32) -> bool {
    (if MAX { x > than } else { x < than }) | (x.is_nan() & !than.is_nan())
}

#[inline(always)]
fn further<const MAX: bool>(a: f32, b: f32) -> f32 {
    // Shorter than `beyond`: it does not matter which of two NaN is taken.
    if (if MAX { b > a } else { b < a }) | b.is_nan() { b } else { a }
}

/// The largest, or the smallest.
#[derive(Clone, Copy)]
pub(super) struct Extremum<const MAX: bool>;

impl<const MAX: bool> Fold for Extremum<MAX> {
    type Result = f32;

    #[inline(always)]
    fn row(self, x: &[f32]) -> State {
        [f64::from(lanes(x, x[0], further::<MAX>, further::<MAX>)), 0.0]
    }

    #[inline(always)]
    fn columns(self, x: &[f32], stride: usize, first: &mut [f32], _: &mut [f32]) {
        first.copy_from_slice(&x[..first.len()]);
        for row in x.chunks(stride).skip(1) {
            for (best, &x) in first.iter_mut().zip(row) {
                *best = further::<MAX>(*best, x);
            }
        }
    }

    #[inline(always)]
    fn merge(self, (a, _): (State, usize), (b, _): (State, usize)) -> State {
        [f64::from(further::<MAX>(a[0] as f32, b[0] as f32)), 0.0]
    }

    #[inline(always)]
    fn finish(self, state: State, _: usize) -> f32 {
        state[0] as f32
    }
}

/// Where the largest, or the smallest, is first: the value, and how many elements are before it.
#[derive(Clone, Copy)]
pub(super) struct Position<const MAX: bool>;

impl<const MAX: bool> Fold for Position<MAX> {
    type Result = u32;

    #[inline(always)]
    fn row(self, x: &[f32]) -> State {
        let best = lanes(x, x[0], further::<MAX>, further::<MAX>);
        let at = if best.is_nan() { x.iter().position(|x| x.is_nan()) } else { x.iter().position(|&x| x == best) };
        [f64::from(best), at.unwrap_or(0) as f64]
    }

    #[inline(always)]
    fn columns(self, x: &[f32], stride: usize, first: &mut [f32], second: &mut [f32]) {
        first.copy_from_slice(&x[..first.len()]);
        second.fill(0.0);
        for (index, row) in x.chunks(stride).enumerate().skip(1) {
            for ((best, at), &x) in first.iter_mut().zip(&mut *second).zip(row) {
                let better = beyond::<MAX>(x, *best);
                *best = if better { x } else { *best };
                *at = if better { index as f32 } else { *at };
            }
        }
    }

    #[inline(always)]
    fn merge(self, (a, count_a): (State, usize), (b, _): (State, usize)) -> State {
        if beyond::<MAX>(b[0] as f32, a[0] as f32) { [b[0], b[1] + count_a as f64] } else { a }
    }

    #[inline(always)]
    fn finish(self, state: State, _: usize) -> u32 {
        state[1] as u32
    }
}
