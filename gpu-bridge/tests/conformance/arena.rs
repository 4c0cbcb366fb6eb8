//! Whole arenas at once: what is written in place, the optimizers.

use weft_gpu::DType;
use weft_gpu::op::{
    Accumulate, Adagrad, Adam, AdmmDual, AdmmGradient, Assign, Blend, ClipNorm, Optimize, Optimizer, RmsProp, Sgd,
};

use crate::array::{Array, coordinates};
use crate::case::{Case, EXACT, Refusal, f32, of, within};

/// Empty, one element, odd, and larger than a tile.
const SHAPES: [&[usize]; 5] = [&[0, 3], &[1], &[7], &[3, 5, 7], &[70_001]];

const NAN: f64 = f64::NAN;
const INFINITY: f64 = f64::INFINITY;

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for shape in SHAPES {
        let noise = |seed| Array::noise(shape, seed, -2.0, 2.0);
        in_place(&mut cases, &noise);
        for optimizer in optimizers() {
            for step in [1, 2, 1000] {
                cases.push(optimize(optimizer, 0.05, step, shape));
            }
        }
    }
    assign(&mut cases);
    not_finite(&mut cases);
    cases
}

fn in_place(cases: &mut Vec<Case>, noise: &dyn Fn(u64) -> Array) {
    let (a, b, c, d) = (noise(1), noise(2), noise(3), noise(4));
    let close = within(6e-7, 2e-7);
    cases.push(Case::new(Assign, &[a.clone(), b.clone()], EXACT, |x| vec![x[1].clone()]));
    cases.push(Case::new(Accumulate { scale: -0.3 }, &[a.clone(), b.clone()], close, |x| {
        each(x, |x| x[0] + f64::from(-0.3_f32) * x[1])
    }));
    cases.push(Case::new(Blend { amount: 0.1 }, &[a.clone(), b.clone()], close, |x| {
        each(x, |x| x[0] + f64::from(0.1_f32) * (x[1] - x[0]))
    }));
    cases.push(Case::new(AdmmGradient { rho: 0.7 }, &[a.clone(), b.clone(), c.clone(), d], close, |x| {
        each(x, |x| x[0] + f64::from(0.7_f32) * (x[1] - x[2] + x[3]))
    }));
    cases.push(Case::new(AdmmDual, &[a.clone(), b, c], close, |x| each(x, |x| x[0] + x[1] - x[2])));
    for (sum, limit) in [(4.0, 1.0), (4.0, 3.0), (0.0, 1.0), (4.0, 0.0), (0.0, 0.0)] {
        let sum = Array::f32(&[], vec![sum]);
        cases.push(Case::new(ClipNorm { limit }, &[a.clone(), sum], within(0.0, 3e-7), move |x| {
            let scale = (f64::from(limit) / (x[1].data[0].sqrt() + 1e-6)).min(1.0);
            vec![Array::f32(&x[0].shape, x[0].data.iter().map(|g| g * scale).collect())]
        }));
    }
}

fn assign(cases: &mut Vec<Case>) {
    for (into, from) in [(&[2, 3, 4][..], &[4][..]), (&[2, 3, 4], &[3, 1]), (&[5], &[]), (&[2, 0], &[1])] {
        let inputs = [Array::noise(into, 1, -1.0, 1.0), Array::noise(from, 2, -1.0, 1.0)];
        cases.push(Case::new(Assign, &inputs, EXACT, |x| {
            vec![Array::f32(&x[0].shape, coordinates(&x[0].shape).map(|c| x[1].broadcast_at(&c)).collect())]
        }));
    }
    for dtype in DType::ALL {
        let inputs = [Array::integers(&[3, 5], dtype, 1, 100), Array::integers(&[3, 5], dtype, 2, 100)];
        cases.push(Case::new(Assign, &inputs, EXACT, |x| vec![x[1].clone()]));
    }
}

/// NaN and infinities go where the formulas say.
fn not_finite(cases: &mut Vec<Case>) {
    let row = |data: &[f64]| Array::f32(&[data.len()], data.to_vec());
    let scalar = |value: f64| Array::f32(&[], vec![value]);
    let gradients = row(&[1.0, -2.0, INFINITY, NAN]);
    let clip = |sum, want: &'static [f64]| {
        let inputs = [gradients.clone(), scalar(sum)];
        Case::new(ClipNorm { limit: 1.0 }, &inputs, EXACT, move |_| vec![Array::f32(&[4], want.to_vec())])
    };
    cases.push(clip(INFINITY, &[0.0, -0.0, NAN, NAN]));
    cases.push(clip(NAN, &[NAN, NAN, NAN, NAN]));
    cases.push(clip(-1.0, &[NAN, NAN, NAN, NAN]));
    cases.push(clip(0.25, &[1.0, -2.0, INFINITY, NAN]));
    // The first step does not look at what the momentum was.
    let sgd = Optimizer::Sgd(Sgd { momentum: 0.5, ..Sgd::default() });
    let inputs = [row(&[1.0, 1.0]), row(&[NAN, INFINITY]), row(&[2.0, NAN])];
    cases.push(Case::new(Optimize { optimizer: sgd, rate: 0.25, step: 1 }, &inputs, EXACT, |_| {
        vec![Array::f32(&[2], vec![0.5, NAN]), Array::f32(&[2], vec![2.0, NAN])]
    }));
    // Without weight decay an infinite weight stays one.
    let plain = Optimizer::Sgd(Sgd::default());
    let inputs = [row(&[INFINITY, 1.0]), row(&[2.0, -INFINITY])];
    cases.push(Case::new(Optimize { optimizer: plain, rate: 0.25, step: 1 }, &inputs, EXACT, |_| {
        vec![Array::f32(&[2], vec![INFINITY, INFINITY])]
    }));
    // What has no gradient and no weight stays zero.
    for optimizer in optimizers() {
        let inputs = vec![row(&[0.0; 20]); optimizer.states() + 2];
        cases
            .push(Case::new(Optimize { optimizer, rate: 0.1, step: 3 }, &inputs, EXACT, |x| x[..x.len() - 1].to_vec()));
    }
    let inputs = [row(&[1.0, INFINITY]), row(&[NAN, 1.0])];
    cases.push(Case::new(Blend { amount: 0.5 }, &inputs, EXACT, |_| vec![Array::f32(&[2], vec![NAN, NAN])]));
}

fn optimizers() -> Vec<Optimizer> {
    let adam = Adam { beta1: 0.8, beta2: 0.99, epsilon: 1e-6, weight_decay: 0.1 };
    let rms_prop = RmsProp { decay: 0.9, epsilon: 1e-5, momentum: 0.0, weight_decay: 0.0 };
    vec![
        Optimizer::Sgd(Sgd::default()),
        Optimizer::Sgd(Sgd { weight_decay: 0.1, ..Sgd::default() }),
        Optimizer::Sgd(Sgd { momentum: 0.9, weight_decay: 0.1, ..Sgd::default() }),
        Optimizer::Sgd(Sgd { momentum: 0.9, dampening: 0.3, ..Sgd::default() }),
        Optimizer::Sgd(Sgd { momentum: 0.9, nesterov: true, weight_decay: 0.1, ..Sgd::default() }),
        Optimizer::Adam(Adam::default()),
        Optimizer::Adam(adam),
        Optimizer::AdamW(adam),
        Optimizer::RmsProp(rms_prop),
        Optimizer::RmsProp(RmsProp { momentum: 0.7, weight_decay: 0.1, ..rms_prop }),
        Optimizer::Adagrad(Adagrad { epsilon: 1e-5, rate_decay: 0.01, weight_decay: 0.1 }),
        Optimizer::Adagrad(Adagrad::default()),
    ]
}

fn optimize(optimizer: Optimizer, rate: f32, step: u64, shape: &[usize]) -> Case {
    let mut inputs = vec![Array::noise(shape, 1, -2.0, 2.0)];
    // Means of squares are not negative, and away from zero, where a square root would make a large error of a small one.
    let low = |state| match (optimizer, state) {
        (Optimizer::Adam(_) | Optimizer::AdamW(_), 1) | (Optimizer::RmsProp(_) | Optimizer::Adagrad(_), 0) => 0.1,
        _ => -1.0,
    };
    inputs.extend((0..optimizer.states()).map(|state| Array::noise(shape, 2 + state as u64, low(state), 1.0)));
    inputs.push(Array::noise(shape, 9, -1.0, 1.0));
    Case::new(Optimize { optimizer, rate, step }, &inputs, within(6e-7, 4e-7), move |x| {
        let mut results: Vec<Array> = x[..x.len() - 1].to_vec();
        for element in 0..x[0].data.len() {
            let mut values: Vec<f64> = x.iter().map(|x| x.data[element]).collect();
            torch(&optimizer, f64::from(rate), step as f64, &mut values);
            results.iter_mut().zip(&values).for_each(|(result, &value)| result.data[element] = value);
        }
        results
    })
}

/// One weight, its states and its gradient, as `torch.optim` does it: written after its single-tensor functions.
fn torch(optimizer: &Optimizer, rate: f64, step: f64, values: &mut [f64]) {
    let (gradient, rest) = values.split_last_mut().unwrap();
    let (weight, states) = rest.split_first_mut().unwrap();
    let mut gradient = *gradient;
    match *optimizer {
        Optimizer::Sgd(sgd) => {
            gradient += f64::from(sgd.weight_decay) * *weight;
            if let [buffer] = states {
                let momentum = f64::from(sgd.momentum);
                if step == 1.0 {
                    *buffer = gradient;
                } else {
                    *buffer = *buffer * momentum + gradient * (1.0 - f64::from(sgd.dampening));
                }
                gradient = if sgd.nesterov { gradient + momentum * *buffer } else { *buffer };
            }
            *weight -= rate * gradient;
        }
        Optimizer::Adam(adam) | Optimizer::AdamW(adam) => {
            let (beta1, beta2) = (f64::from(adam.beta1), f64::from(adam.beta2));
            if matches!(optimizer, Optimizer::AdamW(_)) {
                *weight *= 1.0 - rate * f64::from(adam.weight_decay);
            } else {
                gradient += f64::from(adam.weight_decay) * *weight;
            }
            states[0] += (gradient - states[0]) * (1.0 - beta1);
            states[1] = states[1] * beta2 + gradient * gradient * (1.0 - beta2);
            let step_size = rate / (1.0 - beta1.powf(step));
            let denominator = states[1].sqrt() / (1.0 - beta2.powf(step)).sqrt() + f64::from(adam.epsilon);
            *weight -= step_size * states[0] / denominator;
        }
        Optimizer::RmsProp(rms_prop) => {
            gradient += f64::from(rms_prop.weight_decay) * *weight;
            let decay = f64::from(rms_prop.decay);
            states[0] = states[0] * decay + gradient * gradient * (1.0 - decay);
            let denominator = states[0].sqrt() + f64::from(rms_prop.epsilon);
            if let Some(buffer) = states.get_mut(1) {
                *buffer = *buffer * f64::from(rms_prop.momentum) + gradient / denominator;
                *weight -= rate * *buffer;
            } else {
                *weight -= rate * gradient / denominator;
            }
        }
        Optimizer::Adagrad(adagrad) => {
            gradient += f64::from(adagrad.weight_decay) * *weight;
            let rate = rate / (1.0 + (step - 1.0) * f64::from(adagrad.rate_decay));
            states[0] += gradient * gradient;
            *weight -= rate * gradient / (states[0].sqrt() + f64::from(adagrad.epsilon));
        }
    }
}

/// The first result of a function of the elements at the same place.
fn each(inputs: &[Array], f: impl Fn(&[f64]) -> f64) -> Vec<Array> {
    let data = (0..inputs[0].data.len())
        .map(|element| f(&inputs.iter().map(|input| input.data[element]).collect::<Vec<_>>()))
        .collect();
    vec![Array::f32(&inputs[0].shape, data)]
}

pub fn refusals() -> Vec<Refusal> {
    let (a, b) = (f32(&[2, 3]), f32(&[3, 2]));
    let mut refusals = vec![
        Refusal::new(Assign, &[a], "`assign`: 1 inputs, it takes 2"),
        Refusal::new(Assign, &[a, b], "does not expand: [3, 2] and [2, 3]"),
        Refusal::new(Assign, &[f32(&[3]), a], "does not expand: [2, 3] and [3]"),
        Refusal::new(Assign, &[a, of(&[2, 3], DType::U8)], "input 1 is u8, not f32"),
        Refusal::new(Accumulate { scale: 1.0 }, &[a], "1 inputs, it takes 2"),
        Refusal::new(Accumulate { scale: 1.0 }, &[a, b], "inputs 0 and 1 differ in shape: [2, 3] and [3, 2]"),
        Refusal::new(Accumulate { scale: 1.0 }, &[a, of(&[2, 3], DType::I32)], "input 1 is i32, not f32"),
        Refusal::new(Accumulate { scale: f32::NAN }, &[a, a], "`accumulate`: scale NaN must be finite"),
        Refusal::new(Blend { amount: 0.5 }, &[a, a, a], "3 inputs, it takes 2"),
        Refusal::new(Blend { amount: 0.5 }, &[a, b], "inputs 0 and 1 differ in shape: [2, 3] and [3, 2]"),
        Refusal::new(Blend { amount: 0.5 }, &[of(&[2], DType::F16), f32(&[2])], "input 0 is f16, not f32"),
        Refusal::new(Blend { amount: f32::INFINITY }, &[a, a], "`blend`: amount inf must be finite"),
        Refusal::new(ClipNorm { limit: 1.0 }, &[a], "1 inputs, it takes 2"),
        Refusal::new(ClipNorm { limit: 1.0 }, &[a, a], "the sum of squares, is [2, 3], not one element"),
        Refusal::new(ClipNorm { limit: 1.0 }, &[a, of(&[], DType::U32)], "input 1 is u32, not f32"),
        Refusal::new(ClipNorm { limit: -1.0 }, &[a, f32(&[])], "limit -1 must not be negative"),
        Refusal::new(ClipNorm { limit: f32::NAN }, &[a, f32(&[])], "limit NaN must not be negative"),
        Refusal::new(AdmmGradient { rho: 1.0 }, &[a, a, a], "3 inputs, it takes 4"),
        Refusal::new(AdmmGradient { rho: 1.0 }, &[a, a, a, b], "inputs 0 and 3 differ in shape: [2, 3] and [3, 2]"),
        Refusal::new(AdmmGradient { rho: 1.0 }, &[a, a, of(&[2, 3], DType::U8), a], "input 2 is u8, not f32"),
        Refusal::new(AdmmGradient { rho: f32::NAN }, &[a, a, a, a], "rho NaN must be finite"),
        Refusal::new(AdmmDual, &[a, a], "2 inputs, it takes 3"),
        Refusal::new(AdmmDual, &[a, b, a], "inputs 0 and 1 differ in shape: [2, 3] and [3, 2]"),
        Refusal::new(AdmmDual, &[a, a, of(&[2, 3], DType::U8)], "input 2 is u8, not f32"),
    ];
    refusals.extend(optimizer_refusals());
    refusals
}

fn optimizer_refusals() -> Vec<Refusal> {
    let a = f32(&[2, 3]);
    let with = |optimizer: Optimizer, says| {
        Refusal::new(Optimize { optimizer, rate: 0.1, step: 1 }, &vec![a; optimizer.states() + 2], says)
    };
    let sgd = |sgd, says| with(Optimizer::Sgd(sgd), says);
    let adam = |adam, says| with(Optimizer::Adam(adam), says);
    let plain = Optimizer::Sgd(Sgd::default());
    let momentum = Optimizer::Sgd(Sgd { momentum: 0.9, ..Sgd::default() });
    let step = |rate, step| Optimize { optimizer: plain, rate, step };
    vec![
        Refusal::new(step(0.1, 0), &[a, a], "`sgd`: step 0: the first is 1"),
        Refusal::new(step(-0.1, 1), &[a, a], "rate -0.1 must be finite and not negative"),
        Refusal::new(step(f32::NAN, 1), &[a, a], "rate NaN must be finite"),
        Refusal::new(step(0.1, 1), &[a, a, a], "3 inputs, it takes 2 (weights, 0 states, gradients)"),
        Refusal::new(step(0.1, 1), &[a, f32(&[6])], "inputs 0 and 1 differ in shape: [2, 3] and [6]"),
        Refusal::new(step(0.1, 1), &[a, of(&[2, 3], DType::F16)], "input 1 is f16, not f32"),
        Refusal::new(Optimize { optimizer: momentum, rate: 0.1, step: 1 }, &[a, a], "it takes 3 (weights, 1 states"),
        sgd(Sgd { momentum: -0.1, ..Sgd::default() }, "momentum -0.1 must be finite and not negative"),
        sgd(Sgd { momentum: f32::NAN, ..Sgd::default() }, "momentum NaN"),
        sgd(Sgd { dampening: f32::NAN, ..Sgd::default() }, "dampening NaN must be finite"),
        sgd(Sgd { weight_decay: f32::NAN, ..Sgd::default() }, "weight decay NaN"),
        sgd(Sgd { nesterov: true, ..Sgd::default() }, "Nesterov's momentum needs a momentum and no dampening"),
        sgd(
            Sgd { nesterov: true, momentum: 0.9, dampening: 0.1, weight_decay: 0.0 },
            "needs a momentum and no dampening",
        ),
        adam(Adam { beta1: 1.0, ..Adam::default() }, "`adam`: beta1 1 must be at least 0 and below 1"),
        adam(Adam { beta2: f32::NAN, ..Adam::default() }, "beta2 NaN must be at least 0 and below 1"),
        adam(Adam { epsilon: 0.0, ..Adam::default() }, "epsilon 0 must be finite and positive"),
        adam(Adam { weight_decay: -1.0, ..Adam::default() }, "weight decay -1"),
        with(Optimizer::AdamW(Adam { epsilon: f32::NAN, ..Adam::default() }), "`adam-w`: epsilon NaN"),
        with(Optimizer::RmsProp(RmsProp { decay: 1.5, ..RmsProp::default() }), "`rms-prop`: decay 1.5 must be"),
        with(Optimizer::RmsProp(RmsProp { momentum: f32::NAN, ..RmsProp::default() }), "momentum NaN"),
        with(Optimizer::RmsProp(RmsProp { epsilon: -1.0, ..RmsProp::default() }), "epsilon -1 must be"),
        with(Optimizer::Adagrad(Adagrad { rate_decay: -1.0, ..Adagrad::default() }), "`adagrad`: rate decay -1"),
        with(Optimizer::Adagrad(Adagrad { epsilon: f32::INFINITY, ..Adagrad::default() }), "epsilon inf must be"),
    ]
}
