//! Element by element.

use weft_gpu::DType;
use weft_gpu::op::{Binary, Unary};

use crate::array::{Array, coordinates};
use crate::case::{Case, EXACT, ROUNDED, Refusal, f32, of};

/// Empty, one element, odd, and larger than a tile.
const SHAPES: [&[usize]; 5] = [&[0, 3], &[1], &[7], &[3, 5, 7], &[70_001]];

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for shape in SHAPES {
        let x = Array::noise(shape, 1, -3.0, 3.0);
        cases.push(Case::new(Unary::Neg, &[x.clone()], EXACT, |inputs| map(&inputs[0], |x| -x)));
        let y = Array::noise(shape, 2, -3.0, 3.0);
        cases.push(Case::new(Binary::Add, &[x, y], ROUNDED, |inputs| zip(&inputs[0], &inputs[1], |a, b| a + b)));
    }
    let (x, y) = (Array::noise(&[3, 4], 1, -3.0, 3.0), Array::noise(&[3, 4], 2, -3.0, 3.0));
    let add = |inputs: &[Array]| zip(&inputs[0], &inputs[1], |a, b| a + b);
    cases.push(Case::new(Binary::Add, &[x, y], ROUNDED, add).differentiated(&[0, 1]));
    cases
}

pub fn refusals() -> Vec<Refusal> {
    vec![
        Refusal::new(Unary::Neg, &[], "0 inputs, it takes 1"),
        Refusal::new(Unary::Neg, &[of(&[2], DType::U8)], "input 0 is u8, not f32"),
        Refusal::new(Binary::Add, &[f32(&[2, 3]), f32(&[4])], "do not broadcast: [2, 3] and [4]"),
    ]
}

fn map(x: &Array, f: impl Fn(f64) -> f64) -> Vec<Array> {
    vec![Array::f32(&x.shape, x.data.iter().map(|&x| f(x)).collect())]
}

fn zip(a: &Array, b: &Array, f: impl Fn(f64, f64) -> f64) -> Vec<Array> {
    let rank = a.rank().max(b.rank());
    let size = |array: &Array, axis: usize| (axis + array.rank()).checked_sub(rank).map_or(1, |axis| array.shape[axis]);
    let shape: Vec<usize> =
        (0..rank).map(|axis| if size(a, axis) == 1 { size(b, axis) } else { size(a, axis) }).collect();
    vec![Array::f32(&shape, coordinates(&shape).map(|c| f(a.broadcast_at(&c), b.broadcast_at(&c))).collect())]
}
