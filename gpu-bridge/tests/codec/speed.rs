//! How fast the cores encode and decode. Not part of the tests: `cargo test --release -p weft-gpu --test codec speed --
//! --ignored --nocapture`.

use std::time::{Duration, Instant};

use weft_gpu::{DType, Feedback};

use crate::{STREAM, codec, cpu};

const LENGTH: usize = 25_000_000;

#[test]
#[ignore = "it measures, and says nothing about right or wrong"]
fn of_25_million_elements() {
    let context = cpu();
    let tensor = context.normal(&[LENGTH], 0.0, 1.0, STREAM).unwrap();
    let zero = context.zeros(&[1]).unwrap();
    let residual = context.zeros(&[LENGTH]).unwrap();
    let weights = context.full(&[LENGTH], DType::F32, 1.0).unwrap();
    let bytes = 4.0 * LENGTH as f64;
    let uniform = best(|| (), || drop(context.uniform(&[LENGTH], 0.0, 1.0, STREAM).unwrap()));
    println!("random numbers alone: {:.2} GB/s", bytes / uniform.as_secs_f64() / 1e9);
    for text in ["plain", "f16", "qsgd:2", "qsgd:3", "qsgd:4", "qsgd:8", "top-k:0.01", "top-k:0.1", "significance:2.5"]
    {
        let codec = codec(text);
        let feedback = Feedback {
            residual: codec.takes_residual().then_some(&residual),
            weights: codec.takes_weights().then_some(&weights),
        };
        let encode = || codec.encode(&tensor, feedback, STREAM).unwrap();
        residual.assign(&zero).unwrap();
        let encoded = encode();
        // A residual that grows from run to run would not be that of a first run.
        let encode = best(|| residual.assign(&zero).unwrap(), || drop(encode()));
        let decode = best(|| (), || drop(encoded.decode().unwrap()));
        let wire = best(|| (), || drop(encoded.to_wire().unwrap()));
        let speed = |time: Duration| bytes / time.as_secs_f64() / 1e9;
        println!(
            "{text:18} encode {:6.2} GB/s, decode {:6.2} GB/s, to wire {:6.2} GB/s, {:.4} of the bytes",
            speed(encode),
            speed(decode),
            speed(wire),
            encoded.bytes() as f64 / bytes
        );
    }
}

/// Of a few runs the shortest: others use the machine too.
fn best(prepare: impl Fn(), run: impl Fn()) -> Duration {
    let time = |_| {
        prepare();
        let start = Instant::now();
        run();
        start.elapsed()
    };
    (0..5).map(time).min().unwrap_or_default()
}
