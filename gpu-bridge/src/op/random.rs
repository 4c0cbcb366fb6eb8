//! Tensors from nothing: constants, counts, and random numbers that are the same on every device.
//!
//! # Random bits
//! The generator is Philox4x32-10 (Salmon et al., *Parallel random numbers: as easy as 1, 2, 3*, 2011). It has no
//! state: block `b` of a [`Stream`] is four words of 32 bits that depend on the stream and on `b` alone, so any thread of
//! any device makes any part of it. It needs only 32-bit arithmetic. All of it wraps:
//!
//! ```text
//! (c0, c1, c2, c3) = (low(b), high(b), low(offset), high(offset))
//! (k0, k1)         = (low(seed), high(seed))
//! ten times:
//!     p = 0xD2511F53 * c0, q = 0xCD9E8D57 * c2            both halves of the product
//!     (c0, c1, c2, c3) = (high(q) ^ c1 ^ k0, low(q), high(p) ^ c3 ^ k1, low(p))
//!     (k0, k1) = (k0 + 0x9E3779B9, k1 + 0xBB67AE85)
//! ```
//!
//! Element `i` of a tensor, counted row after row, gets word `i mod 4` of block `i / 4` as its `bits(i)`.
//!
//! # From bits to numbers
//! - [`Uniform`]: `low + (high - low) * u`, `u = (bits(i) >> 8) * 2^-24`, each operation rounded to f32; where that is
//!   not below `high`, the largest f32 below `high`.
//! - [`Normal`]: elements `i` (even) and `i + 1` are `mean + deviation * r cos(t)` and `mean + deviation * r sin(t)` with
//!   `r = sqrt(-2 ln(((bits(i) >> 8) + 1) * 2^-24))` and `t = 2 pi * (bits(i + 1) >> 8) * 2^-24`. Devices may differ in
//!   the last bits: `r cos(t)` and `r sin(t)` are within 2e-6 of the exact value.
//! - [`Dropout`]: the element is kept where `bits(i) >= threshold`, `threshold = rate * 2^32` rounded down.

use smallvec::smallvec;

use super::{Inputs, Meta, Outputs, Spec};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::Shape;
use crate::tape::Backward;

/// A sequence of random bits. Two streams that differ in either number have no block in common; one stream used twice
/// gives the same numbers twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stream {
    pub seed: u64,
    /// Which of the sequences of the seed: count it up with every use.
    pub offset: u64,
}

impl Stream {
    /// The multipliers of the two products.
    pub(crate) const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
    /// What the key grows by from round to round.
    pub(crate) const KEY_STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
    pub(crate) const ROUNDS: u32 = 10;

    /// One block of bits, as the head of this file defines it.
    pub fn block(self, index: u64) -> [u32; 4] {
        let halves = |wide: u64| (wide as u32, (wide >> 32) as u32);
        let product = |a: u32, b: u32| halves(u64::from(a) * u64::from(b));
        let ((mut c0, mut c1), (mut c2, mut c3)) = (halves(index), halves(self.offset));
        let (mut k0, mut k1) = halves(self.seed);
        for _ in 0..Self::ROUNDS {
            let (low_p, high_p) = product(Self::MULTIPLIERS[0], c0);
            let (low_q, high_q) = product(Self::MULTIPLIERS[1], c2);
            [c0, c1, c2, c3] = [high_q ^ c1 ^ k0, low_q, high_p ^ c3 ^ k1, low_p];
            k0 = k0.wrapping_add(Self::KEY_STEPS[0]);
            k1 = k1.wrapping_add(Self::KEY_STEPS[1]);
        }
        [c0, c1, c2, c3]
    }

    /// The bits of one element.
    pub fn bits(self, element: u64) -> u32 {
        self.block(element / 4)[(element % 4) as usize]
    }
}

/// Every element the same: the value cast to the type, for integers truncated and saturating, NaN as 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fill {
    pub shape: Shape,
    pub dtype: DType,
    pub value: f64,
}

impl Spec for Fill {
    fn name(&self) -> &'static str {
        "fill"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [] = inputs.exactly()?;
        Ok(smallvec![Meta::new(self.shape, self.dtype)])
    }

    fn flops(&self, _: &[Meta], _: &[Meta]) -> u64 {
        0
    }
}

/// `start, start + step, ...`: `count` of them. Integers that the type can hold; for floats those of i32, rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Iota {
    pub count: usize,
    pub dtype: DType,
    pub start: i32,
    pub step: i32,
}

impl Spec for Iota {
    fn name(&self) -> &'static str {
        "iota"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [] = inputs.exactly()?;
        let shape = Shape::new(&[self.count])?;
        let range = match self.dtype {
            DType::U8 => 0..=i128::from(u8::MAX),
            DType::U32 => 0..=i128::from(u32::MAX),
            DType::F32 | DType::F16 | DType::I32 => i128::from(i32::MIN)..=i128::from(i32::MAX),
        };
        let steps = self.count.saturating_sub(1) as i128;
        let last = i128::from(self.start) + i128::from(self.step) * steps;
        if self.count > 0 && !(range.contains(&i128::from(self.start)) && range.contains(&last)) {
            let reason = format!("{} to {last} as {}: they do not fit", self.start, self.dtype);
            return Err(Error::argument(inputs.op, reason));
        }
        Ok(smallvec![Meta::new(shape, self.dtype)])
    }
}

/// f32, uniform in `[low, high)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Uniform {
    pub shape: Shape,
    pub low: f32,
    pub high: f32,
    pub stream: Stream,
}

impl Spec for Uniform {
    fn name(&self) -> &'static str {
        "uniform"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [] = inputs.exactly()?;
        if !(self.low < self.high && (self.high - self.low).is_finite()) {
            let reason = format!("low {} must be below high {}, and their difference finite", self.low, self.high);
            return Err(Error::argument(inputs.op, reason));
        }
        Ok(smallvec![Meta::f32(self.shape)])
    }

    fn flops(&self, _: &[Meta], outputs: &[Meta]) -> u64 {
        outputs.iter().map(|y| 10 * y.shape.elements() as u64).sum()
    }
}

/// f32, normal with this mean and standard deviation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Normal {
    pub shape: Shape,
    pub mean: f32,
    pub deviation: f32,
    pub stream: Stream,
}

impl Spec for Normal {
    fn name(&self) -> &'static str {
        "normal"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [] = inputs.exactly()?;
        if !(self.mean.is_finite() && self.deviation.is_finite() && self.deviation >= 0.0) {
            let reason = format!("mean {} and deviation {}: finite, not negative", self.mean, self.deviation);
            return Err(Error::argument(inputs.op, reason));
        }
        Ok(smallvec![Meta::f32(self.shape)])
    }

    fn flops(&self, _: &[Meta], outputs: &[Meta]) -> u64 {
        outputs.iter().map(|y| 30 * y.shape.elements() as u64).sum()
    }
}

/// `x`: each element kept with probability `1 - rate` and scaled by its inverse, else 0. The gradient makes the mask anew
/// from the stream; it is never stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    pub rate: f32,
    pub stream: Stream,
}

impl Dropout {
    /// Elements whose bits are below this are dropped.
    pub fn threshold(&self) -> u32 {
        (f64::from(self.rate) * (1_u64 << 32) as f64) as u32
    }

    /// What is kept is multiplied by this.
    pub fn scale(&self) -> f32 {
        (1.0 / (1.0 - f64::from(self.rate))) as f32
    }
}

impl Spec for Dropout {
    fn name(&self) -> &'static str {
        "dropout"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [x] = inputs.exactly()?;
        inputs.all_f32()?;
        if !(0.0..1.0).contains(&self.rate) {
            return Err(Error::argument(inputs.op, format!("rate {} must be at least 0 and below 1", self.rate)));
        }
        Ok(smallvec![*x])
    }

    fn flops(&self, _: &[Meta], outputs: &[Meta]) -> u64 {
        outputs.iter().map(|y| 10 * y.shape.elements() as u64).sum()
    }

    fn differentiable(&self) -> bool {
        true
    }

    fn gradient(&self, backward: &mut Backward<'_>) -> Result<()> {
        let dy = backward.gradient(0)?;
        backward.emit(0, *self, &[&dy])
    }
}
