//! The transforms, of sixteen channels at a time: interpolation at 0, 1, -1, 2, -2 and infinity.
//!
//! Each is a small matrix that is applied to the columns of a square and then to its rows. They are types, not functions:
//! a function that is passed on is not compiled for the vectors of whoever calls it.

use crate::device::cpu::sixteen::Sixteen;

/// Points of a line, and of a square.
pub(super) const LINE: usize = 6;
pub(super) const POINTS: usize = LINE * LINE;

/// A transform of `N` values in a line to `M`.
pub(super) trait Line<const N: usize, const M: usize> {
    /// To be `#[inline(always)]`.
    fn apply<V: Sixteen>(line: [V; N]) -> [V; M];
}

/// Six pixels to six points.
pub(super) struct Pixels;

impl Line<6, LINE> for Pixels {
    #[inline(always)]
    fn apply<V: Sixteen>(d: [V; 6]) -> [V; LINE] {
        let even = d[4].add_scaled(-4.0, d[2]);
        let odd = d[3].add_scaled(-4.0, d[1]);
        let wide = d[4].sub(d[2]);
        let steep = d[3].sub(d[1]);
        [
            d[4].add_scaled(-5.0, d[2]).add_scaled(4.0, d[0]),
            even.add(odd),
            even.sub(odd),
            wide.add_scaled(2.0, steep),
            wide.add_scaled(-2.0, steep),
            d[5].add_scaled(-5.0, d[3]).add_scaled(4.0, d[1]),
        ]
    }
}

/// Three taps to six points.
pub(super) struct Kernel;

impl Line<3, LINE> for Kernel {
    #[inline(always)]
    fn apply<V: Sixteen>(g: [V; 3]) -> [V; LINE] {
        let outer = g[0].add(g[2]).scale(-1.0 / 6.0);
        let wide = g[0].scale(1.0 / 24.0).add_scaled(1.0 / 6.0, g[2]);
        [
            g[0].scale(0.25),
            outer.add_scaled(-1.0 / 6.0, g[1]),
            outer.add_scaled(1.0 / 6.0, g[1]),
            wide.add_scaled(1.0 / 12.0, g[1]),
            wide.add_scaled(-1.0 / 12.0, g[1]),
            g[2],
        ]
    }
}

/// Four gradients to six points.
pub(super) struct Gradients;

impl Line<4, LINE> for Gradients {
    #[inline(always)]
    fn apply<V: Sixteen>(g: [V; 4]) -> [V; LINE] {
        let even = g[0].add(g[2]).scale(-1.0 / 6.0);
        let odd = g[1].add(g[3]);
        let wide = g[0].scale(1.0 / 24.0).add_scaled(1.0 / 6.0, g[2]);
        let steep = g[1].add_scaled(4.0, g[3]);
        [
            g[0].scale(0.25),
            even.add_scaled(-1.0 / 6.0, odd),
            even.add_scaled(1.0 / 6.0, odd),
            wide.add_scaled(1.0 / 12.0, steep),
            wide.add_scaled(-1.0 / 12.0, steep),
            g[3],
        ]
    }
}

/// Sums and differences of what is at 1 and -1, and at 2 and -2.
#[inline(always)]
fn both_sides<V: Sixteen>(m: [V; LINE]) -> [V; 4] {
    [m[1].add(m[2]), m[1].sub(m[2]), m[3].add(m[4]), m[3].sub(m[4])]
}

/// Six points to four outputs.
pub(super) struct Outputs;

impl Line<LINE, 4> for Outputs {
    #[inline(always)]
    fn apply<V: Sixteen>(m: [V; LINE]) -> [V; 4] {
        let [sum, difference, wide, steep] = both_sides(m);
        [
            m[0].add(sum).add(wide),
            difference.add_scaled(2.0, steep),
            sum.add_scaled(4.0, wide),
            m[5].add(difference).add_scaled(8.0, steep),
        ]
    }
}

/// Six points to three taps.
pub(super) struct Taps;

impl Line<LINE, 3> for Taps {
    #[inline(always)]
    fn apply<V: Sixteen>(m: [V; LINE]) -> [V; 3] {
        let [sum, difference, wide, steep] = both_sides(m);
        [m[0].add(sum).add(wide), difference.add_scaled(2.0, steep), m[5].add(sum).add_scaled(4.0, wide)]
    }
}

/// Applies a transform to the columns of a square, then to the rows of what came out.
#[inline(always)]
pub(super) fn both_ways<T: Line<N, M>, V: Sixteen, const N: usize, const M: usize>(square: [[V; N]; N]) -> [[V; M]; M] {
    let mut half = [[V::splat(0.0); N]; M];
    for column in 0..N {
        let mut line = [square[0][column]; N];
        for row in 1..N {
            line[row] = square[row][column];
        }
        let line = T::apply(line);
        for row in 0..M {
            half[row][column] = line[row];
        }
    }
    let mut result = [[V::splat(0.0); M]; M];
    for row in 0..M {
        result[row] = T::apply(half[row]);
    }
    result
}
