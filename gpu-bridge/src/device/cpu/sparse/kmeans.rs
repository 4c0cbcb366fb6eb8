//! The two steps of k-means.

use crate::device::cpu::memory::{Indices, Input, Output};
use crate::device::cpu::simd::vectorized;
use crate::error::{Error, Result};
use crate::op::{KMeansAccumulate, Spec};
use crate::run::{PIECE, Pace, Parts, Run};

/// Centroids that are compared side by side.
const LANES: usize = 8;

/// Points that are compared with them at once, in registers.
const ROWS: usize = 4;

/// Points that meet one group of centroids before the next group is loaded.
const POINTS: usize = 32;

/// Coordinates that are summed before they are added to the rest, so that rounding stays small in many dimensions.
const DEPTH: usize = 64;

/// Coordinates of a few points that are compared at a stretch. A multiple of [`DEPTH`].
const LONG: usize = 1 << 13;

/// Coordinate differences per tile.
const WORK: usize = 1 << 16;

/// The most tiles that the sum over all points is cut into.
const BLOCKS: usize = 8;

/// The nearest so far, for each lane of the groups. Only what is finite counts, which makes the comparison simple.
#[derive(Clone, Copy)]
struct Nearest {
    distances: [f32; LANES],
    groups: [u32; LANES],
}

impl Nearest {
    const NONE: Self = Self { distances: [f32::INFINITY; LANES], groups: [0; LANES] };

    #[inline(always)]
    fn compare(&mut self, group: u32, distances: &[f32; LANES]) {
        for ((best, best_group), &distance) in self.distances.iter_mut().zip(&mut self.groups).zip(distances) {
            let nearer = distance < *best;
            *best = if nearer { distance } else { *best };
            *best_group = if nearer { group } else { *best_group };
        }
    }

    /// The nearest of all lanes, and of equally near ones the first. None if nothing is at a finite distance.
    #[inline(always)]
    fn best(&self) -> Option<(u32, f32)> {
        let mut best = (u32::MAX, f32::INFINITY);
        for (lane, (&distance, &group)) in self.distances.iter().zip(&self.groups).enumerate() {
            let index = group * LANES as u32 + lane as u32;
            if distance < best.1 || (distance == best.1 && index < best.0) {
                best = (index, distance);
            }
        }
        (best.1 < f32::INFINITY).then_some(best)
    }
}

/// The nearest to a point that nothing is at a finite distance of: the first that is not at NaN, or else the first.
fn nearest_of_none(point: &[f32], packed: &[f32], groups: usize, pace: &mut Pace<'_>) -> Result<(u32, f32)> {
    let size = LANES * point.len();
    for group in 0..groups {
        pace.step(ROWS * size.min(LANES * LONG))?;
        let [distances, ..] = squared_distances([point; ROWS], &packed[group * size..][..size], pace)?;
        if let Some(lane) = distances.iter().position(|distance| !distance.is_nan()) {
            return Ok(((group * LANES + lane) as u32, distances[lane]));
        }
    }
    Ok((0, f32::NAN))
}

pub(in crate::device::cpu) fn assign(inputs: &[Input<'_>], outputs: &mut [Output<'_>], run: &Run<'_>) -> Result<()> {
    let (count, dimensions) = (inputs[0].layout.shape[0], inputs[0].layout.shape[1]);
    let centroids = inputs[1].layout.shape[0];
    let points = inputs[0].floats()?;
    let [indices, distances] = outputs else {
        return Err(Error::Internal { op: "k-means-assign", reason: "it has two results".into() });
    };
    if dimensions == 0 {
        // All centroids are where the points are. They take no memory, so there may be any number of both.
        run.fill(indices.elements::<u32>()?, 0)?;
        return run.fill(distances.floats()?, 0.0);
    }
    let mut scratch = run.scratch(centroids.div_ceil(LANES) * LANES * dimensions)?;
    pack(inputs[1].floats()?, dimensions, scratch.floats(), run)?;
    let packed = &*scratch.floats();
    let (indices, distances) = (Parts::new(indices.elements::<u32>()?), Parts::new(distances.floats()?));
    let grain = (WORK / (centroids * dimensions).max(1)).clamp(1, count.max(1)).next_multiple_of(ROWS);
    run.paced_ranges(count, grain, |pace, range| {
        // SAFETY: the ranges of different tiles do not overlap.
        let (indices, distances) = unsafe { (indices.part(range.clone()), distances.part(range.clone())) };
        for (block, (indices, distances)) in indices.chunks_mut(POINTS).zip(distances.chunks_mut(POINTS)).enumerate() {
            let start = range.start + block * POINTS;
            let points = &points[start * dimensions..][..indices.len() * dimensions];
            vectorized(
                #[inline(always)]
                || assign_block(points, packed, dimensions, centroids.div_ceil(LANES), indices, distances, pace),
            )?;
        }
        Ok(())
    })
}

/// Puts centroids into groups, in which the first coordinates come first. A group that is not full is filled up with NaN:
/// that is never nearest.
fn pack(centroids: &[f32], dimensions: usize, packed: &mut [f32], run: &Run<'_>) -> Result<()> {
    let group = LANES * dimensions;
    let together = (WORK / group).max(1);
    run.paced_chunks(packed, together * group, |pace, tile, groups| {
        let centroids = &centroids[(tile * together * group).min(centroids.len())..];
        for (packed, centroids) in groups.chunks_exact_mut(group).zip(centroids.chunks(group)) {
            let centroids: [&[f32]; LANES] =
                std::array::from_fn(|lane| centroids.chunks_exact(dimensions).nth(lane).unwrap_or_default());
            let (places, _) = packed.as_chunks_mut::<LANES>();
            pace.pieces(dimensions, |range| {
                for axis in range {
                    places[axis] = centroids.map(|centroid| centroid.get(axis).copied().unwrap_or(f32::NAN));
                }
            })?;
        }
        Ok(())
    })
}

#[inline(always)]
fn assign_block(
    points: &[f32],
    packed: &[f32],
    dimensions: usize,
    groups: usize,
    indices: &mut [u32],
    distances: &mut [f32],
    pace: &mut Pace<'_>,
) -> Result<()> {
    let count = indices.len().min(POINTS);
    let mut nearest = [Nearest::NONE; POINTS];
    // Where there are fewer points than rows the last one is done again.
    let point = |index: usize| &points[index.min(count - 1) * dimensions..][..dimensions];
    for group in 0..groups {
        pace.step(LANES * dimensions.min(LONG) * count.next_multiple_of(ROWS))?;
        let centroids = &packed[group * LANES * dimensions..][..LANES * dimensions];
        for (quad, nearest) in nearest[..count].chunks_mut(ROWS).enumerate() {
            let first = quad * ROWS;
            let rows = [point(first), point(first + 1), point(first + 2), point(first + 3)];
            let distances = squared_distances(rows, centroids, pace)?;
            nearest.iter_mut().zip(&distances).for_each(|(nearest, lanes)| nearest.compare(group as u32, lanes));
        }
    }
    for (at, ((nearest, index), distance)) in nearest.iter().zip(indices).zip(distances).enumerate() {
        (*index, *distance) = match nearest.best() {
            Some(best) => best,
            None => nearest_of_none(point(at), packed, groups, pace)?,
        };
    }
    Ok(())
}

/// From each of a few points to each centroid of a group. It steps where there are more dimensions than [`LONG`].
#[inline(always)]
fn squared_distances(points: [&[f32]; ROWS], centroids: &[f32], pace: &mut Pace<'_>) -> Result<[[f32; LANES]; ROWS]> {
    let dimensions = points[0].len();
    let mut totals = [[0.0; LANES]; ROWS];
    if dimensions <= LONG {
        add_squared_distances(points, centroids, &mut totals);
        return Ok(totals);
    }
    for start in (0..dimensions).step_by(LONG) {
        let end = dimensions.min(start + LONG);
        pace.step(ROWS * LANES * (end - start))?;
        let points = points.map(|point| &point[start..end]);
        add_squared_distances(points, &centroids[start * LANES..end * LANES], &mut totals);
    }
    Ok(totals)
}

#[inline(always)]
fn add_squared_distances(points: [&[f32]; ROWS], centroids: &[f32], totals: &mut [[f32; LANES]; ROWS]) {
    let [a, b, c, d] = points.map(|point| point.chunks(DEPTH));
    for ((((a, b), c), d), centroids) in a.zip(b).zip(c).zip(d).zip(centroids.chunks(DEPTH * LANES)) {
        let mut sums = [[0.0; LANES]; ROWS];
        for ((((&a, &b), &c), &d), centroid) in a.iter().zip(b).zip(c).zip(d).zip(centroids.chunks_exact(LANES)) {
            for (sums, x) in sums.iter_mut().zip([a, b, c, d]) {
                for (sum, &center) in sums.iter_mut().zip(centroid) {
                    let difference = x - center;
                    *sum += difference * difference;
                }
            }
        }
        for (totals, sums) in totals.iter_mut().zip(&sums) {
            totals.iter_mut().zip(sums).for_each(|(total, sum)| *total += sum);
        }
    }
}

/// Sums in f64, so that the millionth point of a cluster counts as much as the first.
pub(in crate::device::cpu) fn accumulate(
    op: &KMeansAccumulate,
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
) -> Result<()> {
    let (count, dimensions) = (inputs[0].layout.shape[0], inputs[0].layout.shape[1]);
    let (points, assignment) = (inputs[0].floats()?, inputs[1].indices()?);
    // A row is the number of points, then the sum of each coordinate.
    let row = dimensions + 1;
    let size = op.clusters * row;
    let blocks = (count * row / WORK).clamp(1, BLOCKS).min((count / op.clusters).max(1));
    let mut scratch = run.scratch(blocks * size * 2)?;
    let partial = bytemuck::try_cast_slice_mut::<f32, f64>(scratch.floats())
        .map_err(|error| Error::Internal { op: op.name(), reason: error.to_string() })?;
    let parts = Parts::new(partial);
    let grain = count.div_ceil(blocks);
    run.paced(blocks, |pace, block| {
        // SAFETY: each block has sums of its own.
        let sums = unsafe { parts.part(block * size..(block + 1) * size) };
        vectorized(
            #[inline(always)]
            || {
                pace.fill(sums, 0.0)?;
                for index in count.min(block * grain)..count.min((block + 1) * grain) {
                    pace.step(row.min(PIECE))?;
                    let cluster = cluster(assignment, index, op)?;
                    let point = &points[index * dimensions..][..dimensions];
                    add_point(&mut sums[cluster * row..][..row], point, pace)?;
                }
                Ok(())
            },
        )
    })?;
    combine(partial, row, size, outputs, run)
}

#[inline(always)]
fn cluster(assignment: Indices<'_>, index: usize, op: &KMeansAccumulate) -> Result<usize> {
    assignment.checked(index, op.clusters, "k-means-accumulate", "cluster")
}

#[inline(always)]
fn add_point(sums: &mut [f64], point: &[f32], pace: &mut Pace<'_>) -> Result<()> {
    let Some((count, sums)) = sums.split_first_mut() else { return Ok(()) };
    *count += 1.0;
    pace.pieces(point.len(), |range| {
        sums[range.clone()].iter_mut().zip(&point[range]).for_each(|(sum, &x)| *sum += f64::from(x));
    })
}

/// Adds what the blocks have, in order, and rounds once.
fn combine(partial: &[f64], row: usize, size: usize, outputs: &mut [Output<'_>], run: &Run<'_>) -> Result<()> {
    let [sums, counts] = outputs else {
        return Err(Error::Internal { op: "k-means-accumulate", reason: "it has two results".into() });
    };
    let dimensions = row - 1;
    let (sums, counts) = (Parts::new(sums.floats()?), Parts::new(counts.elements::<u32>()?));
    let total = |at: usize| partial.iter().skip(at).step_by(size).sum::<f64>();
    run.paced_ranges(counts.len(), (WORK / row).max(1), |pace, clusters| {
        let first = clusters.start;
        // SAFETY: the ranges of different tiles do not overlap.
        let (sums, counts) =
            unsafe { (sums.part(first * dimensions..clusters.end * dimensions), counts.part(clusters)) };
        for (index, count) in counts.iter_mut().enumerate() {
            let start = (first + index) * row;
            *count = total(start) as u32;
            let sums = &mut sums[index * dimensions..][..dimensions];
            pace.pieces(dimensions, |axes| {
                let first = start + 1 + axes.start;
                sums[axes].iter_mut().enumerate().for_each(|(axis, sum)| *sum = total(first + axis) as f32);
            })?;
        }
        Ok(())
    })
}
