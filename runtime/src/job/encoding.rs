//! How a worker writes down what it hands over, by the job's codec.
//!
//! Gradients are encoded as they are. Of weights it is the difference to the model that the round began with, which is
//! small and of which a codec may leave something out; what it leaves out is kept and added to the next difference.

use std::ops::Range;

use bytes::Bytes;
use weft_gpu::op::Stream;
use weft_gpu::{Codec, Feedback, Tensor};

use super::work_order::Assignment;
use super::worker::WorkerError;
use crate::train::declared::Declared;

/// Makes the random numbers of codecs differ from those of the trainer.
const CODEC_SEED: u64 = 0xc0de << 48;

/// One worker's codec, and what it has not sent yet.
pub struct Encoder {
    codec: Codec,
    seed: u64,
    /// By shard.
    residuals: Vec<Tensor>,
}

/// Numbers as a codec wrote them, a frame for each shard.
pub type Frames = Vec<Bytes>;

impl Encoder {
    pub fn new(codec: Codec, seed: u64, worker: u32) -> Self {
        let seed = seed.wrapping_add(u64::from(worker).wrapping_mul(0x9e37_79b9_7f4a_7c15)) ^ CODEC_SEED;
        Self { codec, seed, residuals: Vec::new() }
    }

    pub fn is_plain(&self) -> bool {
        self.codec == Codec::Plain
    }

    /// The step's gradients.
    pub fn gradients(
        &mut self,
        declared: &Declared,
        shards: &[Range<usize>],
        assignment: &Assignment,
    ) -> Result<Frames, WorkerError> {
        self.encode(declared.arena().gradients()?, declared, shards, assignment)
    }

    /// The difference of the worker's weights to `base`, those of the model that the round began with.
    pub fn weights(
        &mut self,
        declared: &Declared,
        mut weights: Vec<f32>,
        base: &[f32],
        shards: &[Range<usize>],
        assignment: &Assignment,
    ) -> Result<Frames, WorkerError> {
        weights.iter_mut().zip(base).for_each(|(weight, model)| *weight -= model);
        let difference = declared.arena().values().context().tensor(&[weights.len()], &weights)?;
        drop(weights);
        self.encode(&difference, declared, shards, assignment)
    }

    /// What was not sent so far, of all shards; nothing for a codec that sends all.
    pub fn residual(&self) -> Result<Vec<f32>, weft_gpu::Error> {
        let mut residual = Vec::new();
        for shard in &self.residuals {
            residual.extend(shard.to_vec::<f32>()?);
        }
        Ok(residual)
    }

    /// Each of `shards` by itself. They follow one another and make up all numbers.
    fn encode(
        &mut self,
        numbers: &Tensor,
        declared: &Declared,
        shards: &[Range<usize>],
        assignment: &Assignment,
    ) -> Result<Frames, WorkerError> {
        let (context, length) = (numbers.context(), numbers.shape().elements());
        if self.codec.takes_residual() && self.residuals.len() != shards.len() {
            let before = assignment.worker_state.as_ref().map(|state| &state.residual[..]).unwrap_or_default();
            let residual = |range: &Range<usize>| match before.get(range.clone()).filter(|_| before.len() == length) {
                Some(before) => context.tensor(&[range.len()], before),
                None => context.zeros(&[range.len()]),
            };
            self.residuals = shards.iter().map(residual).collect::<Result<_, _>>()?;
        }
        // Taken: after an error they hold anything.
        let residuals = std::mem::take(&mut self.residuals);
        let mut frames = Vec::with_capacity(shards.len());
        for (index, range) in shards.iter().enumerate() {
            let part = |tensor: &Tensor| match range.len() == length {
                true => Ok(tensor.detach()),
                false => tensor.detach().narrow(0, range.start, range.len())?.contiguous(),
            };
            let weights = self.codec.takes_weights().then(|| part(declared.arena().values())).transpose()?;
            let feedback = Feedback { residual: residuals.get(index), weights: weights.as_ref() };
            // Each shard of each step has random numbers of its own.
            let seed = self.seed.wrapping_add((index as u64).wrapping_mul(0xd1b5_4a32_d192_ed03));
            let stream = Stream { seed, offset: assignment.at.step };
            frames.push(self.codec.encode(&part(numbers)?, feedback, stream)?.to_wire()?.into());
        }
        self.residuals = residuals;
        Ok(frames)
    }
}
