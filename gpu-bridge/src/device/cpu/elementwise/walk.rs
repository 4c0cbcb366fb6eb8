//! The way through operands whose elements lie apart, row by row of the result.

use crate::shape::{Layout, MAX_RANK, Shape};

/// Where the elements of `N` operands lie that belong to the elements of a result, which lie one after the other.
///
/// Axes that every operand walks through in one stride are joined, so contiguous operands have one axis however many
/// their shape has, and an operand that is repeated over an axis has stride 0 there.
pub(super) struct Walk<const N: usize> {
    /// How many axes are left, at least one.
    axes: usize,
    /// Innermost first.
    sizes: [usize; MAX_RANK],
    strides: [[usize; N]; MAX_RANK],
}

impl<const N: usize> Walk<N> {
    /// The operands must broadcast to the shape.
    pub(super) fn new(shape: &Shape, operands: [&Layout; N]) -> Self {
        let mut walk = Self { axes: 0, sizes: [1; MAX_RANK], strides: [[0; N]; MAX_RANK] };
        for from_end in 0..shape.rank() {
            let size = shape.from_end(from_end);
            if size == 1 {
                continue;
            }
            let strides = operands.map(|operand| stride(operand, from_end));
            match walk.axes.checked_sub(1) {
                Some(last) if (0..N).all(|i| strides[i] == walk.strides[last][i] * walk.sizes[last]) => {
                    walk.sizes[last] *= size;
                }
                _ => {
                    walk.sizes[walk.axes] = size;
                    walk.strides[walk.axes] = strides;
                    walk.axes += 1;
                }
            }
        }
        walk.axes = walk.axes.max(1);
        walk
    }

    /// Fills part of a result, from its element `start` on, row by row.
    #[inline(always)]
    pub(super) fn fill<Y>(&self, start: usize, mut y: &mut [Y], row: &impl Row<N, Y>) {
        let mut at = self.place(start);
        loop {
            let count = y.len().min(self.sizes[0] - at.coordinates[0]);
            let (now, later) = y.split_at_mut(count);
            row.fill(at.offsets, self.strides[0], now);
            if later.is_empty() {
                return;
            }
            y = later;
            self.next_row(&mut at);
        }
    }

    #[inline(always)]
    fn place(&self, element: usize) -> Place<N> {
        let mut place = Place { coordinates: [0; MAX_RANK], offsets: [0; N] };
        let mut rest = element;
        let axes = place.coordinates.iter_mut().zip(&self.sizes).zip(&self.strides).take(self.axes);
        for ((coordinate, size), strides) in axes {
            if rest == 0 {
                break;
            }
            *coordinate = rest % size;
            rest /= size;
            for (offset, stride) in place.offsets.iter_mut().zip(strides) {
                *offset += *coordinate * stride;
            }
        }
        place
    }

    /// From anywhere in a row to the start of the next.
    #[inline(always)]
    fn next_row(&self, at: &mut Place<N>) {
        let mut step = -(at.coordinates[0] as isize);
        at.coordinates[0] = 0;
        for (axis, strides) in self.strides.iter().enumerate().take(self.axes) {
            at.advance(strides, step);
            if axis + 1 == self.axes {
                return;
            }
            // One further along the next axis, or back to its start and one further along the one after it.
            let coordinate = &mut at.coordinates[axis + 1];
            *coordinate += 1;
            if *coordinate < self.sizes[axis + 1] {
                at.advance(&self.strides[axis + 1], 1);
                return;
            }
            step = 1 - *coordinate as isize;
            *coordinate = 0;
        }
    }
}

/// Where a walk is.
struct Place<const N: usize> {
    coordinates: [usize; MAX_RANK],
    /// Of each operand's element.
    offsets: [usize; N],
}

impl<const N: usize> Place<N> {
    #[inline(always)]
    fn advance(&mut self, strides: &[usize; N], steps: isize) {
        for (offset, stride) in self.offsets.iter_mut().zip(strides) {
            *offset = offset.wrapping_add_signed(*stride as isize * steps);
        }
    }
}

/// How far an operand moves along an axis of the result; not at all where it is repeated.
fn stride(operand: &Layout, from_end: usize) -> usize {
    match operand.shape.rank().checked_sub(from_end + 1) {
        Some(axis) if operand.shape[axis] != 1 => operand.strides()[axis],
        _ => 0,
    }
}

/// Computes a run of elements of a result.
pub(super) trait Row<const N: usize, Y> {
    /// `offsets` say where each operand starts, `steps` how far apart its elements are.
    fn fill(&self, offsets: [usize; N], steps: [usize; N], y: &mut [Y]);
}
