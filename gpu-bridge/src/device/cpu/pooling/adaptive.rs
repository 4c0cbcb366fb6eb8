//! A given number of windows that share an image as evenly as they can.
//!
//! Where they share it exactly they are windows of a stride, whose kernels are faster.

use std::ops::Range;

use super::{Planes, larger, position_of_largest, window};
use crate::device::cpu::fold::paced_sum;
use crate::device::cpu::memory::{Input, Output};
use crate::device::cpu::simd::vectorized;
use crate::error::Result;
use crate::op::Window;
use crate::run::{Pace, Run};

/// The elements of an axis that one of `count` windows covers. Sizes are at most 2^31, so this does not overflow.
fn part(index: usize, count: usize, size: usize) -> Range<usize> {
    index * size / count..((index + 1) * size).div_ceil(count)
}

impl Planes {
    /// The windows where all are alike and none overlap.
    fn even(&self) -> Option<Window> {
        if !self.height.is_multiple_of(self.pooled_height) || !self.width.is_multiple_of(self.pooled_width) {
            return None;
        }
        let kernel = [self.height / self.pooled_height, self.width / self.pooled_width];
        Some(Window { kernel, stride: kernel, padding: [0, 0], ceil: false, count_padding: false })
    }

    /// Runs `body` for each window: its index, its rows and its columns. Windows may be as large as the image however many
    /// there are, so bodies step along their rows.
    fn each_part(&self, mut body: impl FnMut(usize, Range<usize>, Range<usize>) -> Result<()>) -> Result<()> {
        for row in 0..self.pooled_height {
            let rows = part(row, self.pooled_height, self.height);
            for column in 0..self.pooled_width {
                body(row * self.pooled_width + column, rows.clone(), part(column, self.pooled_width, self.width))?;
            }
        }
        Ok(())
    }
}

pub(in super::super) fn adaptive_average(
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
) -> Result<()> {
    let planes = Planes::new(&inputs[0].layout.shape, &outputs[0].layout.shape);
    if planes.pooled_area() == 1 {
        return whole_average(&planes, inputs, outputs, run);
    }
    if let Some(even) = planes.even() {
        return window::average(&even, inputs, outputs, run);
    }
    fold(&planes, inputs, outputs, run, |x, rows, columns, pace| {
        let area = (rows.len() * columns.len()) as f32;
        let mut total = 0.0;
        for row in rows {
            let line = &x[row * planes.width..][columns.clone()];
            let mut sum = 0.0;
            pace.stepped(line.len(), |range| sum = line[range].iter().fold(sum, |sum, x| sum + x))?;
            total += sum;
        }
        Ok(total / area)
    })
}

/// The mean of each plane.
fn whole_average(planes: &Planes, inputs: &[Input<'_>], outputs: &mut [Output<'_>], run: &Run<'_>) -> Result<()> {
    let x = inputs[0].floats()?;
    let (grain, area) = (planes.grain(), planes.area());
    run.paced_chunks(outputs[0].floats()?, grain, |pace, tile, y| {
        let x = &x[tile * grain * area..][..y.len() * area];
        vectorized(
            #[inline(always)]
            || {
                for (y, x) in y.iter_mut().zip(x.chunks_exact(area)) {
                    *y = (paced_sum(x, pace, |x| x)? / area as f64) as f32;
                }
                Ok(())
            },
        )
    })
}

pub(in super::super) fn adaptive_max(inputs: &[Input<'_>], outputs: &mut [Output<'_>], run: &Run<'_>) -> Result<()> {
    let planes = Planes::new(&inputs[0].layout.shape, &outputs[0].layout.shape);
    if let Some(even) = planes.even() {
        return window::max(&even, inputs, outputs, run);
    }
    fold(&planes, inputs, outputs, run, |x, rows, columns, pace| {
        let mut most = f32::NEG_INFINITY;
        for row in rows {
            let line = &x[row * planes.width..][columns.clone()];
            pace.stepped(line.len(), |range| most = line[range].iter().fold(most, |most, &x| larger(most, x)))?;
        }
        Ok(most)
    })
}

/// Computes each window of each plane by `f`.
fn fold(
    planes: &Planes,
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
    f: impl Fn(&[f32], Range<usize>, Range<usize>, &mut Pace<'_>) -> Result<f32> + Sync,
) -> Result<()> {
    let x = inputs[0].floats()?;
    let grain = planes.grain();
    run.paced_chunks(outputs[0].floats()?, grain * planes.pooled_area(), |pace, tile, y| {
        let x = &x[tile * grain * planes.area()..];
        for (y, x) in y.chunks_exact_mut(planes.pooled_area()).zip(x.chunks_exact(planes.area())) {
            planes.each_part(|index, rows, columns| {
                y[index] = f(x, rows, columns, pace)?;
                Ok(())
            })?;
        }
        Ok(())
    })
}

pub(in super::super) fn adaptive_average_gradient(
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
) -> Result<()> {
    let planes = Planes::new(&outputs[0].layout.shape, &inputs[0].layout.shape);
    let (dy, grain) = (inputs[0].floats()?, planes.grain());
    run.paced_chunks(outputs[0].floats()?, grain * planes.area(), |pace, tile, dx| {
        let dy = &dy[tile * grain * planes.pooled_area()..];
        for (dx, dy) in dx.chunks_exact_mut(planes.area()).zip(dy.chunks_exact(planes.pooled_area())) {
            if let [dy] = dy {
                pace.fill(dx, dy / planes.area() as f32)?;
                continue;
            }
            pace.fill(dx, 0.0)?;
            planes.each_part(|index, rows, columns| {
                let share = dy[index] / (rows.len() * columns.len()) as f32;
                for row in rows {
                    let line = &mut dx[row * planes.width..][columns.clone()];
                    pace.stepped(line.len(), |range| line[range].iter_mut().for_each(|dx| *dx += share))?;
                }
                Ok(())
            })?;
        }
        Ok(())
    })
}

pub(in super::super) fn adaptive_max_gradient(
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
) -> Result<()> {
    let planes = Planes::new(&inputs[0].layout.shape, &inputs[1].layout.shape);
    let (x, dy, grain) = (inputs[0].floats()?, inputs[1].floats()?, planes.grain());
    run.paced_chunks(outputs[0].floats()?, grain * planes.area(), |pace, tile, dx| {
        let x = &x[tile * grain * planes.area()..];
        let dy = &dy[tile * grain * planes.pooled_area()..];
        let tensors = dx.chunks_exact_mut(planes.area()).zip(x.chunks_exact(planes.area()));
        for ((dx, x), dy) in tensors.zip(dy.chunks_exact(planes.pooled_area())) {
            pace.fill(dx, 0.0)?;
            planes.each_part(|index, rows, columns| {
                dx[position_of_largest(x, planes.width, rows, columns, pace)?] += dy[index];
                Ok(())
            })?;
        }
        Ok(())
    })
}
