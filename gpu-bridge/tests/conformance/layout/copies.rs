//! The same elements written somewhere else.

use weft_gpu::DType;
use weft_gpu::op::{Assign, Copy};

use super::varied;
use crate::array::{Array, coordinates};
use crate::case::{Case, EXACT, Refusal, f32, of};

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let shapes: [&[usize]; 9] =
        [&[], &[0, 3], &[1], &[7], &[3, 5, 7], &[64, 64], &[70_001], &[3, 129, 257], &[2, 3, 4, 5, 2, 3]];
    for sizes in shapes {
        for dtype in DType::ALL {
            cases.push(Case::new(Copy, &[varied(sizes, dtype)], EXACT, |x| x.to_vec()));
        }
    }
    cases.push(Case::new(Copy, &[varied(&[2, 3], DType::F32)], EXACT, |x| x.to_vec()).differentiated(&[0]));
    let special = Array::f32(&[2, 2], vec![f64::NAN, f64::INFINITY, -0.0, f64::NEG_INFINITY]);
    cases.push(Case::new(Copy, &[special], EXACT, |x| x.to_vec()));
    let assignments: [(&[usize], &[usize]); 7] = [
        (&[3, 4], &[3, 4]),
        (&[0, 4], &[1, 4]),
        (&[3, 4], &[]),
        (&[3, 4], &[4]),
        (&[2, 3, 4], &[3, 1]),
        (&[300, 301], &[300, 1]),
        (&[300, 301], &[301]),
    ];
    for (into, from) in assignments {
        for dtype in DType::ALL {
            let inputs = [Array::build(into, dtype, |_| 1.0), varied(from, dtype)];
            cases.push(Case::new(Assign, &inputs, EXACT, |x| {
                let data = coordinates(&x[0].shape).map(|c| x[1].broadcast_at(&c)).collect();
                vec![Array::new(&x[0].shape, x[0].dtype, data)]
            }));
        }
    }
    cases
}

pub fn refusals() -> Vec<Refusal> {
    vec![
        Refusal::new(Copy, &[f32(&[2]), f32(&[2])], "2 inputs, it takes 1"),
        Refusal::new(Assign, &[f32(&[2]), of(&[2], DType::U8)], "input 1 is u8, not f32"),
        Refusal::new(Assign, &[f32(&[2]), f32(&[3])], "does not expand: [3] and [2]"),
        Refusal::new(Assign, &[f32(&[2]), f32(&[2, 2])], "does not expand: [2, 2] and [2]"),
        Refusal::new(Copy, &[], "0 inputs, it takes 1"),
    ]
}

#[cfg(test)]
mod on_the_cpu {
    use super::super::{context, permuted};
    use super::*;

    /// Axes swapped of what was contiguous: blocks, strips, channels of images and what is left of them.
    #[test]
    fn copies_of_permuted_tensors_are_exact() {
        let context = context();
        let cases: [(&[usize], &[usize]); 10] = [
            (&[16, 16], &[1, 0]),
            (&[33, 50], &[1, 0]),
            (&[300, 700], &[1, 0]),
            (&[2, 40, 41, 3], &[0, 3, 1, 2]),
            (&[2, 3, 40, 41], &[0, 2, 3, 1]),
            (&[2, 210, 200, 4], &[0, 3, 1, 2]),
            (&[2, 4, 210, 200], &[0, 2, 3, 1]),
            (&[3, 17, 5, 64], &[0, 2, 3, 1]),
            (&[20, 30, 40], &[2, 1, 0]),
            (&[5, 1, 20_000], &[2, 0, 1]),
        ];
        for (sizes, order) in cases {
            for dtype in DType::ALL {
                let x = varied(sizes, dtype);
                let want = permuted(&x, order);
                for threads in [1, 3] {
                    context.set_threads(threads);
                    let copy = x.upload(&context).permute(order).unwrap().copy().unwrap();
                    assert!(Array::download(&copy) == want, "{dtype} {sizes:?} as {order:?}");
                }
            }
        }
    }

    #[test]
    fn contiguous_copies_only_what_lies_apart() {
        let context = context();
        let x = context.tensor(&[2, 3], &[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        let used = context.heap().used();
        assert_eq!(x.contiguous().unwrap().to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(context.heap().used(), used);
        let apart = x.transposed().unwrap().contiguous().unwrap();
        assert!(apart.layout().is_contiguous());
        assert_eq!(apart.to_vec::<f32>().unwrap(), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    }
}
