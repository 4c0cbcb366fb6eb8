//! Bytes go in and come out as they are, nobody sees another's, and all of it comes back.

use std::time::{Duration, Instant};

use weft_gpu::{Context, DType, Error, Limits};

use crate::{context, cpu, gpu};

#[test]
fn bytes_come_back_as_they_went() {
    let gpu = gpu();
    let context = context(&gpu);
    let words: Vec<f32> = (0..3_000_000).map(|i| i as f32).collect();
    assert_eq!(context.tensor(&[words.len()], &words).unwrap().to_vec::<f32>().unwrap(), words);
    let bytes: Vec<u8> = (0..1013_u32).map(|i| (i % 251) as u8).collect();
    assert_eq!(context.tensor(&[bytes.len()], &bytes).unwrap().to_vec::<u8>().unwrap(), bytes);
    assert_eq!(gpu.stats().uncaptured_errors, 0);
}

#[test]
fn tensors_hold_what_they_were_filled_with() {
    let gpu = gpu();
    for context in [context(&gpu), cpu()] {
        for count in [0, 1, 1013] {
            let words: Vec<i32> = (0..count).map(|i| i * 3 - 7).collect();
            let fill = |out: &mut [i32]| {
                out.copy_from_slice(&words);
                Ok::<(), Error>(())
            };
            let tensor = context.tensor_with(&[words.len()], fill).unwrap();
            assert_eq!(tensor.to_vec::<i32>().unwrap(), words);
        }
    }
}

#[test]
fn a_filling_that_fails_gives_its_error_and_no_tensor() {
    let gpu = gpu();
    for context in [context(&gpu), cpu()] {
        let filled = context.tensor_with(&[4], |_: &mut [f32]| Err(Error::Cancelled));
        assert_eq!(filled.err(), Some(Error::Cancelled));
    }
}

#[test]
fn the_neighbours_of_odd_bytes_stay() {
    let gpu = gpu();
    let context = context(&gpu);
    let bytes: Vec<u8> = (0..67).collect();
    for start in 0..8 {
        for length in 0..14 {
            let tensor = context.tensor(&[bytes.len()], &bytes).unwrap();
            let new: Vec<u8> = (0..length).map(|i| 200 + i).collect();
            tensor.write(start, &new).unwrap();
            let mut want = bytes.clone();
            want[start..start + new.len()].copy_from_slice(&new);
            assert_eq!(tensor.to_vec::<u8>().unwrap(), want, "{length} bytes from {start}");
            let mut part = vec![0; length.into()];
            tensor.read(start, &mut part).unwrap();
            assert_eq!(part, new, "{length} bytes from {start}");
        }
    }
}

#[test]
fn a_new_owner_finds_zeros() {
    let gpu = gpu();
    for round in 0..5 {
        // Small regions that share a buffer, and a large one with a buffer of its own.
        for elements in [1, 100, 100_000, 3_000_000] {
            let first = context(&gpu);
            let secret = first.full(&[elements], DType::U32, 3_735_928_559.0).unwrap();
            assert_eq!(secret.to_vec::<u32>().unwrap()[0], 3_735_928_559);
            drop((secret, first));
            let second = context(&gpu);
            let block = second.heap().take(4 * elements).unwrap();
            let mut found = vec![1; 4 * elements];
            second.device().read(block.memory(), 0, &mut found).unwrap();
            assert!(found.iter().all(|&byte| byte == 0), "round {round}: {elements} elements of another owner");
        }
    }
}

#[test]
fn buffers_come_back_when_owners_go() {
    let gpu = gpu();
    let allocate = |megabytes: usize| {
        let context = context(&gpu);
        let tensors: Vec<_> =
            (1..=megabytes).map(|i| context.full(&[i << 18], DType::F32, i as f64).unwrap()).collect();
        tensors.last().unwrap().to_vec::<f32>().unwrap();
    };
    for _ in 0..20 {
        allocate(12);
    }
    // The engine gives regions back once it has handed over what used them: soon.
    let soon = Instant::now() + Duration::from_secs(10);
    while gpu.stats().allocated > 64 << 20 && Instant::now() < soon {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(gpu.stats().allocated <= 64 << 20, "{} bytes are kept", gpu.stats().allocated);
}

#[test]
fn what_does_not_fit_is_refused_and_nothing_is_lost() {
    let gpu = gpu();
    let context = context(&gpu);
    let x = context.tensor(&[2], &[1.0_f32, 2.0]).unwrap();
    let error = context.zeros(&[1 << 38]).unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. } | Error::DeviceFull { .. }), "{error}");
    assert_eq!(x.add(&x).unwrap().to_vec::<f32>().unwrap(), [2.0, 4.0]);
    let limits = Limits { device_memory: 1 << 20, ..Limits::default() };
    let small = Context::new(context.device().clone(), crate::Arc::new(crate::Crew::new(1)), limits);
    assert!(matches!(small.zeros(&[1 << 20]).unwrap_err(), Error::OutOfMemory { .. }));
    assert_eq!(small.heap().used(), small.heap().kept());
}
