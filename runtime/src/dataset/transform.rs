//! Stored numbers become the f32 of a batch, transformed on the way, in one pass.
//!
//! Standardising and scaling to a range are `(x - shift) * scale + offset` with constants for each entry of the
//! statistics: by channel, or by column. What never changed in training has no scale and is only shifted, so it comes out
//! as 0 (or the low end of the range), and a test sample that differs by the plain difference. Values outside of what
//! training had come out outside of the range. Normalising divides a sample by its length; one of zeros stays so.
//!
//! i32 is computed in f64, as f32 cannot tell large integers apart; the rest in f32. Nothing is fused, so results have the
//! same bits on every machine.

use std::ops::{Add, Mul, Sub};

use super::manifest::{Manifest, Statistics, Transform};
use super::rows::{Element, Features};

/// A transform that cannot be done.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TransformError {
    #[error("sparse features can be normalised or left alone; `{transform}` would fill in their zeros")]
    Sparse { transform: &'static str },
    #[error("the manifest is wrong: {entries} entries in `{what}` do not fit samples of {width} numbers")]
    WrongStatistics { what: &'static str, entries: usize, width: usize },
    #[error(
        "`{transform}` needs statistics, and those of entry {entry} are not finite: the samples have NaN or infinity there"
    )]
    NotFinite { transform: &'static str, entry: usize },
}

/// A transform with its constants, ready to be applied to rows.
#[derive(Clone, Debug)]
pub struct Prepared {
    element: Element,
    steps: Steps,
}

#[derive(Clone, Debug)]
enum Steps {
    Convert,
    /// Each constant is for `run` numbers of a row.
    Affine {
        run: usize,
        single: Constants<f32>,
        double: Constants<f64>,
    },
    Normalise,
}

#[derive(Clone, Debug)]
struct Constants<R> {
    shift: Vec<R>,
    scale: Vec<R>,
    offset: Vec<R>,
}

impl Prepared {
    pub fn new(manifest: &Manifest) -> Result<Self, TransformError> {
        let (element, sparse) = match &manifest.features {
            Features::Dense { element, .. } => (*element, false),
            Features::Sparse { .. } => (Element::F32, true),
        };
        let (name, range) = match manifest.transform {
            Transform::None => return Ok(Self { element, steps: Steps::Convert }),
            Transform::Normalise => return Ok(Self { element, steps: Steps::Normalise }),
            Transform::Standardise => ("standardise", None),
            Transform::MinMax { low, high } => ("minmax", Some((low, high))),
        };
        if sparse {
            return Err(TransformError::Sparse { transform: name });
        }
        let width = manifest.features.width();
        let steps = affine(name, range, &manifest.statistics, width)?;
        Ok(Self { element, steps })
    }

    /// Turns a row of stored numbers, little-endian, into f32; of a sparse row, the values that it has. As many as there
    /// are of the shorter.
    #[inline(always)]
    pub fn row(&self, stored: &[u8], out: &mut [f32]) {
        match self.element {
            Element::U8 => self.apply(stored.as_chunks::<1>().0, out, |[byte]| f32::from(byte), Steps::single),
            Element::F32 => self.apply(stored.as_chunks::<4>().0, out, f32::from_le_bytes, Steps::single),
            Element::I32 => {
                self.apply(stored.as_chunks::<4>().0, out, |word| f64::from(i32::from_le_bytes(word)), Steps::double);
            }
        }
    }

    #[inline(always)]
    fn apply<const SIZE: usize, R: Real>(
        &self,
        row: &[[u8; SIZE]],
        out: &mut [f32],
        decode: impl Fn([u8; SIZE]) -> R + Copy,
        constants: impl Fn(&Steps) -> Option<(usize, &Constants<R>)>,
    ) {
        match &self.steps {
            Steps::Convert => each(row, out, |stored| decode(stored).narrow()),
            Steps::Normalise => normalise(row, out, decode),
            Steps::Affine { .. } => {
                if let Some((run, constants)) = constants(&self.steps) {
                    constants.apply(run, row, out, decode);
                }
            }
        }
    }
}

impl Steps {
    #[inline(always)]
    fn single(&self) -> Option<(usize, &Constants<f32>)> {
        if let Self::Affine { run, single, .. } = self { Some((*run, single)) } else { None }
    }

    #[inline(always)]
    fn double(&self) -> Option<(usize, &Constants<f64>)> {
        if let Self::Affine { run, double, .. } = self { Some((*run, double)) } else { None }
    }
}

fn affine(
    name: &'static str,
    range: Option<(f32, f32)>,
    statistics: &Statistics,
    width: usize,
) -> Result<Steps, TransformError> {
    let entries = statistics.mean.len();
    let wrong = |what, entries| TransformError::WrongStatistics { what, entries, width };
    if width > 0 && (entries == 0 || !width.is_multiple_of(entries)) {
        return Err(wrong("mean", entries));
    }
    let others =
        [("squares", statistics.squares.len()), ("low", statistics.low.len()), ("high", statistics.high.len())];
    if let Some((what, entries)) = others.into_iter().find(|&(_, count)| count != entries) {
        return Err(wrong(what, entries));
    }
    let mut double = Constants { shift: Vec::new(), scale: Vec::new(), offset: Vec::new() };
    for entry in 0..entries {
        let (least, most) = (f64::from(statistics.low[entry]), f64::from(statistics.high[entry]));
        let (shift, scale, offset) = match range {
            // What never changed, whatever rounding left in its squares.
            None if least == most => (statistics.mean[entry], f64::INFINITY, 0.0),
            None => {
                let variance = statistics.squares[entry] / statistics.count.max(1) as f64;
                (statistics.mean[entry], 1.0 / variance.sqrt(), 0.0)
            }
            Some((low, high)) => {
                let (low, high) = (f64::from(low), f64::from(high));
                let scale = if most == least { f64::INFINITY } else { (high - low) / (most - least) };
                (least, scale, low)
            }
        };
        if !shift.is_finite() || scale.is_nan() || !offset.is_finite() {
            return Err(TransformError::NotFinite { transform: name, entry });
        }
        double.shift.push(shift);
        // Infinite where nothing varies, or so little that f32 has no number for it.
        double.scale.push(if (scale as f32).is_finite() { scale } else { 1.0 });
        double.offset.push(offset);
    }
    let narrow = |values: &[f64]| values.iter().map(|&value| value as f32).collect();
    let single =
        Constants { shift: narrow(&double.shift), scale: narrow(&double.scale), offset: narrow(&double.offset) };
    Ok(Steps::Affine { run: width.checked_div(entries).unwrap_or(0).max(1), single, double })
}

/// What a row is computed in.
trait Real: Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> {
    fn narrow(self) -> f32;
    fn widen(self) -> f64;
    fn of(value: f64) -> Self;
}

impl Real for f32 {
    #[inline(always)]
    fn narrow(self) -> f32 {
        self
    }

    #[inline(always)]
    fn widen(self) -> f64 {
        f64::from(self)
    }

    #[inline(always)]
    fn of(value: f64) -> Self {
        value as f32
    }
}

impl Real for f64 {
    #[inline(always)]
    fn narrow(self) -> f32 {
        self as f32
    }

    #[inline(always)]
    fn widen(self) -> f64 {
        self
    }

    #[inline(always)]
    fn of(value: f64) -> Self {
        value
    }
}

#[inline(always)]
fn each<const SIZE: usize>(row: &[[u8; SIZE]], out: &mut [f32], of: impl Fn([u8; SIZE]) -> f32) {
    for (out, &stored) in out.iter_mut().zip(row) {
        *out = of(stored);
    }
}

impl<R: Real> Constants<R> {
    #[inline(always)]
    fn apply<const SIZE: usize>(
        &self,
        run: usize,
        row: &[[u8; SIZE]],
        out: &mut [f32],
        decode: impl Fn([u8; SIZE]) -> R + Copy,
    ) {
        let constants = self.shift.iter().zip(&self.scale).zip(&self.offset);
        if run == 1 {
            for ((out, &stored), ((&shift, &scale), &offset)) in out.iter_mut().zip(row).zip(constants) {
                *out = ((decode(stored) - shift) * scale + offset).narrow();
            }
            return;
        }
        for ((row, out), ((&shift, &scale), &offset)) in row.chunks(run).zip(out.chunks_mut(run)).zip(constants) {
            each(row, out, |stored| ((decode(stored) - shift) * scale + offset).narrow());
        }
    }
}

#[inline(always)]
fn normalise<const SIZE: usize, R: Real>(row: &[[u8; SIZE]], out: &mut [f32], decode: impl Fn([u8; SIZE]) -> R + Copy) {
    // Several sums side by side, so that vectors can hold them. Squares of f32 fit f64 whatever they are.
    let mut sums = [0.0_f64; 8];
    let (eights, rest) = row.as_chunks::<8>();
    for eight in eights {
        for (sum, &stored) in sums.iter_mut().zip(eight) {
            let value = decode(stored).widen();
            *sum += value * value;
        }
    }
    for (sum, &stored) in sums.iter_mut().zip(rest) {
        let value = decode(stored).widen();
        *sum += value * value;
    }
    let length = sums.iter().sum::<f64>().sqrt();
    let scale = if length == 0.0 { 1.0 } else { 1.0 / length };
    if (scale as f32).is_normal() {
        let scale = R::of(scale);
        each(row, out, |stored| (decode(stored) * scale).narrow());
    } else {
        each(row, out, |stored| (decode(stored).widen() * scale) as f32);
    }
}

#[cfg(test)]
pub(super) mod tests;
