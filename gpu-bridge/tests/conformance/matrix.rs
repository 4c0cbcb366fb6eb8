//! Products of matrices.

use weft_gpu::op::MatMul;

use crate::array::Array;
use crate::case::{Case, Refusal, f32, within};

pub fn cases() -> Vec<Case> {
    let (a, b) = (Array::noise(&[3, 4], 1, -1.0, 1.0), Array::noise(&[4, 2], 2, -1.0, 1.0));
    vec![
        Case::new(MatMul { scale: 0.5 }, &[a, b], within(1e-6, 1e-5), |x| matmul(&x[0], &x[1], 0.5))
            .differentiated(&[0, 1]),
    ]
}

pub fn refusals() -> Vec<Refusal> {
    vec![Refusal::new(MatMul { scale: 1.0 }, &[f32(&[2, 3]), f32(&[4, 2])], "cannot be multiplied: [2, 3] and [4, 2]")]
}

fn matmul(a: &Array, b: &Array, scale: f64) -> Vec<Array> {
    let (m, k, n) = (a.shape[0], a.shape[1], b.shape[1]);
    let mut data = Vec::new();
    for row in 0..m {
        for column in 0..n {
            data.push(scale * (0..k).map(|i| a.at(&[row, i]) * b.at(&[i, column])).sum::<f64>());
        }
    }
    vec![Array::f32(&[m, n], data)]
}
