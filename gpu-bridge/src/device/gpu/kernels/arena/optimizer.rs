//! One step of an optimizer over a whole arena, in one launch.

use super::Alike;
use crate::device::gpu::kernels::Call;
use crate::device::gpu::pipeline::Kernel;
use crate::error::{Error, Result};
use crate::op::{Adagrad, Adam, Optimize, Optimizer, RmsProp, Sgd};

static OPTIMIZE: Kernel = Kernel { name: "optimize", sources: &[include_str!("optimize.wgsl")] };

/// The constants of a step. What each stands for is said by the kernel's functions.
#[repr(C)]
#[derive(Clone, Copy, Default, bytemuck::Pod, bytemuck::Zeroable)]
struct Body {
    rate: f32,
    weight_decay: f32,
    momentum: f32,
    fresh: f32,
    decay: f32,
    fresh_square: f32,
    epsilon: f32,
    correction: f32,
}

pub(super) fn optimize(call: Call<'_>, op: &Optimize) -> Result<()> {
    let (function, body) = function(op);
    let states = op.optimizer.states();
    let (reads, writes) = match states {
        0 => ("", ""),
        1 => ("first = first_$AT(i);", "first_$PUT(i, first);"),
        _ => ("first = first_$AT(i); second = second_$AT(i);", "first_$PUT(i, first); second_$PUT(i, second);"),
    };
    if call.outputs.len() != states + 1 {
        return Err(Error::Internal { op: call.op, reason: "the number of states is wrong".into() });
    }
    let all = call.inputs.iter().chain(call.outputs).copied();
    let mut launch = Alike::new(&call, &OPTIMIZE, all)
        .with(|launch| {
            let launch = launch.define("FUNCTION", function).define("READ_STATES", reads);
            launch.define("WRITE_STATES", writes).body(&body)
        })
        .bind("gradients", &call.inputs[0])?;
    for (name, view) in ["weights", "first", "second"].into_iter().zip(call.outputs) {
        launch = launch.bind(name, view)?;
    }
    launch.run()
}

/// What is computed for each weight, and with which constants.
fn function(op: &Optimize) -> (&'static str, Body) {
    let rate = op.rate;
    match op.optimizer {
        Optimizer::Sgd(Sgd { momentum, dampening, nesterov, weight_decay }) => {
            let body = Body { rate, weight_decay, momentum, fresh: 1.0 - dampening, ..Body::default() };
            let function = match (momentum != 0.0, op.step == 1, nesterov) {
                (false, ..) => "plain()",
                (true, true, false) => "first_momentum()",
                (true, true, true) => "first_nesterov()",
                (true, false, false) => "with_momentum()",
                (true, false, true) => "nesterov()",
            };
            (function, body)
        }
        Optimizer::Adam(adam) => ("adam()", adam_body(&adam, rate, op.step)),
        Optimizer::AdamW(adam) => {
            let shrink = (1.0 - f64::from(rate) * f64::from(adam.weight_decay)) as f32;
            // Its weight decay does not touch the gradient.
            ("adam_w()", Body { weight_decay: shrink, ..adam_body(&adam, rate, op.step) })
        }
        Optimizer::RmsProp(RmsProp { decay, epsilon, momentum, weight_decay }) => {
            let fresh_square = complement(decay);
            let body = Body { rate, weight_decay, momentum, decay, fresh_square, epsilon, ..Body::default() };
            (if momentum == 0.0 { "rms_prop()" } else { "rms_prop_with_momentum()" }, body)
        }
        Optimizer::Adagrad(Adagrad { epsilon, rate_decay, weight_decay }) => {
            let rate = f64::from(rate) / (1.0 + (op.step - 1) as f64 * f64::from(rate_decay));
            ("adagrad()", Body { rate: rate as f32, weight_decay, epsilon, ..Body::default() })
        }
    }
}

fn adam_body(adam: &Adam, rate: f32, step: u64) -> Body {
    let bias = |beta: f32| 1.0 - f64::from(beta).powf(step as f64);
    Body {
        rate: (f64::from(rate) / bias(adam.beta1)) as f32,
        weight_decay: adam.weight_decay,
        momentum: adam.beta1,
        fresh: complement(adam.beta1),
        decay: adam.beta2,
        fresh_square: complement(adam.beta2),
        epsilon: adam.epsilon,
        correction: (1.0 / bias(adam.beta2).sqrt()) as f32,
    }
}

/// `1 - fraction`, rounded once.
fn complement(fraction: f32) -> f32 {
    (1.0 - f64::from(fraction)) as f32
}
