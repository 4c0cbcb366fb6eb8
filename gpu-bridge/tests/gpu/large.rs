//! More elements than a dispatch has groups or a binding has bytes, beside the CPU.

use weft_gpu::{Context, Tensor};

use crate::{adapter, context, cpu, gpu};

/// Past both limits of the software GPU that the tests run on: 65,535 groups of 64, and 128 MiB.
const LONG: usize = 35_000_000;

fn both(elements: usize, width: usize, work: impl Fn(&Context, &Tensor) -> weft_gpu::Result<Tensor>) {
    let gpu = gpu();
    let rows = elements / width;
    let values: Vec<f32> = (0..rows * width).map(|i| ((i * 7919) % 10_007) as f32 / 10_007.0 - 0.5).collect();
    let run = |context: &Context| {
        let x = context.tensor(&[rows, width], &values).unwrap();
        work(context, &x).unwrap().to_vec::<f32>().unwrap()
    };
    let (want, got) = (run(&cpu()), run(&context(&gpu)));
    assert_eq!(want.len(), got.len());
    for (i, (want, got)) in want.iter().zip(&got).enumerate() {
        assert!((want - got).abs() <= 1e-3 * want.abs().max(1.0), "element {i} is {got}, on the CPU {want}");
    }
    assert_eq!(gpu.stats().uncaptured_errors, 0);
}

#[test]
fn the_limits_are_passed() {
    let limits = adapter().limits();
    println!("{} bytes in a binding", limits.max_storage_buffer_binding_size);
    assert!(LONG > 64 * limits.max_compute_workgroups_per_dimension as usize);
}

#[test]
fn elementwise() {
    both(LONG, 7, |_, x| x.affine(3.0, 1.0)?.mul(x));
}

#[test]
fn transposed() {
    both(LONG, 7, |_, x| x.transposed()?.contiguous());
}

#[test]
fn sums_and_softmax() {
    both(LONG, 10, |_, x| x.softmax()?.reduce(weft_gpu::op::Reducer::Max, &[1], false));
}

#[test]
fn products() {
    both(LONG, 70, |context, x| {
        let weight = context.full(&[70, 3], weft_gpu::DType::F32, 0.125)?;
        x.matmul(&weight)
    });
}

#[test]
fn rows_by_index() {
    both(LONG, 7, |context, x| {
        let last = u32::try_from(x.shape()[0] - 1).unwrap_or(u32::MAX);
        x.gather_rows(&context.tensor(&[3], &[last, 0, last / 2])?)
    });
}
