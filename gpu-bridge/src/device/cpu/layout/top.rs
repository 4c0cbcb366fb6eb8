//! The largest elements of rows.

use super::TILE;
use crate::device::cpu::memory::{Input, Output};
use crate::error::{Error, Result};
use crate::op::{Spec, TopK, TopKGradient};
use crate::run::{Parts, Run};

/// Up to this many are kept sorted while the row is read; for more the row's indices are sorted.
const FEW: usize = 32;

pub(in super::super) fn top_k(
    op: &TopK,
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
) -> Result<()> {
    let x = inputs[0].floats()?;
    let (size, count) = (inputs[0].layout.shape.from_end(0), op.count);
    let rows = x.len() / size.max(1);
    let [values, indices] = outputs else {
        return Err(Error::Internal { op: op.name(), reason: "it has two results".into() });
    };
    let (values, indices) = (Parts::new(values.floats()?), Parts::new(indices.elements::<u32>()?));
    let grain = (TILE / size.max(1)).max(1);
    // Two floats are room for one key.
    let room = if count > FEW { 2 * size } else { 0 };
    run.each_with(rows.div_ceil(grain), room, |tile, scratch| {
        for row in tile * grain..rows.min((tile + 1) * grain) {
            let x = &x[row * size..][..size];
            let range = row * count..(row + 1) * count;
            // SAFETY: each row is one tile's.
            let (values, indices) = unsafe { (values.part(range.clone()), indices.part(range)) };
            if count > FEW {
                sort(x, bytemuck::cast_slice_mut(scratch), values, indices);
            } else {
                insert(x, values, indices);
            }
        }
    })
}

/// Whether one element comes before another of a higher index.
#[inline(always)]
fn larger(a: f32, b: f32) -> bool {
    a > b || (a.is_nan() && !b.is_nan())
}

fn insert(x: &[f32], values: &mut [f32], indices: &mut [u32]) {
    const PIECE: usize = 16;
    let count = values.len();
    for (piece, elements) in x.chunks(PIECE).enumerate() {
        let first = piece * PIECE;
        let least = values[count - 1];
        // Most pieces have nothing that belongs among the largest; NaN is not below anything.
        if first >= count && elements.iter().fold(true, |below, &x| below & (x <= least)) {
            continue;
        }
        for (at, &element) in elements.iter().enumerate() {
            insert_one(element, first + at, values, indices);
        }
    }
}

fn insert_one(element: f32, index: usize, values: &mut [f32], indices: &mut [u32]) {
    let last = values.len() - 1;
    let mut place = index.min(last);
    if index > last && !larger(element, values[last]) {
        return;
    }
    while place > 0 && larger(element, values[place - 1]) {
        values[place] = values[place - 1];
        indices[place] = indices[place - 1];
        place -= 1;
    }
    values[place] = element;
    indices[place] = index as u32;
}

/// A number that is the smaller the earlier an element comes: by value, then by index.
#[inline(always)]
fn key(element: f32, index: usize) -> u64 {
    // Adding zero makes the two zeros equal.
    let bits = (element + 0.0).to_bits();
    let ascending = match bits >> 31 {
        _ if element.is_nan() => u32::MAX,
        0 => bits | 1 << 31,
        _ => !bits,
    };
    u64::from(!ascending) << 32 | index as u64
}

fn sort(x: &[f32], keys: &mut [u64], values: &mut [f32], indices: &mut [u32]) {
    for (index, (key_of, &element)) in keys.iter_mut().zip(x).enumerate() {
        *key_of = key(element, index);
    }
    let count = values.len();
    if count < keys.len() {
        keys.select_nth_unstable(count - 1);
    }
    keys[..count].sort_unstable();
    for ((&key, value), index) in keys.iter().zip(values).zip(indices) {
        *index = key as u32;
        *value = x[key as u32 as usize];
    }
}

pub(in super::super) fn top_k_gradient(
    op: &TopKGradient,
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
) -> Result<()> {
    let (dy, indices) = (inputs[0].floats()?, inputs[1].indices()?);
    let count = inputs[0].layout.shape.from_end(0);
    let rows = outputs[0].layout.shape.elements().checked_div(op.size).unwrap_or(0);
    let dx = Parts::new(outputs[0].floats()?);
    let grain = (TILE / op.size.max(1)).max(1);
    // Without places to write to there must be nothing to write.
    if op.size == 0 && !dy.is_empty() {
        indices.checked(0, 0, op.name(), "index")?;
    }
    run.try_each(rows.div_ceil(grain), |tile| {
        for row in tile * grain..rows.min((tile + 1) * grain) {
            // SAFETY: each row is one tile's.
            let dx = unsafe { dx.part(row * op.size..(row + 1) * op.size) };
            dx.fill(0.0);
            for at in row * count..(row + 1) * count {
                dx[indices.checked(at, op.size, op.name(), "index")?] += dy[at];
            }
        }
        Ok(())
    })
}
