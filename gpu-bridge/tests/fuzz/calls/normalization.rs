//! Normalization, rows to probabilities, and losses.

use weft_gpu::op::{
    BatchNorm, BatchNormGradient, BatchNormInference, LayerNorm, LayerNormGradient, LocalResponseNorm,
    LocalResponseNormGradient, LogSoftmax, LogSoftmaxGradient, Loss, LossKind, MaskedSoftmax, Reduction, Softmax,
    SoftmaxGradient, Statistics, Unary,
};
use weft_gpu::{DType, MAX_RANK};

use super::elementwise::unary;
use super::{Call, Generate, Make, Want, call};

fn epsilon(make: &mut Make<'_, '_>) -> f32 {
    make.bytes.float(1e-5, 0.1)
}

/// Mostly those that batch normalization takes.
fn activation(make: &mut Make<'_, '_>) -> Option<Unary> {
    match make.bytes.below(9) {
        0 | 1 => Some(Unary::Relu),
        2 | 3 => Some(Unary::Relu6),
        4 | 5 => Some(Unary::HardSwish),
        6 => Some(unary(make)),
        _ => None,
    }
}

/// `x` and so many tensors of one element per channel.
fn channels(make: &mut Make<'_, '_>, count: usize) -> Option<Vec<Want>> {
    let x = make.shape(2, 5);
    let mut inputs = vec![make.f32(&x)?];
    for _ in 0..count {
        inputs.push(make.f32(&x[1..2])?);
    }
    Some(inputs)
}

impl Generate for BatchNorm {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        call(Self { epsilon: epsilon(make), activation: activation(make) }, channels(make, 2)?)
    }
}

impl Generate for BatchNormGradient {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let activation = activation(make);
        let statistics = make.bytes.pick(&[Statistics::OfBatch, Statistics::Given]);
        let mut inputs = channels(make, 3)?;
        let x = inputs[0].meta.shape;
        inputs.push(make.f32(&x)?);
        if activation.is_some() {
            inputs.push(make.f32(&x[1..2])?);
        }
        call(Self { epsilon: epsilon(make), activation, statistics }, inputs)
    }
}

impl Generate for BatchNormInference {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        call(Self { epsilon: epsilon(make), activation: activation(make) }, channels(make, 4)?)
    }
}

impl Generate for LayerNorm {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let x = make.shape(1, MAX_RANK);
        let row = &x[x.len() - 1..];
        call(Self { epsilon: epsilon(make) }, [make.f32(&x)?, make.f32(row)?, make.f32(row)?])
    }
}

impl Generate for LayerNormGradient {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let x = make.shape(1, MAX_RANK);
        let (rows, row) = x.split_at(x.len() - 1);
        call(Self, [make.f32(&x)?, make.f32(row)?, make.f32(rows)?, make.f32(rows)?, make.f32(&x)?])
    }
}

fn local_response(make: &mut Make<'_, '_>) -> LocalResponseNorm {
    let size = make.bytes.within(1, 7);
    LocalResponseNorm {
        size: make.bytes.size(size),
        alpha: make.bytes.float(0.0, 1.0),
        beta: make.bytes.float(0.0, 1.0),
        k: make.bytes.float(0.5, 2.0),
    }
}

impl Generate for LocalResponseNorm {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let shape = make.shape(3, 5);
        call(local_response(make), [make.f32(&shape)?])
    }
}

impl Generate for LocalResponseNormGradient {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let shape = make.shape(3, 5);
        call(Self(local_response(make)), [make.f32(&shape)?, make.f32(&shape)?])
    }
}

impl Generate for Softmax {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let shape = make.shape(1, MAX_RANK);
        call(Self, [make.f32(&shape)?])
    }
}

impl Generate for LogSoftmax {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let shape = make.shape(1, MAX_RANK);
        call(Self, [make.f32(&shape)?])
    }
}

impl Generate for MaskedSoftmax {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let shape = make.shape(1, MAX_RANK);
        let mask = make.narrower(&shape);
        call(Self, [make.f32(&shape)?, make.index(&mask, 2, DType::U8)?])
    }
}

impl Generate for SoftmaxGradient {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let shape = make.shape(1, MAX_RANK);
        call(Self, [make.f32(&shape)?, make.f32(&shape)?])
    }
}

impl Generate for LogSoftmaxGradient {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let shape = make.shape(1, MAX_RANK);
        call(Self, [make.f32(&shape)?, make.f32(&shape)?])
    }
}

impl Generate for Loss {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let kind = match make.bytes.below(5) {
            0 => LossKind::SoftmaxCrossEntropy { smoothing: make.bytes.float(0.0, 1.0) },
            1 => LossKind::Nll,
            2 => LossKind::BinaryCrossEntropyWithLogits,
            3 => LossKind::Hinge,
            _ => LossKind::Mse,
        };
        let loss = Self { kind, reduction: make.bytes.pick(&[Reduction::Mean, Reduction::Sum]) };
        if kind.takes_labels() {
            let (shape, dtype) = (make.shape(2, 2), make.index_type());
            return call(loss, [make.f32(&shape)?, make.index(&shape[..1], shape[1], dtype)?]);
        }
        let shape = make.shape(0, MAX_RANK);
        call(loss, [make.f32(&shape)?, make.f32(&shape)?])
    }
}
