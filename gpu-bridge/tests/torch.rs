//! The models train as PyTorch trains them: losses, gradients and running statistics against stored values.
//!
//! `scripts/torch_values.py` wrote the values, in float64 from the same float32 weights and data; see there.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use weft_gpu::device::cpu::Cpu;
use weft_gpu::models::{Model, ModelKind};
use weft_gpu::{Context, Crew, Limits, Tensor};

#[derive(Deserialize)]
struct Stored {
    model: String,
    batch: usize,
    rate: f32,
    losses: Vec<f64>,
    gradients: Vec<Digest>,
    statistics: Vec<Digest>,
}

/// What is stored of a tensor.
#[derive(Deserialize)]
struct Digest {
    name: String,
    sum: f64,
    norm: f64,
}

impl Digest {
    fn assert_matches(&self, tensor: &Tensor, tolerance: f64) {
        let elements: Vec<f64> = tensor.to_vec::<f32>().unwrap().into_iter().map(f64::from).collect();
        let sum: f64 = elements.iter().sum();
        let norm = elements.iter().map(|x| x * x).sum::<f64>().sqrt();
        let name = &self.name;
        assert!((norm - self.norm).abs() <= tolerance * self.norm, "{name}: norm {norm}, PyTorch's is {}", self.norm);
        // Terms that cancel leave their rounding behind, and that grows with their norm and not with their sum.
        let allowed = tolerance * self.norm * (elements.len() as f64).sqrt().max(1.0);
        assert!((sum - self.sum).abs() <= allowed, "{name}: sum {sum}, PyTorch's is {}", self.sum);
    }
}

/// How far off values may be, as a share of themselves.
#[derive(Clone, Copy)]
struct Tolerance {
    /// Of the loss of each step.
    losses: [f64; 5],
    /// Of gradients and running statistics.
    tensors: f64,
}

/// What five steps of float32 stay within, with room to spare.
const SMOOTH: Tolerance = Tolerance { losses: [1e-4; 5], tensors: 1e-4 };

/// Batch normalization over few samples magnifies every rounding.
const NORMALIZED: Tolerance = Tolerance { losses: [1e-3, 1e-3, 1e-2, 1e-2, 1e-2], tensors: 1e-3 };

/// Among millions of rectified values some are so close to zero that rounding moves them across, and their gradient
/// comes or goes: noise of 1e-6 in the convolutions moves gradients of the first layers by 1e-3, in float64 too.
const RESIDUAL: Tolerance = Tolerance { tensors: 5e-3, ..NORMALIZED };

/// Trains as the stored values were made, and compares.
fn compare(kind: ModelKind, tolerance: Tolerance) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stored").join(format!("{kind}.json"));
    let stored: Stored = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(stored.model, kind.name());
    let context = Context::new(Arc::new(Cpu::new()), Arc::new(Crew::new(2)), Limits::default());
    let mut model = Model::new(&context, kind, 0).unwrap().without_dropout();
    let batch = kind.batch(&context, stored.batch, 0).unwrap();
    for (step, (expected, allowed)) in stored.losses.iter().zip(tolerance.losses).enumerate() {
        let loss = f64::from(model.step(&batch, stored.rate).unwrap().item().unwrap());
        assert!((loss - expected).abs() <= allowed * expected, "step {step}: loss {loss}, PyTorch's is {expected}");
        if step == 0 {
            for gradient in &stored.gradients {
                let parameter = model.arena().named(&gradient.name).unwrap();
                gradient.assert_matches(&parameter.gradient().unwrap(), tolerance.tensors);
            }
        }
    }
    for statistic in &stored.statistics {
        statistic.assert_matches(model.statistic(&statistic.name).unwrap(), tolerance.tensors);
    }
}

#[test]
fn logistic_regression_trains_as_in_pytorch() {
    compare(ModelKind::LogReg, SMOOTH);
}

#[test]
fn mlp_trains_as_in_pytorch() {
    compare(ModelKind::Mlp, SMOOTH);
}

#[test]
fn lenet_trains_as_in_pytorch() {
    compare(ModelKind::LeNet, SMOOTH);
}

#[test]
fn resnet18_trains_as_in_pytorch() {
    compare(ModelKind::ResNet18, RESIDUAL);
}

#[test]
fn resnet34_trains_as_in_pytorch() {
    compare(ModelKind::ResNet34, RESIDUAL);
}

#[test]
fn mobilenet_trains_as_in_pytorch() {
    compare(ModelKind::MobileNetV3Small, NORMALIZED);
}

#[test]
fn squeezenet_trains_as_in_pytorch() {
    compare(ModelKind::SqueezeNet, SMOOTH);
}

#[test]
fn vgg11_trains_as_in_pytorch() {
    compare(ModelKind::Vgg11, SMOOTH);
}

#[test]
fn bert_trains_as_in_pytorch() {
    compare(ModelKind::BertSmall, SMOOTH);
}
