//! Larger tensors of smaller ones: padding and concatenation.

use weft_gpu::DType;
use weft_gpu::op::{Concat, Pad};

use super::{shape, varied};
use crate::array::{Array, coordinates};
use crate::case::{Case, EXACT, Refusal, f32, of};

fn pad(before: &[usize], after: &[usize], steps: &[usize], value: f32) -> Pad {
    Pad { before: shape(before), after: shape(after), steps: shape(steps), value }
}

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let pads: [(&[usize], Pad); 9] = [
        (&[], pad(&[], &[], &[], 1.0)),
        (&[3], pad(&[0], &[0], &[1], 1.0)),
        (&[0], pad(&[2], &[1], &[5], 1.5)),
        (&[3], pad(&[1], &[2], &[1], 0.0)),
        (&[3], pad(&[1], &[2], &[3], -7.5)),
        (&[2, 3], pad(&[1, 0], &[0, 2], &[1, 2], 300.0)),
        (&[2, 3, 4], pad(&[0, 1, 2], &[2, 1, 0], &[3, 1, 2], 9.0)),
        (&[2, 3], pad(&[1, 0], &[0, 2], &[1, 2], f32::NAN)),
        (&[3, 200, 200], pad(&[0, 1, 1], &[0, 1, 1], &[1, 1, 1], f32::NEG_INFINITY)),
    ];
    for (sizes, op) in pads {
        for dtype in DType::ALL {
            let case = Case::new(op, &[varied(sizes, dtype)], EXACT, move |x| vec![padded(&x[0], &op)]);
            let small = sizes.iter().product::<usize>() < 200 && op.value.is_finite();
            cases.push(if small && dtype == DType::F32 { case.differentiated(&[0]) } else { case });
        }
    }
    let concats: [(usize, &[&[usize]]); 7] = [
        (0, &[&[3]]),
        (0, &[&[3], &[0], &[2]]),
        (1, &[&[2, 3], &[2, 1], &[2, 4]]),
        (0, &[&[1, 3, 2], &[2, 3, 2]]),
        (1, &[&[2, 1, 2], &[2, 2, 2]]),
        (1, &[&[0, 3], &[0, 4]]),
        (1, &[&[3, 100, 70], &[3, 200, 70], &[3, 1, 70]]),
    ];
    for (axis, shapes) in concats {
        for dtype in DType::ALL {
            let inputs: Vec<Array> = shapes.iter().map(|sizes| varied(sizes, dtype)).collect();
            let case = Case::new(Concat { axis }, &inputs, EXACT, move |x| vec![joined(x, axis)]);
            let small = inputs.iter().all(|x| x.data.len() < 200);
            let all: Vec<usize> = (0..inputs.len()).collect();
            cases.push(if small && dtype == DType::F32 { case.differentiated(&all) } else { case });
        }
    }
    let many: Vec<Array> = (0..40).map(|_| varied(&[2, 2], DType::F32)).collect();
    let all: Vec<usize> = (0..40).collect();
    cases.push(Case::new(Concat { axis: 0 }, &many, EXACT, |x| vec![joined(x, 0)]).differentiated(&all));
    cases
}

fn padded(x: &Array, op: &Pad) -> Array {
    let rank = x.rank();
    let spread = |axis: usize| if x.shape[axis] == 0 { 0 } else { (x.shape[axis] - 1) * op.steps[axis] + 1 };
    let sizes: Vec<usize> = (0..rank).map(|axis| op.before[axis] + spread(axis) + op.after[axis]).collect();
    let value = match x.dtype {
        DType::F32 | DType::F16 => f64::from(op.value),
        DType::U8 => f64::from(op.value as u8),
        DType::I32 => f64::from(op.value as i32),
        DType::U32 => f64::from(op.value as u32),
    };
    Array::new(
        &sizes,
        x.dtype,
        coordinates(&sizes)
            .map(|c| {
                let from: Option<Vec<usize>> = (0..rank)
                    .map(|axis| {
                        let inner = c[axis].checked_sub(op.before[axis])?;
                        let on = inner % op.steps[axis] == 0 && inner / op.steps[axis] < x.shape[axis];
                        on.then_some(inner / op.steps[axis])
                    })
                    .collect();
                from.map_or(value, |from| x.at(&from))
            })
            .collect(),
    )
}

fn joined(inputs: &[Array], axis: usize) -> Array {
    let mut sizes = inputs[0].shape.clone();
    sizes[axis] = inputs.iter().map(|x| x.shape[axis]).sum();
    let data = coordinates(&sizes)
        .map(|mut c| {
            let mut at = 0;
            while c[axis] >= inputs[at].shape[axis] {
                c[axis] -= inputs[at].shape[axis];
                at += 1;
            }
            inputs[at].at(&c)
        })
        .collect();
    Array::new(&sizes, inputs[0].dtype, data)
}

pub fn refusals() -> Vec<Refusal> {
    vec![
        Refusal::new(pad(&[0], &[0], &[1], 0.0), &[f32(&[2, 2])], "must have the axes of [2, 2]"),
        Refusal::new(pad(&[0, 0], &[0], &[1, 1], 0.0), &[f32(&[2, 2])], "must have the axes of [2, 2]"),
        Refusal::new(pad(&[0], &[0], &[0], 0.0), &[f32(&[2])], "steps at least 1"),
        Refusal::new(pad(&[1 << 40], &[1], &[1], 0.0), &[f32(&[2])], "too large"),
        Refusal::new(pad(&[1], &[1], &[1 << 40], 0.0), &[f32(&[2])], "too large"),
        Refusal::new(Concat { axis: 0 }, &[], "0 inputs, it takes at least 1"),
        Refusal::new(Concat { axis: 0 }, &[f32(&[])], "[] has no axis 0"),
        Refusal::new(Concat { axis: 1 }, &[f32(&[2]), f32(&[2])], "[2] has no axis 1"),
        Refusal::new(Concat { axis: usize::MAX }, &[f32(&[2])], "has no axis"),
        Refusal::new(Concat { axis: 0 }, &[f32(&[2]), of(&[2], DType::U8)], "input 1 is u8, not f32"),
        Refusal::new(Concat { axis: 0 }, &[f32(&[2, 3]), f32(&[2, 4])], "beside axis 0: [2, 3] and [2, 4]"),
        Refusal::new(Concat { axis: 0 }, &[f32(&[2, 3]), f32(&[2])], "beside axis 0: [2, 3] and [2]"),
        Refusal::new(pad(&[], &[], &[], 0.0), &[], "0 inputs, it takes 1"),
    ]
}

#[cfg(test)]
mod on_the_cpu {
    use super::super::context;

    #[test]
    fn narrowing_and_joining_again_changes_nothing() {
        let context = context();
        let x = context.tensor(&[2, 5], &(0..10_u8).collect::<Vec<_>>()).unwrap();
        let (left, right) = (x.narrow(1, 0, 2).unwrap(), x.narrow(1, 2, 3).unwrap());
        let joined = context.concat(&[&left, &right], 1).unwrap();
        assert_eq!(joined.to_vec::<u8>().unwrap(), x.to_vec::<u8>().unwrap());
        assert!(x.narrow(2, 0, 1).is_err());
        assert!(x.narrow(1, 4, 2).is_err());
    }
}
