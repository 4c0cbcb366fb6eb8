//! Normalization of batches, layers, neighbours and rows.

use crate::case::{Case, Refusal};

mod batch;
mod layer;
mod local_response;
mod softmax;

pub fn cases() -> Vec<Case> {
    [batch::cases(), layer::cases(), local_response::cases(), softmax::cases()].into_iter().flatten().collect()
}

pub fn refusals() -> Vec<Refusal> {
    [batch::refusals(), layer::refusals(), local_response::refusals(), softmax::refusals()]
        .into_iter()
        .flatten()
        .collect()
}
