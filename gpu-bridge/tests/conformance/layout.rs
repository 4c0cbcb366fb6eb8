//! The same elements elsewhere: views, copies, rows by index, the largest, images of another size.

use std::sync::Arc;

use weft_gpu::device::cpu::Cpu;
use weft_gpu::{Context, Crew, DType, Limits, Shape};

use crate::array::{Array, coordinates};
use crate::case::{Case, Refusal};

mod copies;
mod join;
mod resize;
mod rows;
mod top;
mod views;

pub fn cases() -> Vec<Case> {
    [views::cases(), copies::cases(), join::cases(), rows::cases(), top::cases(), resize::cases()]
        .into_iter()
        .flatten()
        .collect()
}

pub fn refusals() -> Vec<Refusal> {
    [views::refusals(), copies::refusals(), join::refusals(), rows::refusals(), top::refusals(), resize::refusals()]
        .into_iter()
        .flatten()
        .collect()
}

fn shape(sizes: &[usize]) -> Shape {
    Shape::new(sizes).unwrap()
}

/// Elements of any type that differ from their neighbours.
fn varied(shape: &[usize], dtype: DType) -> Array {
    match dtype {
        DType::F32 => Array::noise(shape, 5, -3.0, 3.0),
        DType::F16 => Array::integers(shape, dtype, 6, 2000),
        DType::U8 => Array::integers(shape, dtype, 7, 256),
        DType::I32 | DType::U32 => Array::integers(shape, dtype, 8, 1 << 30),
    }
}

/// The array of a shape whose element at some coordinates is that of `x` at others.
fn rearranged(x: &Array, shape: &[usize], from: impl Fn(&[usize]) -> Vec<usize>) -> Array {
    Array::new(shape, x.dtype, coordinates(shape).map(|c| x.at(&from(&c))).collect())
}

/// The array with its axes in this order.
fn permuted(x: &Array, order: &[usize]) -> Array {
    let to: Vec<usize> = order.iter().map(|&axis| x.shape[axis]).collect();
    rearranged(x, &to, |c| {
        let mut from = vec![0; c.len()];
        order.iter().zip(c).for_each(|(&axis, &c)| from[axis] = c);
        from
    })
}

/// For what only the CPU promises.
fn context() -> Context {
    Context::new(Arc::new(Cpu::new()), Arc::new(Crew::new(3)), Limits::default())
}
