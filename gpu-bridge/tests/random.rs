//! The random numbers: the bits are the published ones, and what is made of them behaves as it should.

use std::sync::Arc;

use weft_gpu::device::cpu::Cpu;
use weft_gpu::op::Stream;
use weft_gpu::{Context, Crew, Limits};

const MANY: usize = 1 << 20;

fn context() -> Context {
    Context::new(Arc::new(Cpu::new()), Arc::new(Crew::new(2)), Limits::default())
}

fn mean(x: &[f32]) -> f64 {
    x.iter().map(|&x| f64::from(x)).sum::<f64>() / x.len() as f64
}

/// The mean product of two series of mean 0.
fn covariance(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>() / a.len() as f64
}

/// The known answers for `philox4x32-10` that come with Random123.
#[test]
fn bits_are_the_published_ones() {
    let ones = u64::MAX;
    let known = [
        (Stream { seed: 0, offset: 0 }, 0, [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
        (Stream { seed: ones, offset: ones }, ones, [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
        (
            Stream { seed: 0x299f_31d0_a409_3822, offset: 0x0370_7344_1319_8a2e },
            0x85a3_08d3_243f_6a88,
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
        ),
    ];
    for (stream, block, bits) in known {
        assert_eq!(stream.block(block), bits, "{stream:?}");
    }
}

#[test]
fn uniform_numbers_are_uniform() {
    let x = context().uniform(&[MANY], -1.0, 1.0, Stream { seed: 1, offset: 0 }).unwrap().to_vec::<f32>().unwrap();
    assert!(x.iter().all(|x| (-1.0..1.0).contains(x)));
    // Five standard errors.
    assert!(mean(&x).abs() < 5.0 / (3.0 * MANY as f64).sqrt());
    assert!((covariance(&x, &x) - 1.0 / 3.0).abs() < 2e-3);
    let mut counts = [0_usize; 64];
    x.iter().for_each(|x| counts[((x + 1.0) * 32.0) as usize] += 1);
    let expected = MANY as f64 / 64.0;
    let chi_square: f64 = counts.iter().map(|&count| (count as f64 - expected).powi(2) / expected).sum();
    assert!((20.0..130.0).contains(&chi_square), "{chi_square} with 63 degrees of freedom");
}

#[test]
fn normal_numbers_are_normal() {
    let x = context().normal(&[MANY], 0.0, 1.0, Stream { seed: 2, offset: 0 }).unwrap().to_vec::<f32>().unwrap();
    assert!(mean(&x).abs() < 5e-3);
    assert!((covariance(&x, &x) - 1.0).abs() < 1e-2);
    let squares: Vec<f32> = x.iter().map(|x| x * x).collect();
    assert!(covariance(&x, &squares).abs() < 2e-2, "symmetric");
    assert!((covariance(&squares, &squares) - 3.0).abs() < 6e-2, "tails");
    let within = |limit: f32| x.iter().filter(|x| x.abs() < limit).count() as f64 / MANY as f64;
    assert!((within(1.0) - 0.682_689).abs() < 3e-3);
    assert!((within(2.0) - 0.954_500).abs() < 2e-3);
}

#[test]
fn streams_and_neighbours_are_independent() {
    let context = context();
    let normal =
        |seed, offset| context.normal(&[MANY], 0.0, 1.0, Stream { seed, offset }).unwrap().to_vec::<f32>().unwrap();
    let (x, other_seed, other_offset) = (normal(3, 0), normal(4, 0), normal(3, 1));
    assert!(covariance(&x, &other_seed).abs() < 5e-3);
    assert!(covariance(&x, &other_offset).abs() < 5e-3);
    for lag in 1..6 {
        assert!(covariance(&x, &x[lag..]).abs() < 5e-3, "at a distance of {lag}");
    }
}

#[test]
fn an_element_does_not_depend_on_how_many_there_are() {
    let context = context();
    let stream = Stream { seed: 5, offset: 9 };
    let all = context.uniform(&[100_003], 0.0, 1.0, stream).unwrap().to_vec::<f32>().unwrap();
    let normal = context.normal(&[100_003], 0.0, 1.0, stream).unwrap().to_vec::<f32>().unwrap();
    for count in [1, 3, 4, 63, 64, 65, 16_383, 16_384, 16_385, 50_000] {
        context.set_threads(1 + count % 2);
        assert_eq!(context.uniform(&[count], 0.0, 1.0, stream).unwrap().to_vec::<f32>().unwrap(), all[..count]);
        assert_eq!(context.normal(&[count], 0.0, 1.0, stream).unwrap().to_vec::<f32>().unwrap(), normal[..count]);
    }
}

#[test]
fn uniform_numbers_stay_below_a_high_that_rounding_would_reach() {
    let high = 1.0_f32.next_up();
    let x = context().uniform(&[10_000], 1.0, high, Stream { seed: 6, offset: 0 }).unwrap().to_vec::<f32>().unwrap();
    assert!(x.iter().all(|&x| x == 1.0));
}

#[test]
fn dropout_keeps_its_share_and_the_mean() {
    let context = context();
    let ones = context.full(&[MANY], weft_gpu::DType::F32, 1.0).unwrap().parameter(None).unwrap();
    let y = ones.dropout(0.3, Stream { seed: 7, offset: 0 }).unwrap();
    let kept = y.to_vec::<f32>().unwrap();
    assert!((mean(&kept) - 1.0).abs() < 5e-3);
    assert!(kept.iter().all(|&y| y == 0.0 || y == 1.0 / 0.7));
    y.backward_from(&ones.detach()).unwrap();
    assert_eq!(ones.gradient().unwrap().to_vec::<f32>().unwrap(), kept);
}
