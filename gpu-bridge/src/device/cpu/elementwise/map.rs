//! Functions applied to every element, of operands that lie in any way.
//!
//! The innermost axis decides which loop is run: over slices where elements lie side by side, with one value where an
//! operand is repeated, and element by element where they lie apart.
//!
//! The closures that are given here must be `#[inline(always)]`, and the loops are written out instead of being left to
//! adapters: what the compiler does not pull into the closure of [`vectorized`] does not become vector code. For the
//! same reason they hold their numbers by value: what lies behind a reference might be written by the loop.

use super::stream;
use super::walk::{Row, Walk};
use crate::device::cpu::memory::{Input, Output};
use crate::device::cpu::simd::vectorized;
use crate::dtype::{DType, Element};
use crate::error::Result;
use crate::run::Run;
use crate::shape::Layout;

/// How long an element takes, and so how many make a tile.
#[derive(Clone, Copy)]
pub(super) enum Work {
    /// No longer than to read and write it.
    Light,
    /// A polynomial or two.
    Heavy,
}

impl Work {
    fn tile(self) -> usize {
        match self {
            Self::Light => 1 << 15,
            Self::Heavy => 1 << 13,
        }
    }
}

/// `f` of each element.
pub(super) fn map<A: Element, Y: Element>(
    work: Work,
    [a]: [&Input<'_>; 1],
    output: &mut Output<'_>,
    run: &Run<'_>,
    f: impl Fn(A) -> Y + Copy + Sync,
) -> Result<()> {
    let walk = Walk::new(&output.layout.shape, [a.layout]);
    fill(&walk, output.elements()?, work, run, One { a: a.elements()?, f })
}

/// `f` of each pair.
pub(super) fn map2<A: Element, B: Element, Y: Element>(
    work: Work,
    [a, b]: [&Input<'_>; 2],
    output: &mut Output<'_>,
    run: &Run<'_>,
    f: impl Fn(A, B) -> Y + Copy + Sync,
) -> Result<()> {
    let walk = Walk::new(&output.layout.shape, [a.layout, b.layout]);
    fill(&walk, output.elements()?, work, run, Two { a: a.elements()?, b: b.elements()?, f })
}

/// `f` of each three.
pub(super) fn map3<A: Element, B: Element, C: Element, Y: Element>(
    work: Work,
    [a, b, c]: [&Input<'_>; 3],
    output: &mut Output<'_>,
    run: &Run<'_>,
    f: impl Fn(A, B, C) -> Y + Copy + Sync,
) -> Result<()> {
    let walk = Walk::new(&output.layout.shape, [a.layout, b.layout, c.layout]);
    fill(&walk, output.elements()?, work, run, Three { a: a.elements()?, b: b.elements()?, c: c.elements()?, f })
}

#[inline(always)]
fn keep(x: f32) -> f32 {
    x
}

/// The elements of a layout, one after the other.
pub(in crate::device::cpu) fn gather(x: &[f32], layout: &Layout, y: &mut [f32], run: &Run<'_>) -> Result<()> {
    fill(&Walk::new(&layout.shape, [layout]), y, Work::Light, run, One { a: x, f: keep })
}

/// Cuts a result into tiles and fills them.
fn fill<const N: usize, Y: Element>(
    walk: &Walk<N>,
    y: &mut [Y],
    work: Work,
    run: &Run<'_>,
    row: impl Row<N, Y> + Sync,
) -> Result<()> {
    let tile = work.tile();
    let streamed = Y::DTYPE == DType::F32 && size_of_val(y) >= stream::BYTES;
    run.chunks(y, tile, |index, y| {
        let start = index * tile;
        if streamed {
            vectorized(
                #[inline(always)]
                || fill_streamed(walk, start, y, &row),
            );
        } else {
            vectorized(
                #[inline(always)]
                || walk.fill(start, y, &row),
            );
        }
    })
}

#[inline(always)]
fn fill_streamed<const N: usize, Y: Element>(walk: &Walk<N>, start: usize, y: &mut [Y], row: &impl Row<N, Y>) {
    let mut buffer = [Y::zeroed(); stream::BLOCK];
    for (index, block) in y.chunks_mut(stream::BLOCK).enumerate() {
        let buffer = &mut buffer[..block.len()];
        walk.fill(start + index * stream::BLOCK, buffer, row);
        stream::store(block, buffer);
    }
    stream::fence();
}

struct One<'a, A, F> {
    a: &'a [A],
    f: F,
}

impl<A: Element, Y: Element, F: Fn(A) -> Y + Copy> Row<1, Y> for One<'_, A, F> {
    #[inline(always)]
    fn fill(&self, [a]: [usize; 1], [step]: [usize; 1], y: &mut [Y]) {
        let (f, a) = (self.f, &self.a[a..]);
        match step {
            1 => {
                for (y, &a) in y.iter_mut().zip(a) {
                    *y = f(a);
                }
            }
            0 => y.fill(f(a[0])),
            _ => {
                for (i, y) in y.iter_mut().enumerate() {
                    *y = f(a[i * step]);
                }
            }
        }
    }
}

struct Two<'a, A, B, F> {
    a: &'a [A],
    b: &'a [B],
    f: F,
}

impl<A: Element, B: Element, Y: Element, F: Fn(A, B) -> Y + Copy> Row<2, Y> for Two<'_, A, B, F> {
    #[inline(always)]
    fn fill(&self, [a, b]: [usize; 2], steps: [usize; 2], y: &mut [Y]) {
        let (f, a, b) = (self.f, &self.a[a..], &self.b[b..]);
        match steps {
            [1, 1] => {
                for ((y, &a), &b) in y.iter_mut().zip(a).zip(b) {
                    *y = f(a, b);
                }
            }
            [1, 0] => {
                let b = b[0];
                for (y, &a) in y.iter_mut().zip(a) {
                    *y = f(a, b);
                }
            }
            [0, 1] => {
                let a = a[0];
                for (y, &b) in y.iter_mut().zip(b) {
                    *y = f(a, b);
                }
            }
            [s, t] => {
                for (i, y) in y.iter_mut().enumerate() {
                    *y = f(a[i * s], b[i * t]);
                }
            }
        }
    }
}

struct Three<'a, A, B, C, F> {
    a: &'a [A],
    b: &'a [B],
    c: &'a [C],
    f: F,
}

impl<A: Element, B: Element, C: Element, Y: Element, F: Fn(A, B, C) -> Y + Copy> Row<3, Y> for Three<'_, A, B, C, F> {
    #[inline(always)]
    fn fill(&self, [a, b, c]: [usize; 3], steps: [usize; 3], y: &mut [Y]) {
        let (f, a, b, c) = (self.f, &self.a[a..], &self.b[b..], &self.c[c..]);
        match steps {
            [1, 1, 1] => {
                for (((y, &a), &b), &c) in y.iter_mut().zip(a).zip(b).zip(c) {
                    *y = f(a, b, c);
                }
            }
            [0, 1, 1] => {
                let a = a[0];
                for ((y, &b), &c) in y.iter_mut().zip(b).zip(c) {
                    *y = f(a, b, c);
                }
            }
            [1, 0, 1] => {
                let b = b[0];
                for ((y, &a), &c) in y.iter_mut().zip(a).zip(c) {
                    *y = f(a, b, c);
                }
            }
            [1, 1, 0] => {
                let c = c[0];
                for ((y, &a), &b) in y.iter_mut().zip(a).zip(b) {
                    *y = f(a, b, c);
                }
            }
            [s, t, u] => {
                for (i, y) in y.iter_mut().enumerate() {
                    *y = f(a[i * s], b[i * t], c[i * u]);
                }
            }
        }
    }
}
