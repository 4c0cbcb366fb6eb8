//! Sums and maxima of slices, in vectors and accurate.
//!
//! To be called inside [`super::simd::vectorized`]. A sum runs in several lanes, and in f64 from block to block, so its
//! error does not grow with the length.

use crate::error::Result;
use crate::run::{PIECE, Pace};

/// Partial sums that run side by side: the latency of one addition is hidden behind the others.
const LANES: usize = 16;

/// Elements that are summed in f32.
const BLOCK: usize = 4096;

/// The sums of what `f` gives for the elements of slices of one length.
#[inline(always)]
pub(super) fn sums<const M: usize, const K: usize>(
    slices: [&[f32]; M],
    f: impl Fn([f32; M]) -> [f32; K] + Copy,
) -> [f64; K] {
    let len = slices[0].len();
    if len <= BLOCK {
        return block_sums(slices, f).map(f64::from);
    }
    let mut totals = [0.0; K];
    for start in (0..len).step_by(BLOCK) {
        let end = len.min(start + BLOCK);
        let block = block_sums(slices.map(|slice| &slice[start..end]), f);
        totals.iter_mut().zip(block).for_each(|(total, sum)| *total += f64::from(sum));
    }
    totals
}

/// The sum of what `f` gives for each element.
#[inline(always)]
pub(super) fn sum(slice: &[f32], f: impl Fn(f32) -> f32 + Copy) -> f64 {
    sums([slice], |[x]| [f(x)])[0]
}

/// Like [`sums`], of slices that may be long: it looks up from its work.
#[inline(always)]
pub(super) fn paced_sums<const M: usize, const K: usize>(
    slices: [&[f32]; M],
    pace: &mut Pace<'_>,
    f: impl Fn([f32; M]) -> [f32; K] + Copy,
) -> Result<[f64; K]> {
    if slices[0].len() <= PIECE {
        return Ok(sums(slices, f));
    }
    let mut totals = [0.0; K];
    pace.pieces(slices[0].len(), |range| {
        let piece = sums(slices.map(|slice| &slice[range.clone()]), f);
        totals.iter_mut().zip(piece).for_each(|(total, sum)| *total += sum);
    })?;
    Ok(totals)
}

/// Like [`sum`], of a slice that may be long.
#[inline(always)]
pub(super) fn paced_sum(slice: &[f32], pace: &mut Pace<'_>, f: impl Fn(f32) -> f32 + Copy) -> Result<f64> {
    paced_sums([slice], pace, |[x]| [f(x)]).map(|[sum]| sum)
}

/// Like [`largest`], of a slice that may be long.
#[inline(always)]
pub(super) fn paced_largest(slice: &[f32], pace: &mut Pace<'_>) -> Result<f32> {
    let mut most = f32::NEG_INFINITY;
    pace.pieces(slice.len(), |range| most = larger(largest(&slice[range]), most))?;
    Ok(most)
}

#[inline(always)]
fn block_sums<const M: usize, const K: usize>(
    slices: [&[f32]; M],
    f: impl Fn([f32; M]) -> [f32; K] + Copy,
) -> [f32; K] {
    let chunks = slices.map(|slice| slice.as_chunks::<LANES>());
    let mut lanes = [[0.0_f32; LANES]; K];
    for index in 0..chunks[0].0.len() {
        let chunk: [&[f32; LANES]; M] = std::array::from_fn(|slice| &chunks[slice].0[index]);
        for lane in 0..LANES {
            let values = f(chunk.map(|chunk| chunk[lane]));
            for (lanes, value) in lanes.iter_mut().zip(values) {
                lanes[lane] += value;
            }
        }
    }
    // Where the compiler sees that several sums end alike, it pairs them from there up to the loop above, in vectors of
    // two. So it is not shown.
    let mut sums = std::hint::black_box(lanes).map(across);
    for index in 0..chunks[0].1.len() {
        let values = f(std::array::from_fn(|slice| chunks[slice].1[index]));
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
    }
    sums
}

/// The sum of all lanes.
#[inline(always)]
fn across(lanes: [f32; LANES]) -> f32 {
    let eight: [f32; 8] = std::array::from_fn(|lane| lanes[lane] + lanes[lane + 8]);
    let four: [f32; 4] = std::array::from_fn(|lane| eight[lane] + eight[lane + 4]);
    (four[0] + four[2]) + (four[1] + four[3])
}

/// The largest element, NaN passed over; `-inf` of nothing.
#[inline(always)]
pub(super) fn largest(slice: &[f32]) -> f32 {
    let (chunks, rest) = slice.as_chunks::<LANES>();
    let mut lanes = [f32::NEG_INFINITY; LANES];
    for chunk in chunks {
        for lane in 0..LANES {
            lanes[lane] = larger(chunk[lane], lanes[lane]);
        }
    }
    let lanes = lanes.into_iter().fold(f32::NEG_INFINITY, |most, x| larger(x, most));
    rest.iter().fold(lanes, |most, &x| larger(x, most))
}

#[inline(always)]
fn larger(x: f32, most: f32) -> f32 {
    if x > most { x } else { most }
}
