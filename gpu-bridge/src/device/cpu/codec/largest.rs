//! The largest elements in size, by how often each digit of their sizes occurs.
//!
//! Three passes count digits, from the highest on: after each it is known which digit the least of the wanted elements
//! has there, and how many of those with that digit are wanted. Then its size is known, and how many equals of it are
//! taken. Counts are kept by tile, so a last pass knows where in the result each tile begins.

use super::{PIECE, two};
use crate::device::cpu::memory::{Input, Output};
use crate::device::cpu::simd::vectorized;
use crate::error::Result;
use crate::op::Largest;
use crate::op::codec::choice::size;
use crate::run::{Parts, Run};

/// Elements of a tile. There are about 64 tiles where that is between these.
const TILE: [usize; 2] = [1 << 15, 1 << 18];

/// Where the digits of a size start, from the highest on. Each reaches up to the one before.
const DIGITS: [u32; 3] = [20, 10, 0];

/// How many values the widest digit can have: a size has 31 bits.
const BINS: usize = 1 << 11;

/// What is known of the least element that is wanted.
#[derive(Clone, Copy)]
struct Least {
    /// The digits of its size down to the one that starts at `shift`; 31 where none is known yet.
    digits: u32,
    shift: u32,
    /// How many of the elements that have these digits are wanted.
    wanted: usize,
}

/// Words that are kept of a tile: how many of its elements are above the least one for certain, and how many may be equal
/// to it. In the end, how many of each lie in the tiles before.
const FOUND: usize = 2;

pub(in super::super) fn largest(
    op: &Largest,
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
) -> Result<()> {
    let x = inputs[0].floats()?;
    let [values, indices] = two(op, outputs)?;
    let (values, indices) = (Parts::new(values.floats()?), Parts::new(indices.elements::<u32>()?));
    let size = x.len().div_ceil(64).clamp(TILE[0], TILE[1]);
    let tiles = x.len().div_ceil(size);
    let of_tile = |tile: usize| &x[tile * size..x.len().min((tile + 1) * size)];
    let mut scratch = run.scratch(tiles * (BINS + FOUND))?;
    let (bins, found) = bytemuck::cast_slice_mut::<f32, u32>(scratch.floats()).split_at_mut(tiles * BINS);
    found.fill(0);
    let mut least = Least { digits: 0, shift: 31, wanted: op.count };
    for shift in DIGITS {
        run.chunks(bins, BINS, |tile, bins| {
            vectorized(
                #[inline(always)]
                || least.count(shift, of_tile(tile), bins),
            );
        })?;
        least = least.next(shift, bins, found);
    }
    sum_before(found);
    // Of the equals only the first are taken.
    let equals_before = |tile: usize| least.wanted.min(found[tile * FOUND + 1] as usize);
    let start = |tile: usize| match tile {
        tile if tile < tiles => found[tile * FOUND] as usize + equals_before(tile),
        _ => op.count,
    };
    run.each(tiles, |tile| {
        let range = start(tile)..start(tile + 1);
        // SAFETY: what a tile has lies before what the next one has.
        let (values, indices) = unsafe { (values.part(range.clone()), indices.part(range)) };
        let equals = least.wanted - equals_before(tile);
        vectorized(
            #[inline(always)]
            || pick(of_tile(tile), tile * size, least.digits, equals, values, indices),
        );
    })
}

impl Least {
    /// Counts by their next digit the elements that have the digits so far.
    #[inline(always)]
    fn count(self, shift: u32, x: &[f32], bins: &mut [u32]) {
        bins.fill(0);
        if self.shift == 31 {
            x.iter().for_each(|&x| bins[(size(x) >> shift) as usize] += 1);
            return;
        }
        let has_digits = |x: f32| size(x) >> self.shift == self.digits;
        let mask = (1 << (self.shift - shift)) - 1;
        for piece in x.chunks(PIECE) {
            if piece.iter().fold(false, |any, &x| any | has_digits(x)) {
                let counted = piece.iter().filter(|&&x| has_digits(x));
                counted.for_each(|&x| bins[(size(x) >> shift & mask) as usize] += 1);
            }
        }
    }

    /// Finds the next digit, and adds up what each tile has above it.
    fn next(self, shift: u32, bins: &[u32], found: &mut [u32]) -> Self {
        let mut totals = [0; BINS];
        for bins in bins.chunks_exact(BINS) {
            totals.iter_mut().zip(bins).for_each(|(total, &bin)| *total += bin as usize);
        }
        let (mut digit, mut wanted) = (BINS - 1, self.wanted);
        while digit > 0 && totals[digit] < wanted {
            wanted -= totals[digit];
            digit -= 1;
        }
        for (bins, found) in bins.chunks_exact(BINS).zip(found.chunks_exact_mut(FOUND)) {
            found[0] += bins[digit + 1..].iter().sum::<u32>();
            found[1] = bins[digit];
        }
        Self { digits: self.digits << (self.shift - shift) | digit as u32, shift, wanted }
    }
}

/// Makes what each tile has into what the tiles before it have.
fn sum_before(found: &mut [u32]) {
    let mut before = [0; FOUND];
    for tile in found.chunks_exact_mut(FOUND) {
        for (before, found) in before.iter_mut().zip(tile) {
            let own = std::mem::replace(found, *before);
            *before += own;
        }
    }
}

/// The elements above the least one, and some that are equal to it, in order.
#[inline(always)]
fn pick(x: &[f32], first: usize, least: u32, mut equals: usize, values: &mut [f32], indices: &mut [u32]) {
    let mut places = values.iter_mut().zip(indices);
    for (piece, x) in x.chunks(PIECE).enumerate() {
        if !x.iter().fold(false, |any, &x| any | (size(x) >= least)) {
            continue;
        }
        for (at, &x) in x.iter().enumerate() {
            let is_equal = size(x) == least;
            if size(x) < least || (is_equal && equals == 0) {
                continue;
            }
            equals -= usize::from(is_equal);
            let Some((value, index)) = places.next() else { return };
            (*value, *index) = (x, (first + piece * PIECE + at) as u32);
        }
    }
}
