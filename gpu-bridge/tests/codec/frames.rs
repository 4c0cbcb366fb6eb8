//! Bytes that are no frame are refused, whatever they are.

use weft_gpu::Encoded;
use weft_gpu::op::Stream;

use crate::{codecs, cpu, encode, noise};

const LENGTH: usize = 77;

fn frames() -> Vec<Vec<u8>> {
    let context = cpu();
    codecs()
        .map(|codec| encode(codec, &context.tensor(&[LENGTH], &noise(LENGTH, 40)).unwrap()).to_wire().unwrap())
        .collect()
}

#[test]
fn every_truncation_is_refused() {
    let context = cpu();
    for frame in frames() {
        for length in 0..frame.len() {
            assert!(Encoded::from_wire(&context, &frame[..length], LENGTH).is_err(), "{length} of {}", frame.len());
        }
        let longer = [&frame[..], &[0]].concat();
        assert!(Encoded::from_wire(&context, &longer, LENGTH).is_err());
    }
}

#[test]
fn every_damage_is_refused() {
    let context = cpu();
    let mut draws = (0..).map(|index| Stream { seed: 41, offset: 0 }.bits(index) as usize);
    for frame in frames() {
        for _ in 0..2_000 {
            let mut damaged = frame.clone();
            for _ in 0..draws.next().unwrap() % 4 + 1 {
                let (at, change) = (draws.next().unwrap() % frame.len(), draws.next().unwrap() % 255 + 1);
                damaged[at] ^= change as u8;
            }
            if damaged != frame {
                assert!(Encoded::from_wire(&context, &damaged, usize::MAX).is_err());
            }
        }
    }
}

#[test]
fn bytes_that_were_never_a_frame_are_refused() {
    let context = cpu();
    for seed in 0..2_000 {
        let stream = Stream { seed, offset: 42 };
        let mut bytes: Vec<u8> = (0..seed % 200).map(|index| stream.bits(index) as u8).collect();
        assert!(Encoded::from_wire(&context, &bytes, usize::MAX).is_err());
        // The same with the right beginning.
        bytes.splice(..bytes.len().min(5), *b"WFTC\x01");
        assert!(Encoded::from_wire(&context, &bytes, usize::MAX).is_err());
    }
}

#[test]
fn more_elements_than_are_taken_are_refused() {
    let context = cpu();
    for frame in frames() {
        Encoded::from_wire(&context, &frame, LENGTH).unwrap();
        let error = Encoded::from_wire(&context, &frame, LENGTH - 1).unwrap_err().to_string();
        assert!(error.contains("77 elements, at most 76 are taken"), "{error}");
    }
}
