//! Frames that are made up: the checksum is right, and nothing else may be.

use std::sync::Arc;

use super::{CHECKSUM, HEADER, checksum};
use crate::codec::{Codec, Encoded, Feedback};
use crate::device::cpu::Cpu;
use crate::op::Stream;
use crate::{Context, Crew, DType, Limits};

const LENGTH: usize = 70;

fn context() -> Context {
    let limits = Limits { device_memory: 1 << 20, ..Limits::default() };
    Context::new(Arc::new(Cpu::new()), Arc::new(Crew::new(1)), limits)
}

fn frame(context: &Context, codec: &str) -> Vec<u8> {
    let codec: Codec = codec.parse().unwrap();
    let stream = Stream { seed: 1, offset: 2 };
    let values = context.uniform(&[LENGTH], -1.0, 1.0, stream).unwrap();
    let weights = context.full(&[LENGTH], DType::F32, 1.0).unwrap();
    let feedback = Feedback { residual: None, weights: codec.takes_weights().then_some(&weights) };
    codec.encode(&values, feedback, stream).unwrap().to_wire().unwrap()
}

fn seal(mut frame: Vec<u8>) -> Vec<u8> {
    let sum = checksum(&frame);
    frame[CHECKSUM].copy_from_slice(&sum.to_le_bytes());
    frame
}

#[test]
fn frames_that_are_made_up_are_decoded_or_refused() {
    let context = context();
    let mut draws = (0..).map(|index| Stream { seed: 3, offset: 4 }.bits(index) as usize);
    let mut next = || draws.next().unwrap();
    let (mut decoded, mut refused) = (0, 0);
    for codec in ["plain", "f16", "qsgd:3,32", "qsgd:8", "top-k:0.2", "significance:0.5"] {
        let right = frame(&context, codec);
        for _ in 0..5_000 {
            let mut frame = right.clone();
            for _ in 0..next() % 3 + 1 {
                let place = if next() % 2 == 0 { next() % HEADER } else { next() % frame.len() };
                frame[place] = if next() % 2 == 0 { next() as u8 } else { (next() % 3) as u8 };
            }
            if next() % 8 == 0 {
                frame.truncate(HEADER + next() % (frame.len() - HEADER));
            }
            match Encoded::from_wire(&context, &seal(frame), 1000) {
                Ok(encoded) => {
                    assert_eq!(encoded.decode().unwrap().shape().elements(), encoded.elements());
                    decoded += 1;
                }
                Err(_) => refused += 1,
            }
        }
    }
    assert!(decoded > 1_000 && refused > 1_000, "{decoded} were decoded, {refused} refused");
    assert_eq!(context.heap().used(), context.heap().kept());
}

#[test]
fn what_is_wrong_is_said() {
    let context = context();
    let changed = |codec: &str, at: usize, bytes: &[u8]| {
        let mut frame = frame(&context, codec);
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        Encoded::from_wire(&context, &seal(frame), LENGTH).map(drop).unwrap_err().to_string()
    };
    for (codec, at, bytes, says) in [
        ("plain", 0, &b"WFTD"[..], "no frame of this version"),
        ("plain", 4, &[2], "no frame of this version"),
        ("plain", 5, &[5], "its codec is unknown"),
        ("plain", 6, &[4], "numbers that are not its own"),
        ("plain", 7, &[1], "numbers that are not its own"),
        ("f16", 28, &[1], "numbers that are not its own"),
        ("plain", 8, &[71], "71 elements, at most 70 are taken"),
        ("plain", 8, &[0xff; 8], "at most 70 are taken"),
        ("plain", 8, &[69], "70 of 69 elements are sent"),
        ("plain", 16, &[69], "`plain` sends 70 of 70 elements, not 69"),
        ("top-k:0.2", 16, &[13], "`top-k:0.2` sends 14 of 70 elements, not 13"),
        ("significance:0.5", 16, &[0], "`significance:0.5` of 70 elements is 0 bytes"),
        ("top-k:0.2", 28, &[0; 4], "fraction `0` must be above 0"),
        ("qsgd:4", 6, &[9], "9 bits: it takes from 2 to 8"),
        ("qsgd:4", 6, &[5], "`qsgd:5` of 70 elements is 48 bytes, not 40"),
        ("qsgd:4", 24, &[31, 0, 0, 0], "buckets of 31"),
        ("top-k:0.2", HEADER, &[0xff; 4], "index 4294967295, at place 0, must be from 0 to below 70"),
        ("top-k:0.2", HEADER + 4, &[0; 4], "at place 1, must be from"),
    ] {
        let error = changed(codec, at, bytes);
        assert!(error.contains(says), "{codec}: {error:?} does not say {says:?}");
    }
}
