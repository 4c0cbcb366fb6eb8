//! A convolution and its gradients as products of matrices whose factors are looked up: see `sampled.wgsl`.

use crate::error::{Error, Result};
use crate::op::Conv2d;
use crate::shape::Shape;

use super::super::matrix::tiling::Sizes;

/// All sizes of a convolution. Channels are those of one group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    pub(super) images: usize,
    pub(super) groups: usize,
    /// Input channels of a group.
    pub(super) inputs: usize,
    /// Output channels of a group.
    pub(super) outputs: usize,
    /// Height and width, as are all pairs here.
    pub(super) from: [usize; 2],
    pub(super) to: [usize; 2],
    pub(super) kernel: [usize; 2],
    pub(super) stride: [usize; 2],
    pub(super) padding: [usize; 2],
    pub(super) dilation: [usize; 2],
}

/// What a product is looked up by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lookup {
    pub(super) sizes: Sizes,
    pub(super) depth_sizes: [usize; 2],
    pub(super) column_sizes: [usize; 2],
    pub(super) left_group: usize,
    pub(super) left_offset: usize,
    pub(super) left_row: usize,
    pub(super) left_units: [usize; 3],
    pub(super) right_group: usize,
    /// Modulo 2^32, as is `start`.
    pub(super) depth_units: [u32; 3],
    pub(super) column_units: [u32; 3],
    pub(super) start: [u32; 2],
    pub(super) image: [usize; 2],
    pub(super) put_group: usize,
    pub(super) put_offset: usize,
    pub(super) put_row: usize,
    pub(super) put_units: [usize; 3],
    /// Whether what lies side by side in the image belongs to neighbours along the depth.
    pub(super) depth_first: bool,
}

/// Modulo 2^32.
fn wrapped(distance: i128) -> u32 {
    distance.rem_euclid(1 << 32) as u32
}

impl Geometry {
    pub(super) fn new(op: &'static str, conv: &Conv2d, x: &Shape, weight: &Shape, y: &Shape) -> Result<Self> {
        let geometry = Self {
            images: x[0],
            groups: conv.groups,
            inputs: weight[1],
            outputs: weight[0] / conv.groups,
            from: [x[2], x[3]],
            to: [y[2], y[3]],
            kernel: [weight[2], weight[3]],
            stride: conv.stride,
            padding: conv.padding,
            dilation: conv.dilation,
        };
        // Positions are counted modulo 2^32, and must not come round to where an image is.
        let reach = |axis: usize| 2 * geometry.from[axis] + 2 * geometry.padding[axis] + geometry.to[axis];
        if [0, 1].into_iter().any(|axis| reach(axis) > u32::MAX as usize) {
            return Err(Error::TooLarge { reason: format!("`{op}`: {conv:?}: more padding than a GPU can count") });
        }
        Ok(geometry)
    }

    pub(super) fn input_plane(&self) -> usize {
        self.from[0] * self.from[1]
    }

    pub(super) fn output_plane(&self) -> usize {
        self.to[0] * self.to[1]
    }

    pub(super) fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    /// Whether every channel is convolved with its own kernel.
    pub(super) fn is_depthwise(&self) -> bool {
        self.inputs == 1 && self.outputs == 1
    }

    /// Multiply-adds, as operations.
    pub(super) fn flops(&self) -> u64 {
        let outputs = (self.images * self.groups * self.outputs * self.output_plane()) as u64;
        outputs.saturating_mul(2 * (self.inputs * self.taps()) as u64)
    }

    /// The result from input and weight.
    pub(super) fn forward(&self) -> Lookup {
        let (from, to, taps) = (self.input_plane(), self.output_plane(), self.taps());
        let depth = if from == 0 { 0 } else { self.inputs * taps };
        Lookup {
            sizes: Sizes { batch: self.groups, rows: self.outputs, columns: self.images * to, depth },
            depth_sizes: self.kernel,
            column_sizes: self.to,
            left_group: self.outputs * self.inputs * taps,
            left_offset: 0,
            left_row: self.inputs * taps,
            left_units: [taps, self.kernel[1], 1],
            right_group: self.inputs * from,
            depth_units: self.tap_units(),
            column_units: self.window_units(),
            start: self.start(),
            image: self.from,
            put_group: self.outputs * to,
            put_offset: 0,
            put_row: to,
            put_units: [self.groups * self.outputs * to, self.to[1], 1],
            depth_first: false,
        }
    }

    /// The gradient of the weight from the gradient of the result and the input.
    pub(super) fn gradient_weight(&self) -> Lookup {
        let (from, to, taps) = (self.input_plane(), self.output_plane(), self.taps());
        let depth = if from == 0 { 0 } else { self.images * to };
        Lookup {
            sizes: Sizes { batch: self.groups, rows: self.outputs, columns: self.inputs * taps, depth },
            depth_sizes: self.to,
            column_sizes: self.kernel,
            left_group: self.outputs * to,
            left_offset: 0,
            left_row: to,
            left_units: [self.groups * self.outputs * to, self.to[1], 1],
            right_group: self.inputs * from,
            depth_units: self.window_units(),
            column_units: self.tap_units(),
            start: self.start(),
            image: self.from,
            put_group: self.outputs * self.inputs * taps,
            put_offset: 0,
            put_row: self.inputs * taps,
            put_units: [taps, self.kernel[1], 1],
            depth_first: true,
        }
    }

    /// The gradient of those elements of the input that lie `phase` past a multiple of the stride, from the weight and the
    /// gradient of the result. They all see the same taps, and neighbours among them see neighbours in the result.
    pub(super) fn gradient_input(&self, phase: [usize; 2]) -> Lookup {
        let (from, to, taps) = (self.input_plane(), self.output_plane(), self.taps());
        let seen = [0, 1].map(|axis| self.seen(axis, phase[axis]));
        let images = [0, 1].map(|axis| (self.from[axis] - phase[axis]).div_ceil(self.stride[axis]));
        let depth = if to == 0 { 0 } else { self.outputs * seen[0].count * seen[1].count };
        Lookup {
            sizes: Sizes { batch: self.groups, rows: self.inputs, columns: self.images * images[0] * images[1], depth },
            depth_sizes: seen.map(|seen| seen.count.max(1)),
            column_sizes: images,
            left_group: self.outputs * self.inputs * taps,
            left_offset: if depth == 0 { 0 } else { seen[0].first * self.kernel[1] + seen[1].first },
            left_row: taps,
            left_units: [self.inputs * taps, seen[0].step * self.kernel[1], seen[1].step],
            right_group: self.outputs * to,
            depth_units: [to as u32, seen[0].back, seen[1].back],
            column_units: [(self.groups * self.outputs * to) as u32, 1, 1],
            start: seen.map(|seen| seen.start),
            image: self.to,
            put_group: self.inputs * from,
            put_offset: phase[0] * self.from[1] + phase[1],
            put_row: from,
            put_units: [self.groups * self.inputs * from, self.stride[0] * self.from[1], self.stride[1]],
            depth_first: false,
        }
    }

    /// How many phases there are along an axis.
    pub(super) fn phases(&self, axis: usize) -> usize {
        self.stride[axis].min(self.from[axis])
    }

    /// Which taps see the elements of a phase: those for which `phase + padding - tap * dilation` is a multiple of the
    /// stride.
    fn seen(&self, axis: usize, phase: usize) -> Seen {
        let [stride, padding, dilation] = [self.stride[axis], self.padding[axis], self.dilation[axis]];
        let common = gcd(stride, dilation);
        let step = stride / common;
        let remainder = (phase + padding) % stride;
        // The least tap for which `tap * dilation` leaves this remainder: worked out, as strides may be any number.
        let first = (remainder as u128 / common as u128 * inverse(dilation / common, step) as u128) % step as u128;
        let first = first as usize;
        if !remainder.is_multiple_of(common) || first >= self.kernel[axis] {
            return Seen { first: 0, step: 1, count: 0, back: 0, start: 0 };
        }
        let distance = (phase + padding) as i128 - (first * dilation) as i128;
        Seen {
            first,
            step,
            count: (self.kernel[axis] - first).div_ceil(step),
            back: wrapped(-((step * dilation / stride) as i128)),
            start: wrapped(distance / stride as i128),
        }
    }

    /// How far a step of the kernel goes in the input.
    fn tap_units(&self) -> [u32; 3] {
        [self.input_plane(), self.dilation[0], self.dilation[1]].map(|unit| unit as u32)
    }

    /// How far a step of the result goes in the input.
    fn window_units(&self) -> [u32; 3] {
        let image = self.groups * self.inputs * self.input_plane();
        [image, self.stride[0], self.stride[1]].map(|unit| unit as u32)
    }

    fn start(&self) -> [u32; 2] {
        self.padding.map(|padding| wrapped(-(padding as i128)))
    }
}

/// Taps along an axis, every `step` from `first` on.
#[derive(Clone, Copy)]
struct Seen {
    first: usize,
    step: usize,
    count: usize,
    /// How far back each next one looks in the result, and where the first one does; modulo 2^32.
    back: u32,
    start: u32,
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// What a number is multiplied with to leave 1 when divided by the modulus, with which it has no factor in common.
fn inverse(number: usize, modulus: usize) -> usize {
    let modulus = modulus as i128;
    let (mut rest, mut next_rest) = (modulus, number as i128 % modulus);
    let (mut factor, mut next_factor) = (0, 1);
    while next_rest != 0 {
        let quotient = rest / next_rest;
        (rest, next_rest) = (next_rest, rest - quotient * next_rest);
        (factor, next_factor) = (next_factor, factor - quotient * next_factor);
    }
    factor.rem_euclid(modulus) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_taps_that_see_a_phase_are_those_whose_distance_the_stride_divides() {
        for (stride, dilation, padding, kernel) in (1..9)
            .flat_map(|stride| (1..9).flat_map(move |dilation| [(stride, dilation, 0, 9), (stride, dilation, 5, 7)]))
        {
            let geometry = Geometry {
                images: 1,
                groups: 1,
                inputs: 1,
                outputs: 1,
                from: [40, 40],
                to: [40, 40],
                kernel: [kernel; 2],
                stride: [stride; 2],
                padding: [padding; 2],
                dilation: [dilation; 2],
            };
            for phase in 0..stride {
                let seen = geometry.seen(0, phase);
                let found: Vec<_> = (0..seen.count).map(|index| seen.first + index * seen.step).collect();
                let sees = |tap: &usize| (phase + padding).abs_diff(tap * dilation).is_multiple_of(stride);
                let want: Vec<_> = (0..kernel).filter(sees).collect();
                assert_eq!(found, want, "stride {stride}, dilation {dilation}, padding {padding}, phase {phase}");
            }
        }
    }
}
