//! Convolution in two dimensions and its two gradients, by whatever is fastest for the shape.
//!
//! - [`trim`]: first, taps that only ever see padding are left out
//! - [`single`]: images of one pixel
//! - [`winograd`]: 3 x 3 with stride 1 and enough channels
//! - [`depthwise`]: one channel per group
//! - [`direct`]: images without a border, where vectors are as wide as there are output channels
//! - [`shifted`]: other kernels on images that are not too small, and the gradient of the weight there
//! - [`interleaved`]: small maps of many images
//! - [`deep`]: kernels of more than 65,536 products an output
//! - [`columns`]: everything else forward
//! - [`scatter`]: the gradient of the input at strides above 1; at stride 1 it is a convolution too, or [`back`] where
//!   that would mostly multiply zeros
//! - [`outer`]: the gradient of the weight where there are enough output channels
//! - [`weight`]: the gradient of the weight for what is left

use super::memory::{Input, Output};
use super::panel::ROWS;
use crate::error::Result;
use crate::op::{Conv2d, Conv2dGradientInput, Conv2dGradientWeight};
use crate::run::{PIECE, Run};
use crate::shape::Shape;
use trim::Trim;

mod back;
mod columns;
mod deep;
mod depthwise;
mod direct;
mod interleaved;
mod outer;
mod scatter;
mod shifted;
mod single;
mod trim;
mod weight;
mod winograd;

/// All sizes of a convolution. Channels are those of one group.
#[derive(Clone, Copy, Debug)]
struct Geometry {
    images: usize,
    groups: usize,
    /// Input channels of a group.
    inputs: usize,
    /// Output channels of a group.
    outputs: usize,
    /// Height and width, as are all pairs here.
    from: [usize; 2],
    to: [usize; 2],
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
}

impl Geometry {
    fn new(conv: &Conv2d, x: &Shape, weight: &Shape, y: &Shape) -> Self {
        Self {
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
        }
    }

    /// Elements of one channel of the input.
    fn input_plane(&self) -> usize {
        self.from[0] * self.from[1]
    }

    /// Elements of one channel of the output.
    fn output_plane(&self) -> usize {
        self.to[0] * self.to[1]
    }

    fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    /// Elements of the kernel that one output sees.
    fn depth(&self) -> usize {
        self.inputs * self.taps()
    }

    fn is_pointwise(&self) -> bool {
        self.kernel == [1, 1] && self.stride == [1, 1] && self.padding == [0, 0]
    }

    /// The same convolution with the planes laid out as one row, where pixels do not see their neighbours.
    fn flattened(self) -> Self {
        if !self.is_pointwise() {
            return self;
        }
        let plane = self.input_plane();
        Self { from: [1, plane], to: [1, plane], ..self }
    }

    /// The convolution that computes the gradient of the input of this one, if there is one: stride 1 only. Its weight is
    /// this one's with the channels swapped and the taps reversed.
    fn reversed(&self) -> Option<Self> {
        let reach = [0, 1].map(|axis| (self.kernel[axis] - 1) * self.dilation[axis]);
        if self.stride != [1, 1] || self.padding[0] > reach[0] || self.padding[1] > reach[1] {
            return None;
        }
        Some(Self {
            inputs: self.outputs,
            outputs: self.inputs,
            from: self.to,
            to: self.from,
            padding: [reach[0] - self.padding[0], reach[1] - self.padding[1]],
            ..*self
        })
    }

    /// Where tap `tap` of an output at `at` looks along an axis, if it looks inside the input.
    #[inline(always)]
    fn source(&self, axis: usize, at: usize, tap: usize) -> Option<usize> {
        (at * self.stride[axis] + tap * self.dilation[axis])
            .checked_sub(self.padding[axis])
            .filter(|&source| source < self.from[axis])
    }
}

/// A weight as the convolution that uses it sees it: as it is, or reversed for the gradient of the input.
#[derive(Clone, Copy)]
struct Weight<'a> {
    data: &'a [f32],
    reversed: bool,
}

impl Weight<'_> {
    /// The element for these channels of a group, as `geometry` (the one of the convolution that is run) counts them.
    #[inline(always)]
    fn at(&self, geometry: &Geometry, group: usize, output: usize, input: usize, tap: usize) -> f32 {
        let taps = geometry.taps();
        let channels = geometry.inputs * geometry.outputs * taps;
        if self.reversed {
            self.data[group * channels + (input * geometry.outputs + output) * taps + taps - 1 - tap]
        } else {
            self.data[group * channels + (output * geometry.inputs + input) * taps + tap]
        }
    }
}

pub(super) fn forward(conv: &Conv2d, inputs: &[Input<'_>], outputs: &mut [Output<'_>], run: &Run<'_>) -> Result<()> {
    let geometry = Geometry::new(conv, &inputs[0].layout.shape, &inputs[1].layout.shape, &outputs[0].layout.shape);
    let (x, weight) = (inputs[0].floats()?, inputs[1].floats()?);
    let bias = inputs.get(2).map(Input::floats).transpose()?;
    let y = outputs[0].floats()?;
    if y.is_empty() {
        return Ok(());
    }
    // Looked at before anything goes through the taps: kernels without channels take no memory, and may be of any size.
    if x.is_empty() || geometry.depth() == 0 {
        return fill_with_bias(&geometry, bias, y, run);
    }
    match Trim::new(&geometry, run)? {
        None => convolve(&geometry, x, Weight { data: weight, reversed: false }, bias, y, run),
        Some(trim) => {
            let mut weight = trim.weight(weight, run)?;
            convolve(&trim.geometry, x, Weight { data: weight.floats(), reversed: false }, bias, y, run)
        }
    }
}

/// The result where no output sees anything.
fn fill_with_bias(geometry: &Geometry, bias: Option<&[f32]>, y: &mut [f32], run: &Run<'_>) -> Result<()> {
    let channels = geometry.groups * geometry.outputs;
    let plane = geometry.output_plane();
    let together = (PIECE / plane).max(1);
    run.paced_chunks(y, plane * together, |pace, tile, y| {
        let first = tile * together;
        for (index, y) in y.chunks_exact_mut(plane).enumerate() {
            pace.fill(y, bias.map_or(0.0, |bias| bias[(first + index) % channels]))?;
        }
        Ok(())
    })
}

/// Neither the input nor the weight is empty.
fn convolve(
    geometry: &Geometry,
    x: &[f32],
    weight: Weight<'_>,
    bias: Option<&[f32]>,
    y: &mut [f32],
    run: &Run<'_>,
) -> Result<()> {
    if single::suits(geometry) && !weight.reversed {
        single::forward(geometry, x, weight.data, bias, y, run)
    } else if depthwise::suits(geometry) && !weight.reversed {
        depthwise::forward(geometry, x, weight.data, bias, y, run)
    } else if winograd::suits(geometry) {
        winograd::forward(geometry, x, weight, bias, y, run)
    } else if direct::suits(&geometry.flattened()) {
        direct::forward(&geometry.flattened(), x, weight, bias, y, run)
    } else if deep::suits(geometry) {
        deep::forward(&geometry.flattened(), x, weight, bias, y, run)
    } else {
        let geometry = &geometry.flattened();
        let mut packed = run.scratch(geometry.groups * geometry.outputs.div_ceil(ROWS) * geometry.depth() * ROWS)?;
        pack_weight(geometry, weight, packed.floats(), run)?;
        if shifted::suits(geometry) {
            shifted::forward(geometry, x, packed.floats(), bias, y, run)
        } else if interleaved::suits(geometry) {
            interleaved::forward(geometry, x, packed.floats(), bias, y, run)
        } else {
            columns::forward(geometry, x, packed.floats(), bias, y, run)
        }
    }
}

/// Lays the weight out as panels of output channels.
fn pack_weight(geometry: &Geometry, weight: Weight<'_>, packed: &mut [f32], run: &Run<'_>) -> Result<()> {
    let (depth, taps) = (geometry.depth(), geometry.taps());
    let row_panels = geometry.outputs.div_ceil(ROWS);
    // A panel takes less than a microsecond unless it is long.
    let together = ((1 << 14) / (depth * ROWS).max(1)).max(1);
    run.paced_chunks(packed, together * depth * ROWS, |pace, piece, packed| {
        for (index, packed) in packed.chunks_exact_mut(depth * ROWS).enumerate() {
            let panel = piece * together + index;
            let (group, first) = (panel / row_panels, panel % row_panels * ROWS);
            for (row, output) in (first..first + ROWS).enumerate() {
                if output >= geometry.outputs {
                    packed.iter_mut().skip(row).step_by(ROWS).for_each(|place| *place = 0.0);
                    continue;
                }
                for input in 0..geometry.inputs {
                    pace.step(taps.min(PIECE))?;
                    pace.pieces(taps, |range| {
                        for tap in range {
                            packed[(input * taps + tap) * ROWS + row] = weight.at(geometry, group, output, input, tap);
                        }
                    })?;
                }
            }
        }
        Ok(())
    })
}

pub(super) fn gradient_input(
    op: &Conv2dGradientInput,
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
) -> Result<()> {
    let (dy, weight) = (inputs[0].floats()?, inputs[1].floats()?);
    let geometry = Geometry::new(&op.conv, &op.input, &inputs[1].layout.shape, &inputs[0].layout.shape);
    let dx = outputs[0].floats()?;
    if dy.is_empty() || weight.is_empty() || dx.is_empty() {
        return run.fill(dx, 0.0);
    }
    match Trim::new(&geometry, run)? {
        None => spread(&geometry, dy, weight, dx, run),
        Some(trim) => spread(&trim.geometry, dy, trim.weight(weight, run)?.floats(), dx, run),
    }
}

fn spread(geometry: &Geometry, dy: &[f32], weight: &[f32], dx: &mut [f32], run: &Run<'_>) -> Result<()> {
    if single::suits(geometry) {
        return single::gradient_input(geometry, dy, weight, dx, run);
    }
    if depthwise::suits(geometry) {
        return depthwise::gradient_input(geometry, dy, weight, dx, run);
    }
    // Near the edges a reversed convolution mostly multiplies zeros.
    match geometry.reversed().filter(|_| 2 * geometry.input_plane() <= 3 * geometry.output_plane()) {
        Some(reversed) => convolve(&reversed, dy, Weight { data: weight, reversed: true }, None, dx, run),
        None if back::suits(geometry) => back::gradient_input(geometry, dy, weight, dx, run),
        None => scatter::gradient_input(geometry, dy, weight, dx, run),
    }
}

pub(super) fn gradient_weight(
    op: &Conv2dGradientWeight,
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
) -> Result<()> {
    let (x, dy) = (inputs[0].floats()?, inputs[1].floats()?);
    let geometry = Geometry::new(&op.conv, &inputs[0].layout.shape, &op.weight, &inputs[1].layout.shape);
    let dw = outputs[0].floats()?;
    if dy.is_empty() || x.is_empty() || dw.is_empty() {
        return run.fill(dw, 0.0);
    }
    match Trim::new(&geometry, run)? {
        None => correlate(&geometry, x, dy, dw, run),
        Some(trim) => {
            let mut trimmed = run.scratch(dw.len() / geometry.taps() * trim.geometry.taps())?;
            correlate(&trim.geometry, x, dy, trimmed.floats(), run)?;
            trim.restore(trimmed.floats(), dw, run)
        }
    }
}

fn correlate(geometry: &Geometry, x: &[f32], dy: &[f32], dw: &mut [f32], run: &Run<'_>) -> Result<()> {
    if single::suits(geometry) {
        single::gradient_weight(geometry, x, dy, dw, run)
    } else if depthwise::suits(geometry) {
        depthwise::gradient_weight(geometry, x, dy, dw, run)
    } else if winograd::suits(geometry) {
        winograd::gradient_weight(geometry, x, dy, dw, run)
    } else {
        let geometry = &geometry.flattened();
        if outer::suits(geometry) {
            outer::gradient_weight(geometry, x, dy, dw, run)
        } else if shifted::suits_weight(geometry) {
            shifted::gradient_weight(geometry, x, dy, dw, run)
        } else {
            weight::gradient(geometry, x, dy, dw, run)
        }
    }
}

/// The sum of parts of one size, in order.
fn add_parts(parts: &[f32], into: &mut [f32], run: &Run<'_>) -> Result<()> {
    const PIECE: usize = 1 << 14;
    let size = into.len();
    run.chunks(into, PIECE, |index, into| {
        let at = index * PIECE;
        into.copy_from_slice(&parts[at..at + into.len()]);
        for part in parts.chunks_exact(size).skip(1) {
            into.iter_mut().zip(&part[at..]).for_each(|(sum, more)| *sum += more);
        }
    })
}
