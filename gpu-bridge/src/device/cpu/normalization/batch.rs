//! Normalization of each channel by its mean and variance over a batch.
//!
//! Memory is what this costs, so all that is done to a channel is done by one tile, while its data is in the cache. There
//! are two ways through the data. Where a channel of an image is long, loops run along it ([`planes`]); where it is
//! short, they run along all channels of an image at once ([`lanes`]).
//!
//! The statistics are taken in one pass, of differences from a value near the mean: the mean of the channel in the first
//! image or images. That is as accurate as two passes unless those are very far from all others.

use std::ops::Range;

use super::{near, results, statistics};
use crate::device::cpu::memory::{Input, Output};
use crate::error::Result;
use crate::op::{BatchNorm, BatchNormGradient, BatchNormInference, Statistics, Unary};
use crate::run::{Parts, Run};
use crate::shape::Shape;

mod lanes;
mod planes;

/// Elements per tile.
const TILE: usize = 1 << 15;

/// From this many elements of a channel of one image on, loops run along them.
const LONG: usize = 100;

/// What `[n, c, ...]` is to the kernels.
#[derive(Clone, Copy)]
struct Batch {
    images: usize,
    channels: usize,
    plane: usize,
}

impl Batch {
    fn of(shape: &Shape) -> Self {
        Self { images: shape[0], channels: shape[1], plane: shape[2..].iter().product() }
    }

    /// How many elements a channel has.
    fn count(&self) -> usize {
        self.images * self.plane
    }

    /// How many channels make a tile, with at least `lanes` elements of each image among them.
    fn grain(&self, lanes: usize) -> usize {
        let elements = lanes.max(TILE / self.images.max(1));
        (elements / self.plane.max(1)).max(1)
    }
}

/// What comes after normalization. It is computed again for the gradient.
trait Activation: Copy + Sync {
    fn apply(self, z: f32) -> f32;

    /// The gradient by `z`, given that by the result.
    fn back(self, z: f32, dy: f32) -> f32;
}

#[derive(Clone, Copy)]
struct Identity;

impl Activation for Identity {
    #[inline(always)]
    fn apply(self, z: f32) -> f32 {
        z
    }

    #[inline(always)]
    fn back(self, _: f32, dy: f32) -> f32 {
        dy
    }
}

#[derive(Clone, Copy)]
struct Relu;

impl Activation for Relu {
    #[inline(always)]
    fn apply(self, z: f32) -> f32 {
        if z <= 0.0 { 0.0 } else { z }
    }

    #[inline(always)]
    fn back(self, z: f32, dy: f32) -> f32 {
        if z <= 0.0 { 0.0 } else { dy }
    }
}

#[derive(Clone, Copy)]
struct Relu6;

impl Activation for Relu6 {
    #[inline(always)]
    fn apply(self, z: f32) -> f32 {
        let z = if z <= 0.0 { 0.0 } else { z };
        if z >= 6.0 { 6.0 } else { z }
    }

    #[inline(always)]
    fn back(self, z: f32, dy: f32) -> f32 {
        let dy = if z <= 0.0 { 0.0 } else { dy };
        if z >= 6.0 { 0.0 } else { dy }
    }
}

#[derive(Clone, Copy)]
struct HardSwish;

impl Activation for HardSwish {
    #[inline(always)]
    fn apply(self, z: f32) -> f32 {
        z * Relu6.apply(z + 3.0) * (1.0 / 6.0)
    }

    #[inline(always)]
    fn back(self, z: f32, dy: f32) -> f32 {
        let between = dy * (z * (1.0 / 3.0) + 0.5);
        let slope = if z >= 3.0 { dy } else { between };
        if z <= -3.0 { 0.0 } else { slope }
    }
}

/// Calls a function with the activation as a type, so that there is a loop for each.
macro_rules! with_activation {
    ($activation:expr, |$name:ident| $body:expr) => {
        match $activation {
            Some(Unary::Relu) => {
                let $name = Relu;
                $body
            }
            Some(Unary::Relu6) => {
                let $name = Relu6;
                $body
            }
            Some(Unary::HardSwish) => {
                let $name = HardSwish;
                $body
            }
            _ => {
                let $name = Identity;
                $body
            }
        }
    };
}

/// The statistics of a channel and what normalizing needs of them.
#[derive(Clone, Copy)]
struct Channel {
    mean: f32,
    rstd: f32,
    scale: f32,
    shift: f32,
}

impl Channel {
    #[inline(always)]
    fn new(mean: f32, variance: f32, epsilon: f32, scale: f32, shift: f32) -> Self {
        let rstd = (1.0 / (f64::from(variance) + f64::from(epsilon)).sqrt()) as f32;
        Self { mean, rstd, scale, shift }
    }
}

/// Mean and variance of every channel.
enum Moments<'a> {
    /// Of the batch: each tile takes those of its channels and writes them here.
    OfBatch {
        mean: Parts<'a, f32>,
        variance: Parts<'a, f32>,
    },
    Given {
        mean: &'a [f32],
        variance: &'a [f32],
    },
}

impl Moments<'_> {
    /// Those of some channels; `take` writes them where they are not given. Only the tile of these channels may ask.
    #[inline(always)]
    fn of(
        &self,
        channels: Range<usize>,
        take: impl FnOnce(&mut [f32], &mut [f32]) -> Result<()>,
    ) -> Result<(&[f32], &[f32])> {
        match self {
            Self::OfBatch { mean, variance } => {
                // SAFETY: each channel belongs to one tile.
                let (mean, variance) = unsafe { (mean.part(channels.clone()), variance.part(channels)) };
                take(mean, variance)?;
                Ok((mean, variance))
            }
            Self::Given { mean, variance } => Ok((&mean[channels.clone()], &variance[channels])),
        }
    }
}

/// The tensors of a forward pass.
struct Forward<'a> {
    x: &'a [f32],
    scale: &'a [f32],
    shift: &'a [f32],
    moments: Moments<'a>,
    y: Parts<'a, f32>,
    epsilon: f32,
}

impl Forward<'_> {
    #[inline(always)]
    fn channel(&self, index: usize, mean: f32, variance: f32) -> Channel {
        Channel::new(mean, variance, self.epsilon, self.scale[index], self.shift[index])
    }
}

/// The tensors of a backward pass.
struct Backward<'a> {
    x: &'a [f32],
    dy: &'a [f32],
    scale: &'a [f32],
    /// None without an activation: only that needs it.
    shift: Option<&'a [f32]>,
    mean: &'a [f32],
    variance: &'a [f32],
    dx: Parts<'a, f32>,
    dscale: Parts<'a, f32>,
    dshift: Parts<'a, f32>,
    epsilon: f32,
    statistics: Statistics,
}

impl Backward<'_> {
    #[inline(always)]
    fn channel(&self, index: usize) -> Channel {
        let shift = self.shift.map_or(0.0, |shift| shift[index]);
        Channel::new(self.mean[index], self.variance[index], self.epsilon, self.scale[index], shift)
    }

    /// What is subtracted because mean and variance depend on the input: the mean of the gradient, and of its product with
    /// the normalized input.
    #[inline(always)]
    fn corrections(&self, dshift: f64, dscale: f64, count: usize) -> (f32, f32) {
        match self.statistics {
            Statistics::OfBatch => ((dshift / count as f64) as f32, (dscale / count as f64) as f32),
            Statistics::Given => (0.0, 0.0),
        }
    }
}

pub(in super::super) fn batch(
    op: &BatchNorm,
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
) -> Result<()> {
    let [y, mean, variance] = results(outputs)?;
    let moments = Moments::OfBatch { mean: Parts::new(mean.floats()?), variance: Parts::new(variance.floats()?) };
    forward(inputs, y, moments, op.epsilon, op.activation, run)
}

pub(in super::super) fn batch_inference(
    op: &BatchNormInference,
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
) -> Result<()> {
    let moments = Moments::Given { mean: inputs[3].floats()?, variance: inputs[4].floats()? };
    forward(inputs, &mut outputs[0], moments, op.epsilon, op.activation, run)
}

fn forward(
    inputs: &[Input<'_>],
    y: &mut Output<'_>,
    moments: Moments<'_>,
    epsilon: f32,
    activation: Option<Unary>,
    run: &Run<'_>,
) -> Result<()> {
    let batch = Batch::of(&inputs[0].layout.shape);
    let forward = Forward {
        x: inputs[0].floats()?,
        scale: inputs[1].floats()?,
        shift: inputs[2].floats()?,
        moments,
        y: Parts::new(y.floats()?),
        epsilon,
    };
    with_activation!(activation, |activation| if batch.plane >= LONG {
        planes::forward(batch, &forward, activation, run)
    } else {
        lanes::forward(batch, &forward, activation, run)
    })
}

pub(in super::super) fn batch_gradient(
    op: &BatchNormGradient,
    inputs: &[Input<'_>],
    outputs: &mut [Output<'_>],
    run: &Run<'_>,
) -> Result<()> {
    let batch = Batch::of(&inputs[0].layout.shape);
    let [dx, dscale, dshift] = results(outputs)?;
    if inputs[0].layout.shape.elements() == 0 {
        // There may be any number of images without a single element.
        dscale.floats()?.fill(0.0);
        dshift.floats()?.fill(0.0);
        return Ok(());
    }
    let backward = Backward {
        x: inputs[0].floats()?,
        dy: inputs[4].floats()?,
        scale: inputs[1].floats()?,
        shift: inputs.get(5).map(Input::floats).transpose()?,
        mean: inputs[2].floats()?,
        variance: inputs[3].floats()?,
        dx: Parts::new(dx.floats()?),
        dscale: Parts::new(dscale.floats()?),
        dshift: Parts::new(dshift.floats()?),
        epsilon: op.epsilon,
        statistics: op.statistics,
    };
    with_activation!(op.activation, |activation| if batch.plane >= LONG {
        planes::gradient(batch, &backward, activation, run)
    } else {
        lanes::gradient(batch, &backward, activation, run)
    })
}
