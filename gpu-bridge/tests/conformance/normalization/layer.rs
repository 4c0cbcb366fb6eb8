//! Each row by its own mean and variance.

use weft_gpu::DType;
use weft_gpu::op::{LayerNorm, LayerNormGradient};

use crate::array::Array;
use crate::case::{Case, Refusal, Tolerance, f32, of, within};

const CLOSE: Tolerance = within(2e-6, 2e-6);

/// Gradients of scale and shift are sums over all rows, of terms that cancel.
const SUMMED: Tolerance = within(2e-5, 5e-6);

const EPSILON: f32 = 1e-5;

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for shape in
        [&[1_usize] as &[usize], &[5], &[3, 7], &[2, 3, 4], &[33, 130], &[0, 6], &[600, 100], &[3, 9000], &[20_000, 9]]
    {
        let channels = &shape[shape.len() - 1..];
        let rows = &shape[..shape.len() - 1];
        let x = Array::noise(shape, 1, -2.0, 3.0);
        let (scale, shift) = (Array::noise(channels, 2, 0.5, 2.0), Array::noise(channels, 3, -1.0, 1.0));
        let inputs = [x.clone(), scale.clone(), shift];
        let wanted: &[usize] = if (2..100).contains(&x.data.len()) { &[0, 1, 2] } else { &[] };
        cases.push(Case::new(LayerNorm { epsilon: EPSILON }, &inputs, CLOSE, forward).differentiated(wanted));
        let (mean, rstd) = (Array::noise(rows, 4, -0.5, 0.5), Array::noise(rows, 5, 0.5, 2.0));
        let dy = Array::noise(shape, 6, -1.0, 1.0);
        let tolerance = if shape[0] == 20_000 { within(1e-4, 1e-5) } else { SUMMED };
        cases.push(Case::new(LayerNormGradient, &[x, scale, mean, rstd, dy], tolerance, backward));
    }
    let ones = Array::f32(&[4], vec![1.0; 4]);
    let zeros = Array::f32(&[4], vec![0.0; 4]);
    let mut nan = Array::noise(&[3, 4], 1, -1.0, 1.0);
    nan.data[5] = f64::NAN;
    cases.push(Case::new(LayerNorm { epsilon: EPSILON }, &[nan, ones.clone(), zeros.clone()], CLOSE, forward));
    let even = Array::f32(&[2, 4], vec![f64::from(0.1_f32); 8]);
    // The deviation is the root of epsilon, the largest number in this file.
    cases.push(Case::new(LayerNorm { epsilon: EPSILON }, &[even, ones, zeros], within(2e-6, 2e-6), forward));
    let far = Array::noise(&[3, 512], 9, 999.0, 1001.0);
    let (ones, zeros) = (Array::f32(&[512], vec![1.0; 512]), Array::f32(&[512], vec![0.0; 512]));
    cases.push(Case::new(LayerNorm { epsilon: EPSILON }, &[far, ones, zeros], within(1e-4, 1e-6), forward));
    cases
}

pub fn refusals() -> Vec<Refusal> {
    let (x, c, rows) = (f32(&[2, 3]), f32(&[3]), f32(&[2]));
    let op = LayerNorm { epsilon: EPSILON };
    vec![
        Refusal::new(op, &[x, c], "2 inputs, it takes 3"),
        Refusal::new(op, &[of(&[2, 3], DType::F16), c, c], "input 0 is f16, not f32"),
        Refusal::new(op, &[x, rows, c], "input 1 is [2], not [3]"),
        Refusal::new(op, &[x, c, rows], "inputs 1 and 2 differ in shape: [3] and [2]"),
        Refusal::new(op, &[f32(&[]), c, c], "must have a last axis that is not empty"),
        Refusal::new(op, &[f32(&[2, 0]), f32(&[0]), f32(&[0])], "must have a last axis that is not empty"),
        Refusal::new(LayerNorm { epsilon: -1e-5 }, &[x, c, c], "epsilon -0.00001 must not be negative"),
        Refusal::new(LayerNorm { epsilon: f32::NAN }, &[x, c, c], "epsilon NaN"),
        Refusal::new(LayerNormGradient, &[x, c, rows, rows], "4 inputs, it takes 5"),
        Refusal::new(LayerNormGradient, &[x, c, c, rows, x], "input 2 is [3], not [2]"),
        Refusal::new(LayerNormGradient, &[x, c, rows, c, x], "input 3 is [3], not [2]"),
        Refusal::new(LayerNormGradient, &[x, c, rows, rows, f32(&[2, 4])], "inputs 0 and 4 differ in shape"),
    ]
}

fn forward(inputs: &[Array]) -> Vec<Array> {
    let [x, scale, shift] = inputs else { panic!("three inputs") };
    let channels = scale.data.len();
    let rows = x.data.len() / channels;
    let (mut y, mut means, mut rstds) = (Vec::new(), Vec::new(), Vec::new());
    for row in 0..rows {
        let x = &x.data[row * channels..][..channels];
        let mean = x.iter().sum::<f64>() / channels as f64;
        let variance = x.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / channels as f64;
        let rstd = 1.0 / (variance + f64::from(EPSILON)).sqrt();
        y.extend((0..channels).map(|c| (x[c] - mean) * rstd * scale.data[c] + shift.data[c]));
        means.push(mean);
        rstds.push(rstd);
    }
    let outer = &x.shape[..x.rank() - 1];
    vec![Array::f32(&x.shape, y), Array::f32(outer, means), Array::f32(outer, rstds)]
}

fn backward(inputs: &[Array]) -> Vec<Array> {
    let [x, scale, mean, rstd, dy] = inputs else { panic!("five inputs") };
    let channels = scale.data.len();
    let (mut dx, mut dscale, mut dshift) = (Vec::new(), vec![0.0; channels], vec![0.0; channels]);
    for row in 0..mean.data.len() {
        let (mean, rstd) = (mean.data[row], rstd.data[row]);
        let normalized = |c: usize| (x.data[row * channels + c] - mean) * rstd;
        let dy = &dy.data[row * channels..][..channels];
        let direct = (0..channels).map(|c| dy[c] * scale.data[c]).sum::<f64>() / channels as f64;
        let along = (0..channels).map(|c| dy[c] * scale.data[c] * normalized(c)).sum::<f64>() / channels as f64;
        for c in 0..channels {
            dx.push(rstd * (dy[c] * scale.data[c] - direct - normalized(c) * along));
            dscale[c] += dy[c] * normalized(c);
            dshift[c] += dy[c];
        }
    }
    vec![Array::f32(&x.shape, dx), Array::f32(&[channels], dscale), Array::f32(&[channels], dshift)]
}
