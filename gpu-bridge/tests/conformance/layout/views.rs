//! Other shapes, orders, repetitions and parts of the same elements.

use weft_gpu::DType;
use weft_gpu::op::{Expand, Permute, Reshape, Slice};

use super::{permuted, rearranged, shape, varied};
use crate::array::{Array, coordinates};
use crate::case::{Case, EXACT, Refusal, f32};

pub fn cases() -> Vec<Case> {
    [reshapes(), permutations(), expansions(), slices()].into_iter().flatten().collect()
}

fn slice(starts: &[usize], sizes: &[usize], steps: &[usize]) -> Slice {
    Slice { starts: shape(starts), sizes: shape(sizes), steps: shape(steps) }
}

fn reshapes() -> Vec<Case> {
    let mut cases = Vec::new();
    let reshapes: [(&[usize], &[usize]); 7] = [
        (&[], &[1, 1]),
        (&[0, 3], &[5, 0]),
        (&[6], &[2, 3]),
        (&[4, 1, 6], &[2, 2, 3, 2]),
        (&[2, 3, 4], &[24]),
        (&[2, 3, 4], &[3, 8]),
        (&[300, 500], &[150, 1000]),
    ];
    for (from, to) in reshapes {
        for dtype in [DType::F32, DType::U8] {
            let case = Case::new(Reshape(shape(to)), &[varied(from, dtype)], EXACT, move |x| {
                vec![Array::new(to, x[0].dtype, x[0].data.clone())]
            });
            cases.push(if dtype == DType::F32 && from.len() == 3 { case.differentiated(&[0]) } else { case });
        }
    }
    cases
}

fn permutations() -> Vec<Case> {
    let mut cases = Vec::new();
    let orders: [(&[usize], &[usize]); 6] = [
        (&[], &[]),
        (&[3, 0], &[1, 0]),
        (&[3, 4], &[1, 0]),
        (&[2, 3, 4, 5], &[3, 1, 0, 2]),
        (&[1, 2, 1, 3, 1, 2, 1, 2], &[7, 0, 5, 2, 3, 4, 1, 6]),
        (&[200, 300], &[1, 0]),
    ];
    for (sizes, order) in orders {
        let inputs = [varied(sizes, DType::F32)];
        let case = Case::new(Permute::new(order).unwrap(), &inputs, EXACT, move |x| vec![permuted(&x[0], order)]);
        cases.push(if sizes.iter().product::<usize>() < 200 { case.differentiated(&[0]) } else { case });
    }
    cases
}

fn expansions() -> Vec<Case> {
    let mut cases = Vec::new();
    let expansions: [(&[usize], &[usize]); 8] = [
        (&[], &[3]),
        (&[1], &[0]),
        (&[1], &[2, 3]),
        (&[1, 0], &[4, 0]),
        (&[3, 1], &[2, 3, 4]),
        (&[4], &[3, 4]),
        (&[1, 5], &[3, 5]),
        (&[1, 300], &[300, 300]),
    ];
    for (from, to) in expansions {
        for dtype in [DType::F32, DType::I32] {
            let case = Case::new(Expand(shape(to)), &[varied(from, dtype)], EXACT, move |x| {
                vec![Array::new(to, x[0].dtype, coordinates(to).map(|c| x[0].broadcast_at(&c)).collect())]
            });
            let small = to.iter().product::<usize>() < 200;
            cases.push(if small && dtype == DType::F32 { case.differentiated(&[0]) } else { case });
        }
    }
    cases
}

fn slices() -> Vec<Case> {
    let mut cases = Vec::new();
    let slices: [(&[usize], Slice); 8] = [
        (&[], slice(&[], &[], &[])),
        (&[5], slice(&[5], &[0], &[1])),
        (&[5], slice(&[0], &[0], &[1])),
        (&[5], slice(&[4], &[1], &[1 << 39])),
        (&[7], slice(&[1], &[3], &[2])),
        (&[4, 5, 6], slice(&[1, 0, 2], &[2, 5, 2], &[2, 1, 3])),
        (&[4, 0], slice(&[1, 0], &[2, 0], &[1, 7])),
        (&[300, 400], slice(&[3, 1], &[290, 133], &[1, 3])),
    ];
    for (sizes, op) in slices {
        for dtype in [DType::F32, DType::F16] {
            let case = Case::new(op, &[varied(sizes, dtype)], EXACT, move |x| vec![sliced(&x[0], &op)]);
            let small = sizes.iter().product::<usize>() < 200;
            cases.push(if small && dtype == DType::F32 { case.differentiated(&[0]) } else { case });
        }
    }
    cases
}

fn sliced(x: &Array, op: &Slice) -> Array {
    rearranged(x, &op.sizes, |c| c.iter().enumerate().map(|(axis, &c)| op.starts[axis] + c * op.steps[axis]).collect())
}

pub fn refusals() -> Vec<Refusal> {
    vec![
        Refusal::new(Reshape(shape(&[4])), &[f32(&[5])], "elements differs: [5] and [4]"),
        Refusal::new(Permute::new(&[1, 0]).unwrap(), &[f32(&[5])], "input 0 is [5], it must have 2 axes"),
        Refusal::new(Expand(shape(&[4])), &[f32(&[2])], "does not expand: [2] and [4]"),
        Refusal::new(Expand(shape(&[2])), &[f32(&[2, 2])], "does not expand: [2, 2] and [2]"),
        Refusal::new(Expand(shape(&[1])), &[f32(&[2])], "does not expand: [2] and [1]"),
        Refusal::new(slice(&[0], &[1], &[1]), &[f32(&[2, 2])], "must have the axes of [2, 2]"),
        Refusal::new(slice(&[0], &[1, 1], &[1, 1]), &[f32(&[2, 2])], "must have the axes of [2, 2]"),
        Refusal::new(slice(&[0], &[1], &[0]), &[f32(&[2])], "1 from 0 in steps of 0 do not fit axis 0 of [2]"),
        Refusal::new(slice(&[1], &[2], &[1]), &[f32(&[2])], "2 from 1 in steps of 1 do not fit axis 0 of [2]"),
        Refusal::new(slice(&[3], &[0], &[1]), &[f32(&[2])], "0 from 3 in steps of 1 do not fit axis 0 of [2]"),
        Refusal::new(slice(&[0], &[1 << 40], &[1 << 40]), &[f32(&[2])], "do not fit axis 0 of [2]"),
        Refusal::new(slice(&[0, 1], &[2, 2], &[1, 2]), &[f32(&[2, 3])], "do not fit axis 1 of [2, 3]"),
        Refusal::new(Reshape(shape(&[0])), &[], "0 inputs, it takes 1"),
        Refusal::new(Permute::new(&[]).unwrap(), &[], "0 inputs, it takes 1"),
        Refusal::new(Expand(shape(&[])), &[], "0 inputs, it takes 1"),
        Refusal::new(slice(&[], &[], &[]), &[], "0 inputs, it takes 1"),
    ]
}

#[test]
fn what_is_no_permutation_is_refused() {
    for order in [&[1][..], &[0, 0], &[0, 2], &[usize::MAX], &[0, 1, 2, 3, 4, 5, 6, 7, 8]] {
        assert!(Permute::new(order).is_err(), "{order:?}");
    }
}
