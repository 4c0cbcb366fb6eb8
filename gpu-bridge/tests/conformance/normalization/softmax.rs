//! Rows to probabilities.

use std::slice::from_ref;

use weft_gpu::DType;
use weft_gpu::op::{LogSoftmax, LogSoftmaxGradient, MaskedSoftmax, Softmax, SoftmaxGradient};

use crate::array::{Array, coordinates};
use crate::case::{Case, Refusal, Tolerance, f32, of, within};

const CLOSE: Tolerance = within(1e-7, 2e-6);
const LOGARITHM: Tolerance = within(1e-6, 5e-7);

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for shape in [
        &[1_usize] as &[usize],
        &[5],
        &[3, 7],
        &[2, 3, 4],
        &[33, 130],
        &[0, 6],
        &[4, 0],
        &[600, 100],
        &[3, 20_000],
        &[20_000, 3],
    ] {
        let x = Array::noise(shape, 1, -6.0, 6.0);
        let wanted: &[usize] = if (1..100).contains(&x.data.len()) { &[0] } else { &[] };
        cases.push(Case::new(Softmax, from_ref(&x), CLOSE, softmax).differentiated(wanted));
        cases.push(Case::new(LogSoftmax, from_ref(&x), LOGARITHM, log_softmax).differentiated(wanted));
        let (y, dy) = (Array::noise(shape, 2, 0.0, 1.0), Array::noise(shape, 3, -1.0, 1.0));
        cases.push(Case::new(SoftmaxGradient, &[y.clone(), dy.clone()], within(1e-5, 1e-5), |x| {
            gradient(x, |y, dy, [along, _]| y * (dy - along))
        }));
        cases.push(Case::new(LogSoftmaxGradient, &[y, dy], within(1e-5, 1e-5), |x| {
            gradient(x, |y, dy, [_, total]| dy - y.exp() * total)
        }));
    }
    for (shape, mask) in [
        (&[3_usize, 7] as &[usize], &[3_usize, 7] as &[usize]),
        (&[3, 7], &[7]),
        (&[3, 7], &[3, 1]),
        (&[3, 7], &[]),
        (&[2, 3, 4, 5], &[2, 1, 1, 5]),
        (&[2, 3, 4, 5], &[1, 1, 4, 5]),
        (&[2, 3, 4, 5], &[3, 1, 5]),
        (&[2, 3, 4, 1], &[3, 1, 1]),
        (&[8, 8, 32, 40], &[8, 1, 1, 40]),
        (&[0, 4], &[4]),
        (&[4, 0], &[4, 1]),
    ] {
        let x = Array::noise(shape, 1, -6.0, 6.0);
        let mask = Array::integers(mask, DType::U8, 7, 3);
        let wanted: &[usize] = if (1..200).contains(&x.data.len()) { &[0] } else { &[] };
        cases.push(Case::new(MaskedSoftmax, &[x, mask], CLOSE, masked_softmax).differentiated(wanted));
    }
    cases.extend(special_cases());
    cases
}

/// Numbers far apart, infinite or NaN, and rows with nothing left.
fn special_cases() -> Vec<Case> {
    let inf = f64::INFINITY;
    let rows = Array::f32(
        &[7, 3],
        vec![
            1000.0,
            0.0,
            -1000.0,
            3e38,
            -3e38,
            3e38,
            0.0,
            -inf,
            1.0,
            -inf,
            -inf,
            -inf,
            0.0,
            inf,
            1.0,
            f64::NAN,
            1.0,
            2.0,
            -87.0,
            0.0,
            -95.0,
        ],
    );
    let mask = Array::new(
        &[7, 3],
        DType::U8,
        vec![1., 1., 1., 255., 0., 0., 1., 1., 0., 1., 1., 0., 1., 0., 1., 0., 1., 1., 0., 0., 0.],
    );
    vec![
        Case::new(Softmax, from_ref(&rows), CLOSE, softmax),
        Case::new(LogSoftmax, from_ref(&rows), LOGARITHM, log_softmax),
        Case::new(MaskedSoftmax, &[rows, mask], CLOSE, masked_softmax),
    ]
}

pub fn refusals() -> Vec<Refusal> {
    let x = f32(&[2, 3]);
    vec![
        Refusal::new(Softmax, &[], "0 inputs, it takes 1"),
        Refusal::new(Softmax, &[of(&[2], DType::U32)], "input 0 is u32, not f32"),
        Refusal::new(Softmax, &[f32(&[])], "input 0 is a scalar, it must have a last axis"),
        Refusal::new(LogSoftmax, &[x, x], "2 inputs, it takes 1"),
        Refusal::new(LogSoftmax, &[f32(&[])], "it must have a last axis"),
        Refusal::new(MaskedSoftmax, &[x], "1 inputs, it takes 2"),
        Refusal::new(MaskedSoftmax, &[x, x], "input 1 is f32, not u8"),
        Refusal::new(MaskedSoftmax, &[x, of(&[2], DType::U8)], "the mask does not expand: [2] and [2, 3]"),
        Refusal::new(MaskedSoftmax, &[f32(&[3]), of(&[2, 3], DType::U8)], "the mask does not expand"),
        Refusal::new(MaskedSoftmax, &[f32(&[]), of(&[], DType::U8)], "it must have a last axis"),
        Refusal::new(SoftmaxGradient, &[x], "1 inputs, it takes 2"),
        Refusal::new(SoftmaxGradient, &[x, f32(&[3, 2])], "inputs 0 and 1 differ in shape"),
        Refusal::new(SoftmaxGradient, &[x, of(&[2, 3], DType::I32)], "input 1 is i32, not f32"),
        Refusal::new(LogSoftmaxGradient, &[x], "1 inputs, it takes 2"),
        Refusal::new(LogSoftmaxGradient, &[f32(&[]), f32(&[])], "it must have a last axis"),
    ]
}

/// Applies `f` to each row.
fn rows(x: &Array, f: impl Fn(&[f64]) -> Vec<f64>) -> Vec<Array> {
    let length = x.shape[x.rank() - 1].max(1);
    vec![Array::f32(&x.shape, x.data.chunks(length).flat_map(f).collect())]
}

/// The largest, and the sum of all powers of what each is less.
fn normalizer(row: &[f64]) -> (f64, f64) {
    let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (most, row.iter().map(|x| (x - most).exp()).sum())
}

fn softmax(x: &[Array]) -> Vec<Array> {
    rows(&x[0], |row| {
        let (most, sum) = normalizer(row);
        row.iter().map(|x| (x - most).exp() / sum).collect()
    })
}

fn log_softmax(x: &[Array]) -> Vec<Array> {
    rows(&x[0], |row| {
        let (most, sum) = normalizer(row);
        row.iter().map(|x| x - most - sum.ln()).collect()
    })
}

fn masked_softmax(inputs: &[Array]) -> Vec<Array> {
    let (x, mask) = (&inputs[0], &inputs[1]);
    let open: Vec<bool> = coordinates(&x.shape).map(|c| mask.broadcast_at(&c) != 0.0).collect();
    let length = x.shape[x.rank() - 1].max(1);
    let mut y = Vec::new();
    for (row, open) in x.data.chunks(length).zip(open.chunks(length)) {
        let left: Vec<f64> = row.iter().zip(open).filter(|(_, open)| **open).map(|(x, _)| *x).collect();
        let (most, sum) = normalizer(&left);
        y.extend(row.iter().zip(open).map(|(x, open)| if *open { (x - most).exp() / sum } else { 0.0 }));
    }
    vec![Array::f32(&x.shape, y)]
}

/// `f` of `y`, `dy` and the sums over the row of `y dy` and `dy`.
fn gradient(x: &[Array], f: impl Fn(f64, f64, [f64; 2]) -> f64) -> Vec<Array> {
    let length = x[0].shape[x[0].rank() - 1].max(1);
    let mut dx = Vec::new();
    for (y, dy) in x[0].data.chunks(length).zip(x[1].data.chunks(length)) {
        let sums = [y.iter().zip(dy).map(|(y, dy)| y * dy).sum(), dy.iter().sum()];
        dx.extend(y.iter().zip(dy).map(|(&y, &dy)| f(y, dy, sums)));
    }
    vec![Array::f32(&x[0].shape, dx)]
}
