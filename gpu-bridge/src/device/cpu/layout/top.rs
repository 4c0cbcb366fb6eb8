//! The largest elements of rows.

use super::TILE;
use crate::device::cpu::memory::{Input, Output};
use crate::error::{Error, Result};
use crate::op::{Spec, TopK, TopKGradient};
use crate::run::{Pace, Parts, Run};

/// Up to this many are kept sorted while the row is read; for more the row's indices are sorted.
const FEW: usize = 32;

/// Up to this many keys are sorted at once, in some milliseconds.
const SORTED: usize = 1 << 16;

/// Elements that are gone through between two looks up from the work.
const STRETCH: usize = 1 << 16;

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
    run.paced_with(rows.div_ceil(grain), room, |pace, tile, scratch| {
        for row in tile * grain..rows.min((tile + 1) * grain) {
            let x = &x[row * size..][..size];
            let range = row * count..(row + 1) * count;
            // SAFETY: each row is one tile's.
            let (values, indices) = unsafe { (values.part(range.clone()), indices.part(range)) };
            if count > FEW {
                sort(x, bytemuck::cast_slice_mut(scratch), values, indices, pace)?;
            } else {
                insert(x, values, indices, pace)?;
            }
        }
        Ok(())
    })
}

/// Whether one element comes before another of a higher index.
#[inline(always)]
fn larger(a: f32, b: f32) -> bool {
    a > b || (a.is_nan() && !b.is_nan())
}

fn insert(x: &[f32], values: &mut [f32], indices: &mut [u32], pace: &mut Pace<'_>) -> Result<()> {
    const PIECE: usize = 16;
    let count = values.len();
    for (stretch, x) in x.chunks(STRETCH).enumerate() {
        // A row that rises moves all that is kept with each of its elements.
        pace.step(x.len() * count)?;
        for (piece, elements) in x.chunks(PIECE).enumerate() {
            let first = stretch * STRETCH + piece * PIECE;
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
    Ok(())
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

fn sort(x: &[f32], keys: &mut [u64], values: &mut [f32], indices: &mut [u32], pace: &mut Pace<'_>) -> Result<()> {
    pace.pieces(x.len(), |range| {
        for ((index, key_of), &element) in range.clone().zip(&mut keys[range.clone()]).zip(&x[range]) {
            *key_of = key(element, index);
        }
    })?;
    let count = values.len();
    sort_first(keys, count, u64::BITS, pace)?;
    pace.pieces(count, |range| {
        let places = values[range.clone()].iter_mut().zip(&mut indices[range.clone()]);
        for (&key, (value, index)) in keys[range].iter().zip(places) {
            *index = key as u32;
            *value = x[key as u32 as usize];
        }
    })
}

/// Brings the `count` smallest keys to the front, in order. All keys agree in the bits from `bits` on.
///
/// Few keys are sorted at once. More are first put in order of their next eight bits, where they lie, and then the keys
/// that agree in those; so it can look up from its work, which a sort that compares could not.
fn sort_first(keys: &mut [u64], count: usize, bits: u32, pace: &mut Pace<'_>) -> Result<()> {
    const DIGIT: u32 = 8;
    const DIGITS: usize = 1 << DIGIT;
    pace.step(keys.len().min(STRETCH) * 16)?;
    if keys.len() <= SORTED || bits == 0 {
        if count < keys.len() {
            keys.select_nth_unstable(count);
        }
        keys[..count].sort_unstable();
        return Ok(());
    }
    let bits = bits - DIGIT;
    let digit = |key: u64| (key >> bits) as usize % DIGITS;
    let mut ends = [0; DIGITS];
    for keys in keys.chunks(STRETCH) {
        pace.step(keys.len())?;
        keys.iter().for_each(|&key| ends[digit(key)] += 1);
    }
    let mut next = [0; DIGITS];
    let mut before = 0;
    for (next, end) in next.iter_mut().zip(&mut ends) {
        *next = before;
        before += *end;
        *end = before;
    }
    for bucket in 0..DIGITS {
        while next[bucket] < ends[bucket] {
            pace.step(STRETCH)?;
            // Each exchange brings one key to its bucket.
            for _ in 0..STRETCH {
                if next[bucket] == ends[bucket] {
                    break;
                }
                let at = next[bucket];
                let home = digit(keys[at]);
                keys.swap(at, next[home]);
                next[home] += 1;
            }
        }
    }
    let mut start = 0;
    for end in ends {
        if start >= count {
            break;
        }
        sort_first(&mut keys[start..end], (count - start).min(end - start), bits, pace)?;
        start = end;
    }
    Ok(())
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
    run.paced(rows.div_ceil(grain), |pace, tile| {
        for row in tile * grain..rows.min((tile + 1) * grain) {
            // SAFETY: each row is one tile's.
            let dx = unsafe { dx.part(row * op.size..(row + 1) * op.size) };
            pace.fill(dx, 0.0)?;
            for at in row * count..(row + 1) * count {
                pace.step(1)?;
                dx[indices.checked(at, op.size, op.name(), "index")?] += dy[at];
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Cancel;

    /// Many keys: some agree in all but the lowest bits, some in none.
    fn keys(count: usize) -> Vec<u64> {
        (0..count as u64).map(|index| index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (index % 3 * 20)).collect()
    }

    #[test]
    fn many_keys_are_sorted_as_few_are() {
        let cancel = Cancel::default();
        for total in [0, 1, SORTED, SORTED + 1, 5 * SORTED] {
            for count in [0, 1, total / 3, total] {
                let mut found = keys(total);
                let mut wanted = found.clone();
                wanted.sort_unstable();
                sort_first(&mut found, count.min(total), u64::BITS, &mut Pace::alone(&cancel)).unwrap();
                assert!(found[..count.min(total)] == wanted[..count.min(total)], "{count} of {total} keys");
            }
        }
    }
}
