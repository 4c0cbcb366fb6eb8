//! The largest of each row and where they are.

use weft_gpu::DType;
use weft_gpu::op::{TopK, TopKGradient};

use crate::array::Array;
use crate::case::{Case, EXACT, Refusal, f32, of, within};

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let sizes: [(&[usize], usize); 10] = [
        (&[1], 1),
        (&[5], 5),
        (&[0, 4], 2),
        (&[3, 7], 2),
        (&[2, 3, 40], 33),
        (&[2, 50], 50),
        (&[500, 100], 5),
        (&[70_001], 40),
        (&[70_001], 7),
        (&[3, 2500], 700),
    ];
    for (sizes, count) in sizes {
        // Few enough elements are all different, by more than a finite difference.
        let x = Array::build(sizes, DType::F32, |index| f64::from((index * 389 % 1009) as f32 / 100.0));
        let small = x.data.len() < 1000;
        let case = Case::new(TopK { count }, &[x], EXACT, move |x| top(&x[0], count));
        cases.push(if small { case.differentiated(&[0]) } else { case });
    }
    // Many equals, and all that is not a number.
    for count in [3, 40] {
        let x = Array::build(&[2, 60], DType::F32, |index| match index % 7 {
            0 => f64::NAN,
            1 => f64::INFINITY,
            2 => f64::NEG_INFINITY,
            3 => 0.0,
            4 => -0.0,
            _ => 1.0,
        });
        cases.push(Case::new(TopK { count }, &[x], EXACT, move |x| top(&x[0], count)));
    }
    for (sizes, size) in [(&[2, 3][..], 5), (&[3], 1), (&[0, 2], 4), (&[2, 0], 0), (&[2000, 3], 50), (&[3, 100], 150)] {
        let indices = Array::integers(sizes, DType::U32, 22, size);
        let dy = Array::noise(sizes, 23, -1.0, 1.0);
        cases.push(Case::new(TopKGradient { size }, &[dy, indices], within(1e-6, 1e-6), move |x| {
            let count = x[0].shape[x[0].rank() - 1];
            let mut to = x[0].shape.clone();
            to[x[0].rank() - 1] = size;
            let mut dx = Array::build(&to, DType::F32, |_| 0.0);
            for (at, (&dy, &index)) in x[0].data.iter().zip(&x[1].data).enumerate() {
                dx.data[at / count * size + index as usize] += dy;
            }
            vec![dx]
        }));
    }
    cases
}

fn top(x: &Array, count: usize) -> Vec<Array> {
    let size = x.shape[x.rank() - 1];
    let mut shape = x.shape.clone();
    shape[x.rank() - 1] = count;
    let (mut values, mut indices) = (Vec::new(), Vec::new());
    for row in x.data.chunks(size) {
        let mut order: Vec<usize> = (0..size).collect();
        // Stable, so that the lower index stays first.
        order.sort_by(|&a, &b| match (row[a].is_nan(), row[b].is_nan()) {
            (false, false) => row[b].partial_cmp(&row[a]).unwrap(),
            (a, b) => b.cmp(&a),
        });
        values.extend(order[..count].iter().map(|&index| row[index]));
        indices.extend(order[..count].iter().map(|&index| index as f64));
    }
    vec![Array::f32(&shape, values), Array::new(&shape, DType::U32, indices)]
}

pub fn refusals() -> Vec<Refusal> {
    let u8s = |sizes: &[usize]| of(sizes, DType::U8);
    vec![
        Refusal::new(TopK { count: 0 }, &[f32(&[2])], "the 0 largest of the last axis of [2]"),
        Refusal::new(TopK { count: 3 }, &[f32(&[2])], "the 3 largest of the last axis of [2]"),
        Refusal::new(TopK { count: 1 }, &[f32(&[])], "input 0 is a scalar"),
        Refusal::new(TopK { count: 1 }, &[u8s(&[2])], "input 0 is u8, not f32"),
        Refusal::new(TopKGradient { size: 1 }, &[f32(&[2]), u8s(&[2])], "input 1 is u8, not u32"),
        Refusal::new(TopKGradient { size: 1 }, &[f32(&[2]), of(&[3], DType::U32)], "differ in shape: [2] and [3]"),
        Refusal::new(TopKGradient { size: 1 }, &[f32(&[]), of(&[], DType::U32)], "input 0 is a scalar"),
        Refusal::new(TopKGradient { size: 0 }, &[f32(&[2]), of(&[2], DType::U32)], "out of range, there are 0"),
        Refusal::new(TopKGradient { size: usize::MAX }, &[f32(&[2]), of(&[2], DType::U32)], "too large"),
        Refusal::new(TopK { count: 1 }, &[], "0 inputs, it takes 1"),
    ]
}
