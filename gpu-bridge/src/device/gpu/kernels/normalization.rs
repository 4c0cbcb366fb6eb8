//! Normalization: batches, layers, neighbours, and softmax.

use super::Call;
use crate::error::Result;
use crate::op::Op;

mod batch;
mod layer;
mod local_response;
mod softmax;

pub(super) fn run(call: Call<'_>, op: &Op) -> Result<()> {
    match op {
        Op::BatchNorm(op) => batch::forward(call, op),
        Op::BatchNormGradient(op) => batch::gradient(call, op),
        Op::BatchNormInference(op) => batch::inference(call, op),
        Op::LayerNorm(op) => layer::forward(call, op),
        Op::LayerNormGradient(_) => layer::gradient(call),
        Op::LocalResponseNorm(op) => local_response::forward(call, op),
        Op::LocalResponseNormGradient(op) => local_response::gradient(call, &op.0),
        Op::Softmax(_) => softmax::softmax(call),
        Op::LogSoftmax(_) => softmax::log_softmax(call),
        Op::MaskedSoftmax(_) => softmax::masked_softmax(call),
        Op::SoftmaxGradient(_) => softmax::softmax_gradient(call),
        Op::LogSoftmaxGradient(_) => softmax::log_softmax_gradient(call),
        _ => super::misplaced(op),
    }
}
