//! Products of matrices.

use weft_gpu::DType;
use weft_gpu::op::{Linear, MatMul, Unary};

use crate::array::{Array, coordinates};
use crate::case::{Case, Refusal, Tolerance, f32, of, within};

/// Rounding grows with the depth of the product.
fn close(depth: usize) -> Tolerance {
    within(3e-7 * (1.0 + depth as f64).sqrt() * 4.0, 1e-5)
}

pub fn cases() -> Vec<Case> {
    let mut cases = products();
    cases.extend(linears());
    cases
}

fn products() -> Vec<Case> {
    let shapes: [(&[usize], &[usize]); 18] = [
        // nothing, in every direction
        (&[0, 3], &[3, 2]),
        (&[3, 0], &[0, 2]),
        (&[3, 2], &[2, 0]),
        (&[0, 2, 3], &[3, 2]),
        // one element, vectors, odd sizes
        (&[1, 1], &[1, 1]),
        (&[1, 70], &[70, 1]),
        (&[1, 33], &[33, 65]),
        (&[129, 28], &[28, 1]),
        (&[7, 5], &[5, 3]),
        // several tiles, and deeper than a tile looks up for
        (&[130, 300], &[300, 70]),
        (&[300, 200], &[200, 260]),
        (&[5, 20_000], &[20_000, 3]),
        (&[40, 9_000], &[9_000, 33]),
        // batches: small, large, broadcast either way, several axes
        (&[3, 4, 5], &[3, 5, 6]),
        (&[9, 64, 40], &[9, 40, 64]),
        (&[4, 5], &[2, 3, 5, 6]),
        (&[2, 1, 4, 5], &[3, 5, 6]),
        (&[2, 3, 4, 5], &[5, 6]),
    ];
    let mut cases = Vec::new();
    for (index, (a, b)) in shapes.into_iter().enumerate() {
        let depth = a[a.len() - 1];
        let (a, b) = (Array::noise(a, 1, -1.0, 1.0), Array::noise(b, 2, -1.0, 1.0));
        let scale = if index % 2 == 0 { 1.0 } else { 0.125 };
        let reference = move |x: &[Array]| vec![product(&x[0], &x[1], scale)];
        cases.push(Case::new(MatMul { scale: scale as f32 }, &[a, b], close(depth), reference));
    }
    let small: [(&[usize], &[usize]); 4] =
        [(&[3, 4], &[4, 2]), (&[2, 3, 2], &[2, 2, 3]), (&[3, 2], &[2, 2, 2]), (&[2, 1, 2, 3], &[2, 3, 2])];
    for (a, b) in small {
        let (a, b) = (Array::noise(a, 3, -1.0, 1.0), Array::noise(b, 4, -1.0, 1.0));
        let case = Case::new(MatMul { scale: 0.5 }, &[a, b], close(4), |x| vec![product(&x[0], &x[1], 0.5)]);
        cases.push(case.differentiated(&[0, 1]));
    }
    cases
}

/// An activation in f64.
type Exact = fn(f64) -> f64;

fn linears() -> Vec<Case> {
    let activations: [(Option<Unary>, Exact); 6] = [
        (None, |x| x),
        (Some(Unary::Relu), |x| x.max(0.0)),
        (Some(Unary::Leaky { slope: 0.25 }), |x| if x > 0.0 { x } else { 0.25 * x }),
        (Some(Unary::Tanh), f64::tanh),
        (Some(Unary::Silu), |x| x / (1.0 + (-x).exp())),
        (Some(Unary::HardSwish), |x| x * (x + 3.0).clamp(0.0, 6.0) / 6.0),
    ];
    let shapes: [(&[usize], usize); 8] = [
        (&[5], 3),
        (&[0, 5], 3),
        (&[4, 0], 3),
        (&[4, 5], 0),
        (&[128, 28], 1),
        (&[33, 100], 101),
        (&[2, 3, 4, 5], 6),
        (&[300, 70], 190),
    ];
    let mut cases = Vec::new();
    for (index, (activation, function)) in activations.into_iter().enumerate() {
        let op = Linear { activation };
        let pre_activation = activation.is_some_and(|activation| !activation.from_output());
        let reference = move |x: &[Array]| {
            let before = linear(&x[0], &x[1], x.get(2));
            let after = Array::f32(&before.shape, before.data.iter().map(|&x| function(x)).collect());
            if pre_activation { vec![after, before] } else { vec![after] }
        };
        for (x, outputs) in shapes {
            let depth = x[x.len() - 1];
            let bias = (index + x.len()) % 2 == 0;
            cases.push(Case::new(op, &operands(x, outputs, bias), close(depth), reference));
        }
        // Far enough from zero that no step of the differences crosses it.
        cases.push(Case::new(op, &operands(&[3, 4], 3, true), close(4), reference).differentiated(&[0, 1, 2]));
        cases.push(Case::new(op, &operands(&[2, 2, 3], 2, false), close(4), reference).differentiated(&[0, 1]));
    }
    cases
}

fn operands(x: &[usize], outputs: usize, bias: bool) -> Vec<Array> {
    let depth = x[x.len() - 1];
    let mut inputs = vec![Array::noise(x, 5, -1.0, 1.0), Array::noise(&[outputs, depth], 6, -1.0, 1.0)];
    inputs.extend(bias.then(|| Array::noise(&[outputs], 7, 0.1, 1.0)));
    inputs
}

pub fn refusals() -> Vec<Refusal> {
    let matmul = MatMul { scale: 1.0 };
    let linear = Linear { activation: None };
    let clamp = Linear { activation: Some(Unary::Clamp { low: 1.0, high: 0.0 }) };
    let huge = 1 << 39;
    vec![
        Refusal::new(matmul, &[f32(&[2, 3])], "1 inputs, it takes 2"),
        Refusal::new(matmul, &[f32(&[2, 3]), f32(&[4, 2])], "cannot be multiplied: [2, 3] and [4, 2]"),
        Refusal::new(matmul, &[f32(&[3]), f32(&[3, 2])], "cannot be multiplied: [3] and [3, 2]"),
        Refusal::new(matmul, &[of(&[2, 3], DType::I32), f32(&[3, 2])], "input 0 is i32, not f32"),
        Refusal::new(matmul, &[f32(&[2, 2, 3]), f32(&[3, 3, 2])], "batch axes do not broadcast"),
        Refusal::new(matmul, &[f32(&[huge, 0]), f32(&[0, 8])], "elements"),
        Refusal::new(linear, &[f32(&[2, 3]), f32(&[4, 2])], "the last axis is not what the weight takes"),
        Refusal::new(linear, &[f32(&[]), f32(&[4, 2])], "the last axis is not what the weight takes"),
        Refusal::new(linear, &[f32(&[2, 3]), f32(&[4, 3, 1])], "it must have 2 axes"),
        Refusal::new(linear, &[f32(&[2, 3]), f32(&[4, 3]), f32(&[3])], "input 2 is [3], not [4]"),
        Refusal::new(linear, &[f32(&[2, 3]); 4], "4 inputs, it takes 2 or 3"),
        Refusal::new(clamp, &[f32(&[2, 3]), f32(&[4, 3])], "must be at most"),
    ]
}

fn product(a: &Array, b: &Array, scale: f64) -> Array {
    let (m, k, n) = (a.shape[a.rank() - 2], a.shape[a.rank() - 1], b.shape[b.rank() - 1]);
    let (batch_a, batch_b) = (&a.shape[..a.rank() - 2], &b.shape[..b.rank() - 2]);
    let rank = batch_a.len().max(batch_b.len());
    let size = |batch: &[usize], axis: usize| (axis + batch.len()).checked_sub(rank).map_or(1, |axis| batch[axis]);
    let batch: Vec<usize> = (0..rank)
        .map(|axis| if size(batch_a, axis) == 1 { size(batch_b, axis) } else { size(batch_a, axis) })
        .collect();
    let mut data = Vec::new();
    for at in coordinates(&batch) {
        let start = |array: &Array, own: &[usize]| {
            let missing = rank - own.len();
            let index = own.iter().zip(&at[missing..]).fold(0, |index, (&size, &c)| index * size + c.min(size - 1));
            index * array.shape[array.rank() - 2] * array.shape[array.rank() - 1]
        };
        let (from_a, from_b) = (start(a, batch_a), start(b, batch_b));
        for row in 0..m {
            for column in 0..n {
                let terms = (0..k).map(|i| a.data[from_a + row * k + i] * b.data[from_b + i * n + column]);
                data.push(scale * terms.sum::<f64>());
            }
        }
    }
    let shape: Vec<usize> = batch.iter().copied().chain([m, n]).collect();
    Array::f32(&shape, data)
}

fn linear(x: &Array, weight: &Array, bias: Option<&Array>) -> Array {
    let (outputs, depth) = (weight.shape[0], weight.shape[1]);
    let mut shape = x.shape.clone();
    shape[x.rank() - 1] = outputs;
    let rows: usize = x.shape[..x.rank() - 1].iter().product();
    let mut data = Vec::new();
    for row in 0..rows {
        for output in 0..outputs {
            let terms = (0..depth).map(|i| x.data[row * depth + i] * weight.data[output * depth + i]);
            data.push(terms.sum::<f64>() + bias.map_or(0.0, |bias| bias.data[output]));
        }
    }
    Array::f32(&shape, data)
}

#[cfg(test)]
mod on_the_cpu {
    use std::sync::Arc;

    use weft_gpu::device::cpu::Cpu;
    use weft_gpu::{Context, Crew, Limits};

    use super::*;

    #[test]
    fn an_activation_gives_the_same_bits_with_the_product_or_after_it() {
        let context = Context::new(Arc::new(Cpu::new()), Arc::new(Crew::new(2)), Limits::default());
        let x = Array::noise(&[130, 40], 1, -1.0, 1.0).upload(&context);
        let weight = Array::noise(&[70, 40], 2, -1.0, 1.0).upload(&context);
        let product = x.linear(&weight, None, None).unwrap();
        for activation in [
            Unary::Relu,
            Unary::Leaky { slope: 0.1 },
            Unary::Tanh,
            Unary::Gelu,
            Unary::HardSwish,
            Unary::Clamp { low: -0.5, high: 0.5 },
            Unary::Pow { exponent: 2.0 },
        ] {
            let with = x.linear(&weight, None, Some(activation)).unwrap();
            let after = context.run_one(activation, &[&product]).unwrap();
            assert_eq!(with.to_vec::<f32>().unwrap(), after.to_vec::<f32>().unwrap(), "{activation:?}");
        }
    }
}
