//! The transforms, eight at a time: interpolation at 0, 1, -1, 2, -2 and infinity.
//!
//! Each is a small matrix applied to the columns of a square and then to its rows.

use crate::device::cpu::eight::{EIGHT, Eight};

/// Products per square.
pub(super) const POINTS: usize = 36;

#[inline(always)]
fn combine<const N: usize>(terms: [(f32, &Eight); N]) -> Eight {
    std::array::from_fn(|lane| {
        let mut sum = terms[0].0 * terms[0].1[lane];
        for (factor, values) in &terms[1..] {
            sum += factor * values[lane];
        }
        sum
    })
}

/// Six pixels in a line to six points.
#[inline(always)]
fn pixel_line(d: [&Eight; 6]) -> [Eight; 6] {
    let even = combine([(-4.0, d[2]), (1.0, d[4])]);
    let odd = combine([(-4.0, d[1]), (1.0, d[3])]);
    let even_2 = combine([(-1.0, d[2]), (1.0, d[4])]);
    let odd_2 = combine([(-2.0, d[1]), (2.0, d[3])]);
    [
        combine([(4.0, d[0]), (-5.0, d[2]), (1.0, d[4])]),
        combine([(1.0, &even), (1.0, &odd)]),
        combine([(1.0, &even), (-1.0, &odd)]),
        combine([(1.0, &even_2), (1.0, &odd_2)]),
        combine([(1.0, &even_2), (-1.0, &odd_2)]),
        combine([(4.0, d[1]), (-5.0, d[3]), (1.0, d[5])]),
    ]
}

/// Three taps in a line to six points.
#[inline(always)]
fn tap_line(g: [&Eight; 3]) -> [Eight; 6] {
    let outer = combine([(-1.0 / 6.0, g[0]), (-1.0 / 6.0, g[2])]);
    let wide = combine([(1.0 / 24.0, g[0]), (1.0 / 6.0, g[2])]);
    [
        combine([(0.25, g[0])]),
        combine([(1.0, &outer), (-1.0 / 6.0, g[1])]),
        combine([(1.0, &outer), (1.0 / 6.0, g[1])]),
        combine([(1.0, &wide), (1.0 / 12.0, g[1])]),
        combine([(1.0, &wide), (-1.0 / 12.0, g[1])]),
        *g[2],
    ]
}

/// Four gradients in a line to six points.
#[inline(always)]
fn gradient_line(g: [&Eight; 4]) -> [Eight; 6] {
    let even = combine([(-1.0 / 6.0, g[0]), (-1.0 / 6.0, g[2])]);
    let odd = combine([(-1.0 / 6.0, g[1]), (-1.0 / 6.0, g[3])]);
    let even_2 = combine([(1.0 / 24.0, g[0]), (1.0 / 6.0, g[2])]);
    let odd_2 = combine([(1.0 / 12.0, g[1]), (1.0 / 3.0, g[3])]);
    [
        combine([(0.25, g[0])]),
        combine([(1.0, &even), (1.0, &odd)]),
        combine([(1.0, &even), (-1.0, &odd)]),
        combine([(1.0, &even_2), (1.0, &odd_2)]),
        combine([(1.0, &even_2), (-1.0, &odd_2)]),
        *g[3],
    ]
}

/// Six points to four outputs in a line.
#[inline(always)]
fn output_line(m: [&Eight; 6]) -> [Eight; 4] {
    let (sum, difference) = (combine([(1.0, m[1]), (1.0, m[2])]), combine([(1.0, m[1]), (-1.0, m[2])]));
    let (sum_2, difference_2) = (combine([(1.0, m[3]), (1.0, m[4])]), combine([(1.0, m[3]), (-1.0, m[4])]));
    [
        combine([(1.0, m[0]), (1.0, &sum), (1.0, &sum_2)]),
        combine([(1.0, &difference), (2.0, &difference_2)]),
        combine([(1.0, &sum), (4.0, &sum_2)]),
        combine([(1.0, &difference), (8.0, &difference_2), (1.0, m[5])]),
    ]
}

/// Six points to three taps in a line.
#[inline(always)]
fn weight_line(m: [&Eight; 6]) -> [Eight; 3] {
    let (sum, difference) = (combine([(1.0, m[1]), (1.0, m[2])]), combine([(1.0, m[1]), (-1.0, m[2])]));
    let (sum_2, difference_2) = (combine([(1.0, m[3]), (1.0, m[4])]), combine([(1.0, m[3]), (-1.0, m[4])]));
    [
        combine([(1.0, m[0]), (1.0, &sum), (1.0, &sum_2)]),
        combine([(1.0, &difference), (2.0, &difference_2)]),
        combine([(1.0, &sum), (4.0, &sum_2), (1.0, m[5])]),
    ]
}

/// Applies a line's transform to the columns of an `N x N` square, then to the rows of what came out.
#[inline(always)]
fn both_ways<const N: usize, const M: usize, const IN: usize, const OUT: usize>(
    square: &[Eight; IN],
    line: impl Fn([&Eight; N]) -> [Eight; M],
) -> [Eight; OUT] {
    let mut half = [[[0.0; EIGHT]; N]; M];
    for column in 0..N {
        let transformed = line(std::array::from_fn(|row| &square[row * N + column]));
        for (row, values) in transformed.into_iter().enumerate() {
            half[row][column] = values;
        }
    }
    let mut result = [[0.0; EIGHT]; OUT];
    for (row, half) in half.iter().enumerate() {
        let transformed = line(std::array::from_fn(|column| &half[column]));
        result[row * M..(row + 1) * M].copy_from_slice(&transformed);
    }
    result
}

#[inline(always)]
pub(super) fn pixels(square: &[Eight; 36]) -> [Eight; POINTS] {
    both_ways(square, pixel_line)
}

#[inline(always)]
pub(super) fn kernel(taps: &[Eight; 9]) -> [Eight; POINTS] {
    both_ways(taps, tap_line)
}

#[inline(always)]
pub(super) fn square(gradients: &[Eight; 16]) -> [Eight; POINTS] {
    both_ways(gradients, gradient_line)
}

#[inline(always)]
pub(super) fn outputs(points: &[Eight; POINTS]) -> [Eight; 16] {
    both_ways(points, output_line)
}

#[inline(always)]
pub(super) fn taps(points: &[Eight; POINTS]) -> [Eight; 9] {
    both_ways(points, weight_line)
}
