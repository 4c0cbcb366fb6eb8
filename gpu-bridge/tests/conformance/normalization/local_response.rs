//! Each element by its neighbours in the channels around it.

use std::slice::from_ref;

use weft_gpu::DType;
use weft_gpu::op::{LocalResponseNorm, LocalResponseNormGradient};

use crate::array::{Array, coordinates};
use crate::case::{Case, Refusal, Tolerance, f32, of, within};

const CLOSE: Tolerance = within(1e-6, 5e-6);

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let norm = |size, alpha, beta, k| LocalResponseNorm { size, alpha, beta, k };
    for op in
        [norm(5, 1e-4, 0.75, 1.0), norm(4, 0.5, 0.75, 2.0), norm(1, 1.0, 0.5, 1.0), norm(usize::MAX, 1e20, 1.3, 2.0)]
    {
        for shape in [
            &[1_usize, 1, 1, 1] as &[usize],
            &[2, 7, 2, 3],
            &[2, 5, 3],
            &[1, 4, 2, 2, 2],
            &[3, 20, 13, 11],
            &[0, 3, 2, 2],
        ] {
            let x = Array::noise(shape, 1, -2.0, 3.0);
            let dy = Array::noise(shape, 2, -1.0, 1.0);
            let wanted: &[usize] = if (1..100).contains(&x.data.len()) { &[0] } else { &[] };
            cases.push(Case::new(op, from_ref(&x), CLOSE, move |x| vec![forward(op, &x[0])]).differentiated(wanted));
            let gradient = LocalResponseNormGradient(op);
            cases.push(Case::new(gradient, &[x, dy], CLOSE, move |x| vec![backward(op, &x[0], &x[1])]));
        }
    }
    // Many neighbours: windows that cross from one block of channels to the next, and begin or end with them.
    for size in [33, 40, 64, 99, 100, 101, 150] {
        for shape in [&[1_usize, 100, 3] as &[usize], &[2, 67, 5, 17], &[1, 200, 1]] {
            let op = norm(size, 0.5, 0.75, 2.0);
            let (x, dy) = (Array::noise(shape, 1, -2.0, 3.0), Array::noise(shape, 2, -1.0, 1.0));
            cases.push(Case::new(op, from_ref(&x), CLOSE, move |x| vec![forward(op, &x[0])]));
            let gradient = LocalResponseNormGradient(op);
            cases.push(Case::new(gradient, &[x, dy], CLOSE, move |x| vec![backward(op, &x[0], &x[1])]));
        }
        // What is large leaves no trace in windows without it.
        let mut x = Array::noise(&[1, 150, 1], 1, -1.0, 1.0);
        x.data[70] = 1e15;
        let op = norm(size, 1.0, 0.75, 1.0);
        cases.push(Case::new(op, &[x], CLOSE, move |x| vec![forward(op, &x[0])]));
    }
    // A NaN reaches the channels for which it counts, and no others; a negative base has no power.
    let mut nan = Array::noise(&[1, 5, 1, 2], 1, -1.0, 1.0);
    nan.data[4] = f64::NAN;
    let op = norm(3, 1.0, 0.75, 1.0);
    cases.push(Case::new(op, &[nan], CLOSE, move |x| vec![forward(op, &x[0])]));
    let op = norm(3, 1.0, 0.75, -5.0);
    cases.push(Case::new(op, &[Array::noise(&[1, 5, 1, 2], 1, 0.1, 1.0)], CLOSE, move |x| vec![forward(op, &x[0])]));
    cases
}

pub fn refusals() -> Vec<Refusal> {
    let x = f32(&[1, 2, 3, 3]);
    let op = LocalResponseNorm { size: 5, alpha: 1e-4, beta: 0.75, k: 1.0 };
    let mut refusals = vec![
        Refusal::new(op, &[x, x], "2 inputs, it takes 1"),
        Refusal::new(op, &[of(&[1, 2, 3], DType::U8)], "input 0 is u8, not f32"),
        Refusal::new(LocalResponseNormGradient(op), &[x], "1 inputs, it takes 2"),
        Refusal::new(LocalResponseNormGradient(op), &[x, f32(&[1, 2, 3, 4])], "inputs 0 and 1 differ in shape"),
    ];
    for (op, input, says) in [
        (op, f32(&[2, 3]), "input 0 is [2, 3], it must have 3 to 5 axes"),
        (LocalResponseNorm { size: 0, ..op }, x, "size 0 must be at least 1"),
        (LocalResponseNorm { alpha: f32::NAN, ..op }, x, "must be finite"),
        (LocalResponseNorm { beta: f32::INFINITY, ..op }, x, "must be finite"),
        (LocalResponseNorm { k: f32::NAN, ..op }, x, "must be finite"),
    ] {
        refusals.push(Refusal::new(op, &[input], says));
        refusals.push(Refusal::new(LocalResponseNormGradient(op), &[input, input], says));
    }
    refusals
}

/// What each element is divided by, before the power.
fn divisors(op: LocalResponseNorm, x: &Array) -> Array {
    let channels = x.shape[1] as i128;
    let data = coordinates(&x.shape)
        .map(|mut at| {
            let (channel, size) = (at[1] as i128, op.size as i128);
            let mut sum = 0.0;
            for neighbour in (channel - size / 2).max(0)..=(channel + (size - 1) / 2).min(channels - 1) {
                at[1] = neighbour as usize;
                sum += x.at(&at) * x.at(&at);
            }
            f64::from(op.k) + f64::from(op.alpha) / op.size as f64 * sum
        })
        .collect();
    Array::f32(&x.shape, data)
}

fn forward(op: LocalResponseNorm, x: &Array) -> Array {
    let data = x.data.iter().zip(&divisors(op, x).data).map(|(x, d)| x / d.powf(f64::from(op.beta))).collect();
    Array::f32(&x.shape, data)
}

fn backward(op: LocalResponseNorm, x: &Array, dy: &Array) -> Array {
    let divisors = divisors(op, x);
    let beta = f64::from(op.beta);
    let mut dx = Array::f32(&x.shape, vec![0.0; x.data.len()]);
    for at in coordinates(&x.shape) {
        let index = x.index(&at);
        let (d, dy, own) = (divisors.data[index], dy.data[index], x.data[index]);
        dx.data[index] += dy * d.powf(-beta);
        let factor = -2.0 * f64::from(op.alpha) / op.size as f64 * beta * dy * own * d.powf(-beta - 1.0);
        let (channel, size) = (at[1] as i128, op.size as i128);
        for neighbour in (channel - size / 2).max(0)..=(channel + (size - 1) / 2).min(x.shape[1] as i128 - 1) {
            let mut at = at.clone();
            at[1] = neighbour as usize;
            let neighbour = x.index(&at);
            dx.data[neighbour] += factor * x.data[neighbour];
        }
    }
    dx
}
