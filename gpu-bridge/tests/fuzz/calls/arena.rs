//! Writing in place.

use weft_gpu::MAX_RANK;
use weft_gpu::op::{
    Accumulate, Adagrad, Adam, AdmmDual, AdmmGradient, Assign, Blend, ClipNorm, Optimize, Optimizer, RmsProp, Sgd,
};

use super::{Call, Generate, Make, Want, call};

/// So many tensors of one shape.
fn alike(make: &mut Make<'_, '_>, count: usize) -> Option<Vec<Want>> {
    let shape = make.shape(0, MAX_RANK);
    (0..count).map(|_| make.f32(&shape)).collect()
}

impl Generate for Assign {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let (shape, dtype) = (make.shape(0, MAX_RANK), make.any_type());
        let from = make.narrower(&shape);
        call(Self, [make.of(&shape, dtype)?, make.of(&from, dtype)?])
    }
}

impl Generate for Accumulate {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        call(Self { scale: make.bytes.float(-2.0, 2.0) }, alike(make, 2)?)
    }
}

impl Generate for Blend {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        call(Self { amount: make.bytes.float(0.0, 1.0) }, alike(make, 2)?)
    }
}

pub fn optimizer(make: &mut Make<'_, '_>) -> Optimizer {
    let bytes = &mut *make.bytes;
    let weight_decay = if bytes.flip() { 0.0 } else { bytes.float(0.0, 0.1) };
    let momentum = if bytes.flip() { 0.0 } else { bytes.float(0.0, 1.0) };
    let epsilon = bytes.float(1e-8, 1e-3);
    match bytes.below(5) {
        0 => {
            let nesterov = bytes.once_in(4);
            let dampening = if nesterov { 0.0 } else { bytes.float(0.0, 1.0) };
            Optimizer::Sgd(Sgd { momentum, dampening, nesterov, weight_decay })
        }
        1 => Optimizer::RmsProp(RmsProp { decay: bytes.float(0.0, 1.0), epsilon, momentum, weight_decay }),
        2 => Optimizer::Adagrad(Adagrad { epsilon, rate_decay: bytes.float(0.0, 0.1), weight_decay }),
        other => {
            let adam = Adam { beta1: bytes.float(0.0, 1.0), beta2: bytes.float(0.0, 1.0), epsilon, weight_decay };
            if other == 3 { Optimizer::Adam(adam) } else { Optimizer::AdamW(adam) }
        }
    }
}

impl Generate for Optimize {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let optimizer = optimizer(make);
        let step = make.bytes.pick(&[1, 2, 3, 1000, 0, u64::from(u32::MAX) + 1, u64::MAX]);
        call(Self { optimizer, rate: make.bytes.float(0.0, 1.0), step }, alike(make, optimizer.states() + 2)?)
    }
}

impl Generate for ClipNorm {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let shape = make.shape(0, MAX_RANK);
        let sum = if make.bytes.flip() { vec![] } else { vec![1] };
        call(Self { limit: make.bytes.float(0.0, 2.0) }, [make.f32(&shape)?, make.f32(&sum)?])
    }
}

impl Generate for AdmmGradient {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        call(Self { rho: make.bytes.float(0.0, 2.0) }, alike(make, 4)?)
    }
}

impl Generate for AdmmDual {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        call(Self, alike(make, 3)?)
    }
}
