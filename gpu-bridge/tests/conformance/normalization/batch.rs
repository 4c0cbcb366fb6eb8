//! Each channel by its mean and variance over a batch.

use weft_gpu::DType;
use weft_gpu::op::{BatchNorm, BatchNormGradient, BatchNormInference, Statistics, Unary};

use crate::array::Array;
use crate::case::{Case, Refusal, Tolerance, f32, of, within};

const CLOSE: Tolerance = within(2e-6, 2e-6);

/// Gradients of scale and shift are sums over the batch, of terms that cancel.
const SUMMED: Tolerance = within(2e-5, 5e-6);

const ACTIVATIONS: [Option<Unary>; 4] = [None, Some(Unary::Relu), Some(Unary::Relu6), Some(Unary::HardSwish)];

/// Of rank 2 to 5: one element to a channel, few, many; few channels and many; more than a tile.
const SHAPES: [&[usize]; 13] = [
    &[1, 1],
    &[1, 3],
    &[32, 70],
    &[3, 5, 7],
    &[2, 3, 2, 2],
    &[8, 37, 3, 3],
    &[4, 2, 8, 8],
    &[2, 3, 9, 13],
    &[2, 2, 3, 5, 7],
    &[200, 3],
    &[32, 100, 4, 4],
    &[32, 8, 32, 32],
    &[2, 2, 100, 70],
];

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for shape in SHAPES {
        let channels = &shape[1..2];
        let x = Array::noise(shape, 1, -2.0, 3.0);
        let (scale, shift) = (Array::noise(channels, 2, 0.5, 4.0), Array::noise(channels, 3, -1.0, 2.0));
        let (mean, variance) = (Array::noise(channels, 4, -0.5, 0.5), Array::noise(channels, 5, 0.5, 2.0));
        let dy = Array::noise(shape, 6, -1.0, 1.0);
        let small = (2..100).contains(&x.data.len()) && shape[0] > 1;
        for activation in ACTIVATIONS {
            let epsilon = 1e-5;
            let inputs = [x.clone(), scale.clone(), shift.clone()];
            let wanted: &[usize] = if small { &[0, 1, 2] } else { &[] };
            let op = BatchNorm { epsilon, activation };
            let reference = move |x: &[Array]| forward(&x[0], [&x[1], &x[2]], None, epsilon, activation);
            cases.push(Case::new(op, &inputs, CLOSE, reference).differentiated(wanted));

            let inputs = [x.clone(), scale.clone(), shift.clone(), mean.clone(), variance.clone()];
            let op = BatchNormInference { epsilon, activation };
            let reference = move |x: &[Array]| {
                let mut results = forward(&x[0], [&x[1], &x[2]], Some([&x[3], &x[4]]), epsilon, activation);
                results.truncate(1);
                results
            };
            cases.push(Case::new(op, &inputs, CLOSE, reference).differentiated(wanted));

            for statistics in [Statistics::OfBatch, Statistics::Given] {
                let mut inputs = vec![x.clone(), scale.clone(), mean.clone(), variance.clone(), dy.clone()];
                inputs.extend(activation.map(|_| shift.clone()));
                let op = BatchNormGradient { epsilon, activation, statistics };
                cases.push(Case::new(op, &inputs, SUMMED, move |x| backward(x, op)));
            }
        }
    }
    cases.extend(special_cases());
    cases
}

fn special_cases() -> Vec<Case> {
    let plain = BatchNorm { epsilon: 1e-5, activation: None };
    let case = |x: Array, tolerance: Tolerance| {
        let ones = Array::f32(&[x.shape[1]], vec![1.0; x.shape[1]]);
        let zeros = Array::f32(&[x.shape[1]], vec![0.0; x.shape[1]]);
        Case::new(plain, &[x, ones, zeros], tolerance, move |x| forward(&x[0], [&x[1], &x[2]], None, 1e-5, None))
    };
    let nan =
        |shape: &[usize]| Array::build(shape, DType::F32, |index| if index == 1 { f64::NAN } else { index as f64 });
    // A mean a thousand times the deviation: the rounding of the input itself is what is left.
    let far = |shape: &[usize]| Array::noise(shape, 9, 999.0, 1001.0);
    let mut cases = vec![
        case(nan(&[2, 3, 2, 2]), CLOSE),
        case(nan(&[2, 3, 8, 8]), CLOSE),
        case(far(&[16, 3, 16, 16]), within(1e-4, 1e-6)),
        case(far(&[64, 33]), within(1e-4, 1e-6)),
        case(Array::f32(&[4, 2, 3, 3], vec![f64::from(0.1_f32); 72]), CLOSE),
        case(Array::f32(&[4, 2, 9, 9], vec![f64::from(0.1_f32); 648]), CLOSE),
        case(Array::f32(&[3, 0, 2, 2], vec![]), CLOSE),
    ];
    let empty = |shape: &[usize]| Array::f32(shape, vec![0.0; shape.iter().product()]);
    for shape in [&[0_usize, 3, 2, 2] as &[usize], &[0, 3, 9, 9], &[2, 3, 0, 2]] {
        let channel = Array::f32(&[3], vec![1.0; 3]);
        let inference = BatchNormInference { epsilon: 0.1, activation: None };
        let inputs = [empty(shape), channel.clone(), channel.clone(), channel.clone(), channel.clone()];
        cases.push(Case::new(inference, &inputs, CLOSE, |x| vec![x[0].clone()]));
        let gradient = BatchNormGradient { epsilon: 0.1, activation: None, statistics: Statistics::Given };
        let inputs = [empty(shape), channel.clone(), channel.clone(), channel, empty(shape)];
        cases.push(Case::new(gradient, &inputs, CLOSE, |x| {
            let zeros = Array::f32(&[3], vec![0.0; 3]);
            vec![x[0].clone(), zeros.clone(), zeros]
        }));
    }
    cases
}

pub fn refusals() -> Vec<Refusal> {
    let (x, c) = (f32(&[2, 3, 4, 4]), f32(&[3]));
    let plain = |epsilon: f32| BatchNorm { epsilon, activation: None };
    let inference = BatchNormInference { epsilon: 1e-5, activation: None };
    let gradient =
        |activation: Option<Unary>| BatchNormGradient { epsilon: 1e-5, activation, statistics: Statistics::OfBatch };
    vec![
        Refusal::new(plain(1e-5), &[x, c], "2 inputs, it takes 3"),
        Refusal::new(plain(1e-5), &[of(&[2, 3], DType::U8), c, c], "input 0 is u8, not f32"),
        Refusal::new(plain(1e-5), &[x, c, of(&[3], DType::I32)], "input 2 is i32, not f32"),
        Refusal::new(plain(1e-5), &[f32(&[3]), c, c], "input 0 is [3], it must have 2 to 5 axes"),
        Refusal::new(plain(1e-5), &[f32(&[1, 3, 1, 1, 1, 1]), c, c], "it must have 2 to 5 axes"),
        Refusal::new(plain(1e-5), &[x, f32(&[4]), c], "input 1 is [4], not [3]"),
        Refusal::new(plain(1e-5), &[x, c, f32(&[3, 1])], "input 2 is [3, 1], not [3]"),
        Refusal::new(plain(1e-5), &[f32(&[0, 3, 4, 4]), c, c], "[0, 3, 4, 4] has no elements to take statistics of"),
        Refusal::new(plain(1e-5), &[f32(&[2, 3, 0]), c, c], "has no elements to take statistics of"),
        Refusal::new(plain(-1.0), &[x, c, c], "epsilon -1 must not be negative"),
        Refusal::new(plain(f32::NAN), &[x, c, c], "epsilon NaN must not be negative"),
        Refusal::new(plain(f32::INFINITY), &[x, c, c], "epsilon inf must not be negative, and finite"),
        Refusal::new(
            BatchNorm { epsilon: 1e-5, activation: Some(Unary::Gelu) },
            &[x, c, c],
            "activation `gelu`: only relu, relu6 and hard-swish are fused",
        ),
        Refusal::new(inference, &[x, c, c, c], "4 inputs, it takes 5"),
        Refusal::new(inference, &[x, c, c, c, f32(&[2])], "input 4 is [2], not [3]"),
        Refusal::new(inference, &[f32(&[]), c, c, c, c], "it must have 2 to 5 axes"),
        Refusal::new(BatchNormInference { epsilon: -1.0, ..inference }, &[x, c, c, c, c], "epsilon -1"),
        Refusal::new(
            BatchNormInference { activation: Some(Unary::Exp), ..inference },
            &[x, c, c, c, c],
            "activation `exp`",
        ),
        Refusal::new(gradient(None), &[x, c, c, c, x, c], "6 inputs, it takes 5"),
        Refusal::new(gradient(Some(Unary::Relu)), &[x, c, c, c, x], "5 inputs, it takes 6"),
        Refusal::new(gradient(Some(Unary::Relu)), &[x, c, c, c, x, f32(&[2])], "input 5 is [2], not [3]"),
        Refusal::new(gradient(Some(Unary::Tanh)), &[x, c, c, c, x, c], "activation `tanh`"),
        Refusal::new(gradient(None), &[x, c, c, c, c], "inputs 0 and 4 differ in shape"),
        Refusal::new(gradient(None), &[x, c, f32(&[1]), c, x], "input 2 is [1], not [3]"),
        Refusal::new(gradient(None), &[f32(&[0, 3]), c, c, c, f32(&[0, 3])], "has no elements"),
        Refusal::new(BatchNormGradient { epsilon: -1.0, ..gradient(None) }, &[x, c, c, c, x], "epsilon -1"),
    ]
}

/// The channel of each element.
fn channel_of(x: &Array) -> impl Fn(usize) -> usize {
    let plane: usize = x.shape[2..].iter().product();
    let channels = x.shape[1];
    move |index| index / plane % channels
}

fn apply(activation: Option<Unary>, z: f64) -> f64 {
    match activation {
        None => z,
        Some(Unary::Relu) => {
            if z <= 0.0 {
                0.0
            } else {
                z
            }
        }
        Some(Unary::Relu6) => z.clamp(0.0, 6.0),
        Some(_) => z * (z + 3.0).clamp(0.0, 6.0) / 6.0,
    }
}

fn slope(activation: Option<Unary>, z: f64) -> f64 {
    match activation {
        None => 1.0,
        Some(Unary::Relu) => f64::from(z > 0.0),
        Some(Unary::Relu6) => f64::from(z > 0.0 && z < 6.0),
        Some(_) if z <= -3.0 => 0.0,
        Some(_) if z >= 3.0 => 1.0,
        Some(_) => z / 3.0 + 0.5,
    }
}

fn forward(
    x: &Array,
    [scale, shift]: [&Array; 2],
    given: Option<[&Array; 2]>,
    epsilon: f32,
    activation: Option<Unary>,
) -> Vec<Array> {
    let channel = channel_of(x);
    let channels = x.shape[1];
    let (mean, variance) = match given {
        Some([mean, variance]) => (mean.data.clone(), variance.data.clone()),
        None => (0..channels)
            .map(|c| {
                let own: Vec<f64> =
                    x.data.iter().enumerate().filter(|&(i, _)| channel(i) == c).map(|(_, &x)| x).collect();
                let mean = own.iter().sum::<f64>() / own.len() as f64;
                (mean, own.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / own.len() as f64)
            })
            .unzip(),
    };
    let y = Array::build(&x.shape, DType::F32, |index| {
        let c = channel(index);
        let normalized = (x.data[index] - mean[c]) / (variance[c] + f64::from(epsilon)).sqrt();
        apply(activation, normalized * scale.data[c] + shift.data[c])
    });
    vec![y, Array::f32(&[channels], mean), Array::f32(&[channels], variance)]
}

fn backward(inputs: &[Array], op: BatchNormGradient) -> Vec<Array> {
    let [x, scale, mean, variance, dy] = &inputs[..5] else { panic!("five inputs") };
    let channel = channel_of(x);
    let channels = x.shape[1];
    let rstd: Vec<f64> = variance.data.iter().map(|v| 1.0 / (v + f64::from(op.epsilon)).sqrt()).collect();
    let normalized = |index: usize| (x.data[index] - mean.data[channel(index)]) * rstd[channel(index)];
    let dz = |index: usize| {
        let c = channel(index);
        let shift = inputs.get(5).map_or(0.0, |shift| shift.data[c]);
        dy.data[index] * slope(op.activation, normalized(index) * scale.data[c] + shift)
    };
    let (mut dscale, mut dshift) = (vec![0.0; channels], vec![0.0; channels]);
    for index in 0..x.data.len() {
        dscale[channel(index)] += dz(index) * normalized(index);
        dshift[channel(index)] += dz(index);
    }
    let count = (x.data.len() / channels) as f64;
    let weight = if op.statistics == Statistics::OfBatch { 1.0 / count } else { 0.0 };
    let dx = Array::build(&x.shape, DType::F32, |index| {
        let c = channel(index);
        scale.data[c] * rstd[c] * (dz(index) - weight * dshift[c] - weight * normalized(index) * dscale[c])
    });
    vec![dx, Array::f32(&[channels], dscale), Array::f32(&[channels], dshift)]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use weft_gpu::device::cpu::Cpu;
    use weft_gpu::{Context, Crew, Limits};

    use super::*;

    #[test]
    fn gradients_do_not_flow_through_the_statistics() {
        let context = Context::new(Arc::new(Cpu::new()), Arc::new(Crew::new(1)), Limits::default());
        let x = context.tensor(&[2, 1], &[1.0_f32, 2.0]).unwrap().parameter(None).unwrap();
        let (scale, shift) = (context.full(&[1], DType::F32, 1.0).unwrap(), context.zeros(&[1]).unwrap());
        let (_, mean, _) = x.batch_norm(&scale, &shift, 1e-5, None).unwrap();
        assert!(mean.backward().is_err(), "it is cut off from the tape");
        let results = context.run(BatchNorm { epsilon: 1e-5, activation: None }, &[&x, &scale, &shift]).unwrap();
        let error = results[1].backward().unwrap_err();
        assert!(error.to_string().contains("gradients flow through its first result alone"), "{error}");
    }
}
