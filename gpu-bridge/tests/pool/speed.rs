//! What sharing costs the smallest operations. To be run alone: `cargo test --release --test pool speed -- --ignored`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_gpu::device::cpu::{Cpu, SharedCpu};
use weft_gpu::{Context, Crew, Limits};

use crate::support::{context, lease, pool};

/// The best of some rounds, as other processes can only make it slower.
fn addition(context: &Context) -> Duration {
    const CALLS: u32 = 20_000;
    let tensor = context.zeros(&[16]).unwrap();
    let round = || {
        let start = Instant::now();
        (0..CALLS).for_each(|_| drop(tensor.add(&tensor).unwrap()));
        start.elapsed() / CALLS
    };
    (0..20).map(|_| round()).min().unwrap()
}

#[test]
#[ignore = "measures"]
fn adding_16_numbers_takes_under_a_microsecond() {
    let alone = addition(&Context::new(Arc::new(Cpu::new()), Arc::new(Crew::new(2)), Limits::default()));
    let pool = pool([Arc::new(SharedCpu::new()) as _]);
    let shared = addition(&context(&lease(&pool, "ada", 1), 2));
    println!("16 numbers: {alone:?} alone, {shared:?} shared");
    assert!(alone < Duration::from_micros(1));
}
