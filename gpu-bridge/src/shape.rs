//! How large a tensor is and where its elements lie.
//!
//! A [`Shape`] is a checked list of sizes: its rank and its number of elements are within bounds, so nothing that is
//! computed from one overflows. A [`Layout`] adds where each element lies in a buffer, so that permuting, slicing and
//! expanding move no bytes.

use std::fmt;
use std::ops::Deref;

use crate::error::{Error, Result};

/// The most axes a tensor may have.
pub const MAX_RANK: usize = 8;

/// The most elements a tensor may have: their bytes, and sums of a few of them, stay far from overflowing.
pub const MAX_ELEMENTS: usize = 1 << 40;

/// The sizes of a tensor's axes. A scalar has none.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    sizes: [usize; MAX_RANK],
    rank: u8,
}

impl Shape {
    pub const SCALAR: Self = Self { sizes: [0; MAX_RANK], rank: 0 };

    /// Refuses more than [`MAX_RANK`] axes and more than [`MAX_ELEMENTS`] elements.
    pub fn new(sizes: &[usize]) -> Result<Self> {
        if sizes.len() > MAX_RANK {
            return Err(Error::too_large(format!("{} axes, the most is {MAX_RANK}", sizes.len())));
        }
        // An axis of size zero makes the product zero, but the others must still be sane: strides are their products.
        let volume = sizes.iter().try_fold(1_usize, |product, &size| product.checked_mul(size.max(1)));
        if volume.is_none_or(|volume| volume > MAX_ELEMENTS) {
            return Err(Error::too_large(format!("{sizes:?} has more than {MAX_ELEMENTS} elements")));
        }
        let mut shape = Self { sizes: [0; MAX_RANK], rank: sizes.len() as u8 };
        shape.sizes[..sizes.len()].copy_from_slice(sizes);
        Ok(shape)
    }

    pub fn rank(&self) -> usize {
        self.rank as usize
    }

    /// The number of elements.
    pub fn elements(&self) -> usize {
        self.iter().product()
    }

    /// The size of an axis counted from the end: 0 is the last. An axis that is not there has size 1.
    pub fn from_end(&self, axis: usize) -> usize {
        if axis < self.rank() { self.sizes[self.rank() - 1 - axis] } else { 1 }
    }

    /// The same sizes but for one axis.
    pub fn with(&self, axis: usize, size: usize) -> Result<Self> {
        let mut sizes = *self;
        match sizes.sizes[..sizes.rank as usize].get_mut(axis) {
            Some(place) => *place = size,
            None => return Err(Error::too_large(format!("{self:?} has no axis {axis}"))),
        }
        Self::new(&sizes)
    }

    /// The shape that both broadcast to: sizes are aligned at the last axis, and a size of 1 stretches.
    pub fn broadcast(&self, other: &Self) -> Option<Self> {
        if self[..] == other[..] {
            return Some(*self);
        }
        let rank = self.rank().max(other.rank());
        let mut sizes = [0; MAX_RANK];
        for axis in 0..rank {
            sizes[rank - 1 - axis] = match (self.from_end(axis), other.from_end(axis)) {
                (a, b) if a == b => a,
                (1, b) => b,
                (a, 1) => a,
                _ => return None,
            };
        }
        Self::new(&sizes[..rank]).ok()
    }
}

impl Deref for Shape {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        &self.sizes[..self.rank as usize]
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, out)
    }
}

/// A set of axes of one tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub struct Axes(u8);

impl Axes {
    /// Refuses an axis past [`MAX_RANK`] and an axis named twice.
    pub fn new(axes: &[usize]) -> Result<Self> {
        let mut set = 0_u8;
        for &axis in axes {
            if axis >= MAX_RANK || set & (1 << axis) != 0 {
                return Err(Error::too_large(format!("axes {axes:?}: each below {MAX_RANK}, each once")));
            }
            set |= 1 << axis;
        }
        Ok(Self(set))
    }

    /// Every axis of a tensor of this rank.
    pub fn all(rank: usize) -> Self {
        Self(((1_u16 << rank.min(MAX_RANK)) - 1) as u8)
    }

    pub fn contains(self, axis: usize) -> bool {
        axis < MAX_RANK && self.0 & (1 << axis) != 0
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The smallest rank that has all of them.
    pub fn rank(self) -> usize {
        MAX_RANK - self.0.leading_zeros() as usize
    }

    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..MAX_RANK).filter(move |&axis| self.contains(axis))
    }
}

/// Where the elements of a tensor lie in its buffer, counted in elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    pub shape: Shape,
    strides: [usize; MAX_RANK],
    pub offset: usize,
}

impl Layout {
    /// Row after row, from the start of the buffer.
    pub fn contiguous(shape: Shape) -> Self {
        Self::contiguous_at(shape, 0)
    }

    pub fn contiguous_at(shape: Shape, offset: usize) -> Self {
        let mut strides = [0; MAX_RANK];
        let mut stride = 1;
        for axis in (0..shape.rank()).rev() {
            strides[axis] = stride;
            stride *= shape[axis].max(1);
        }
        Self { shape, strides, offset }
    }

    pub fn strides(&self) -> &[usize] {
        &self.strides[..self.shape.rank()]
    }

    /// Whether the elements lie row after row with nothing between them.
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        for axis in (0..self.shape.rank()).rev() {
            if self.shape[axis] != 1 && self.strides[axis] != expected {
                return self.shape.elements() == 0;
            }
            expected *= self.shape[axis];
        }
        true
    }

    /// One past the last element that is used, counted from the start of the buffer; the offset if there is none.
    pub fn end(&self) -> usize {
        if self.shape.elements() == 0 {
            return self.offset;
        }
        self.offset + 1 + self.shape.iter().zip(self.strides()).map(|(size, stride)| (size - 1) * stride).sum::<usize>()
    }

    /// The axes in another order. `order` must be a permutation; operations check it.
    pub fn permute(&self, order: &[usize]) -> Self {
        let mut permuted = *self;
        for (to, &from) in order.iter().enumerate() {
            permuted.shape.sizes[to] = self.shape.sizes[from];
            permuted.strides[to] = self.strides[from];
        }
        permuted
    }

    /// Every `steps`-th element from `starts`, `sizes` of them. Operations check the bounds.
    pub fn slice(&self, starts: &[usize], sizes: &Shape, steps: &[usize]) -> Self {
        let mut sliced = *self;
        sliced.shape = *sizes;
        for axis in 0..sizes.rank() {
            if sizes.elements() > 0 {
                sliced.offset += starts[axis] * self.strides[axis];
            }
            // A step that is never taken may be anything.
            if sizes[axis] > 1 {
                sliced.strides[axis] = self.strides[axis] * steps[axis];
            }
        }
        sliced
    }

    /// Axes of size 1, and axes that are not there, repeated to fill `shape`. Operations check that it broadcasts.
    pub fn expand(&self, shape: &Shape) -> Self {
        let mut expanded = Self { shape: *shape, strides: [0; MAX_RANK], offset: self.offset };
        let missing = shape.rank() - self.shape.rank();
        for axis in 0..self.shape.rank() {
            if self.shape[axis] == shape[axis + missing] {
                expanded.strides[axis + missing] = self.strides[axis];
            }
        }
        expanded
    }

    /// The same elements in the same order under other sizes, where no byte has to move for it.
    pub fn reshape(&self, shape: &Shape) -> Option<Self> {
        if self.is_contiguous() {
            return Some(Self::contiguous_at(*shape, self.offset));
        }
        // Splitting and joining axes works as long as each joined run is itself contiguous. Axes of size 1 lie anywhere.
        let mut reshaped = Self { shape: *shape, strides: [0; MAX_RANK], offset: self.offset };
        let mut old = (0..self.shape.rank()).filter(|&axis| self.shape[axis] != 1);
        let mut new = (0..shape.rank()).filter(|&axis| shape[axis] != 1);
        while let Some(mut last) = old.next() {
            let mut have = self.shape[last];
            let first_new = new.next()?;
            let (mut last_new, mut want) = (first_new, shape[first_new]);
            while have != want {
                if have < want {
                    let axis = old.next()?;
                    if self.strides[last] != self.shape[axis] * self.strides[axis] {
                        return None;
                    }
                    have *= self.shape[axis];
                    last = axis;
                } else {
                    last_new = new.next()?;
                    want *= shape[last_new];
                }
            }
            let mut stride = self.strides[last];
            for axis in (first_new..=last_new).rev() {
                reshaped.strides[axis] = stride;
                stride *= shape[axis];
            }
        }
        new.next().is_none().then_some(reshaped)
    }
}
