//! The GPU device beside its operations: memory, batches, errors, loss. A software GPU will do.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::num::NonZeroU32;
use std::sync::Arc;

use weft_gpu::device::Shared;
use weft_gpu::device::gpu::{Adapter, Gpu};
use weft_gpu::op::Slice;
use weft_gpu::{Context, Crew, DType, Error, Limits, Shape};

fn gpu() -> Gpu {
    let adapter =
        Adapter::all().into_iter().next().expect("there is no Vulkan device; `make setup` installs a software one");
    Gpu::open(adapter, None).unwrap()
}

fn context(gpu: &Gpu) -> Context {
    Context::new(gpu.open(NonZeroU32::MIN).unwrap(), Arc::new(Crew::new(1)), Limits::default())
}

#[test]
fn bytes_come_back_as_they_went() {
    let gpu = gpu();
    let context = context(&gpu);
    let words: Vec<f32> = (0..3_000_000).map(|i| i as f32).collect();
    assert_eq!(context.tensor(&[words.len()], &words).unwrap().to_vec::<f32>().unwrap(), words);
    let bytes: Vec<u8> = (0..1013_u32).map(|i| (i % 251) as u8).collect();
    let tensor = context.tensor(&[bytes.len()], &bytes).unwrap();
    assert_eq!(tensor.to_vec::<u8>().unwrap(), bytes);
    // Odd ends: the neighbours stay.
    tensor.write(5, &[1, 2, 3, 4, 5, 6]).unwrap();
    tensor.write(101, &[7]).unwrap();
    let mut want = bytes.clone();
    want[5..11].copy_from_slice(&[1, 2, 3, 4, 5, 6]);
    want[101] = 7;
    assert_eq!(tensor.to_vec::<u8>().unwrap(), want);
    assert_eq!(gpu.stats().uncaptured_errors, 0);
}

#[test]
fn operations_run_in_order() {
    let gpu = gpu();
    let context = context(&gpu);
    let x = context.tensor(&[2, 3], &[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    let row = context.tensor(&[3], &[10.0_f32, 20.0, 30.0]).unwrap();
    let mut y = x.add(&row).unwrap();
    for _ in 0..10 {
        y = y.add(&x).unwrap();
    }
    assert_eq!(y.to_vec::<f32>().unwrap(), [21.0, 42.0, 63.0, 54.0, 75.0, 96.0]);
    assert_eq!(x.transposed().unwrap().to_vec::<f32>().unwrap(), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
}

#[test]
fn a_lost_device_fails_its_handles_and_is_opened_again() {
    let gpu = gpu();
    for _ in 0..3 {
        let before = context(&gpu);
        let x = before.tensor(&[4], &[1.0_f32; 4]).unwrap();
        gpu.lose();
        let error = x.add(&x).and_then(|y| y.to_vec::<f32>().map(drop)).unwrap_err();
        assert!(matches!(error, Error::DeviceLost { .. }), "{error}");
        let after = context(&gpu);
        let x = after.tensor(&[4], &[1.0_f32; 4]).unwrap();
        assert_eq!(x.add(&x).unwrap().to_vec::<f32>().unwrap(), [2.0; 4]);
    }
    let _ = (Shape::SCALAR, DType::F32, std::mem::size_of::<Slice>());
}
