//! What workers exchange in fewer bytes. The files of `op/codec` define every bit of it.

use half::f16;
use half::slice::HalfFloatSliceExt;

use super::memory::{Input, Output};
use super::simd::vectorized;
use crate::error::{Error, Result};
use crate::op::{AddAt, Spec};
use crate::run::Run;

mod largest;
mod levels;
mod significant;

pub(super) use largest::largest;
pub(super) use levels::{dequantize, quantize};
pub(super) use significant::significant;

/// Elements per tile of what is one pass over memory.
const TILE: usize = 1 << 15;

/// Elements that are looked at together: most often none of them is wanted.
const PIECE: usize = 16;

pub(super) fn cast_saturating(inputs: &[Input<'_>], outputs: &mut [Output<'_>], run: &Run<'_>) -> Result<()> {
    const BLOCK: usize = 256;
    let x = inputs[0].floats()?;
    let largest = f16::MAX.to_f32();
    run.chunks(outputs[0].elements::<f16>()?, TILE, |tile, y| {
        let x = &x[tile * TILE..][..y.len()];
        for (x, y) in x.chunks(BLOCK).zip(y.chunks_mut(BLOCK)) {
            let mut kept = [0.0_f32; BLOCK];
            let kept = &mut kept[..x.len()];
            vectorized(
                #[inline(always)]
                || {
                    for (kept, &x) in kept.iter_mut().zip(x) {
                        let beyond = (x.abs() > largest) & (x.abs() < f32::INFINITY);
                        *kept = if beyond { largest.copysign(x) } else { x };
                    }
                },
            );
            y.convert_from_f32_slice(kept);
        }
    })
}

/// Each tile owns some of the sums, and finds its indices by halving: they rise.
pub(super) fn add_at(op: &AddAt, inputs: &[Input<'_>], outputs: &mut [Output<'_>], run: &Run<'_>) -> Result<()> {
    let (values, indices) = (inputs[0].floats()?, inputs[1].elements::<u32>()?);
    let sums = outputs[0].floats()?;
    let count = sums.len();
    run.try_each(indices.len().div_ceil(TILE), |tile| {
        let (start, end) = (tile * TILE, indices.len().min((tile + 1) * TILE));
        let rises = |&place: &usize| {
            let before = place.checked_sub(1).map(|place| indices[place]);
            before.is_none_or(|before| before < indices[place]) && (indices[place] as usize) < count
        };
        match (start..end).find(|place| !rises(place)) {
            Some(place) => Err(not_rising(op, place, count)),
            None => Ok(()),
        }
    })?;
    run.chunks(sums, TILE, |tile, sums| {
        let first = tile * TILE;
        let start = indices.partition_point(|&index| (index as usize) < first);
        let end = start + indices[start..].partition_point(|&index| (index as usize) < first + sums.len());
        for (&index, &value) in indices[start..end].iter().zip(&values[start..end]) {
            sums[index as usize - first] += op.scale * value;
        }
    })
}

fn not_rising(op: &AddAt, place: usize, count: usize) -> Error {
    let reason = AddAt::NOT_RISING.replace("{index}", &place.to_string()).replace("{count}", &count.to_string());
    Error::argument(op.name(), reason)
}

/// The two results of an operation.
fn two<'a, 'b>(op: &dyn Spec, outputs: &'a mut [Output<'b>]) -> Result<[&'a mut Output<'b>; 2]> {
    match outputs {
        [first, second] => Ok([first, second]),
        _ => Err(Error::Internal { op: op.name(), reason: "it has two results".into() }),
    }
}
