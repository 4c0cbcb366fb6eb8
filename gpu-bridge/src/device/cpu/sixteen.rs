//! Sixteen floats side by side, in the widest vectors that this machine has.
//!
//! A kernel is written once, for any [`Sixteen`], and [`run`] gives it the one that is there. What it calls must be
//! `#[inline(always)]`, to be compiled for that one.

#[cfg(target_arch = "x86_64")]
mod avx;
#[cfg(test)]
mod tests;

#[cfg(target_arch = "x86_64")]
use super::simd::has_avx512;
use super::simd::vectorized;

pub(super) const SIXTEEN: usize = 16;

/// Sixteen floats in memory.
pub(super) type Floats = [f32; SIXTEEN];

/// Sixteen floats in registers.
pub(super) trait Sixteen: Copy {
    fn splat(value: f32) -> Self;

    fn load(from: &Floats) -> Self;

    /// The first floats, and zeros where there are fewer than sixteen.
    fn load_some(from: &[f32]) -> Self;

    fn store(self, into: &mut Floats);

    /// As many as there is room for.
    fn store_some(self, into: &mut [f32]);

    fn add(self, other: Self) -> Self;

    fn sub(self, other: Self) -> Self;

    fn scale(self, factor: f32) -> Self;

    /// `self + factor * other`.
    fn add_scaled(self, factor: f32, other: Self) -> Self;

    /// Rows become columns.
    fn transpose(rows: [Self; SIXTEEN]) -> [Self; SIXTEEN];
}

/// What is to be done with vectors.
pub(super) trait Kernel {
    type Output;

    /// To be `#[inline(always)]`.
    fn run<V: Sixteen>(self) -> Self::Output;
}

/// Runs a kernel with the widest vectors that there are.
#[inline]
pub(super) fn run<K: Kernel>(kernel: K) -> K::Output {
    #[cfg(target_arch = "x86_64")]
    if has_avx512() {
        // SAFETY: the features are there.
        return unsafe { avx::with_avx512(kernel) };
    }
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma") {
        // SAFETY: the features are there.
        return unsafe { avx::with_avx2(kernel) };
    }
    vectorized(
        #[inline(always)]
        || kernel.run::<Plain>(),
    )
}

/// Any machine's.
#[derive(Clone, Copy)]
struct Plain(Floats);

impl Plain {
    #[inline(always)]
    fn each(self, other: Self, combine: impl Fn(f32, f32) -> f32) -> Self {
        Self(std::array::from_fn(|lane| combine(self.0[lane], other.0[lane])))
    }
}

impl Sixteen for Plain {
    #[inline(always)]
    fn splat(value: f32) -> Self {
        Self([value; SIXTEEN])
    }

    #[inline(always)]
    fn load(from: &Floats) -> Self {
        Self(*from)
    }

    #[inline(always)]
    fn load_some(from: &[f32]) -> Self {
        Self(std::array::from_fn(|lane| from.get(lane).copied().unwrap_or(0.0)))
    }

    #[inline(always)]
    fn store(self, into: &mut Floats) {
        *into = self.0;
    }

    #[inline(always)]
    fn store_some(self, into: &mut [f32]) {
        into.iter_mut().zip(self.0).for_each(|(into, value)| *into = value);
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self.each(other, |a, b| a + b)
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        self.each(other, |a, b| a - b)
    }

    #[inline(always)]
    fn scale(self, factor: f32) -> Self {
        Self(self.0.map(|value| factor * value))
    }

    #[inline(always)]
    fn add_scaled(self, factor: f32, other: Self) -> Self {
        self.each(other, |a, b| a + factor * b)
    }

    #[inline(always)]
    fn transpose(rows: [Self; SIXTEEN]) -> [Self; SIXTEEN] {
        std::array::from_fn(|column| Self(std::array::from_fn(|row| rows[row].0[column])))
    }
}
