//! `qsgd` rounds by chance: right on average, and never far.

use weft_gpu::op::Stream;
use weft_gpu::{Codec, Context, Feedback};

use crate::{STREAM, bits, noise};

/// A bucket is encoded so often, side by side, for each of some seeds.
const COPIES: usize = 250;
const SEEDS: u64 = 40;

pub fn mean_is_the_element_and_variance_is_bounded(context: &Context) {
    let bucket = 32;
    let values = noise(bucket, 20);
    let largest = values.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
    let tensor = context.tensor(&[bucket * COPIES], &values.repeat(COPIES)).unwrap();
    for width in [2, 3, 4, 8] {
        let step = f64::from(largest) / f64::from((1 << (width - 1)) - 1);
        let (mut sums, mut squares) = (vec![0.0; bucket], vec![0.0; bucket]);
        for seed in 0..SEEDS {
            let codec = Codec::Qsgd { bits: width, bucket };
            let stream = Stream { seed: 1000 + seed, offset: seed };
            let decoded = codec.encode(&tensor, Feedback::default(), stream).unwrap().decode().unwrap();
            for (place, decoded) in decoded.to_vec::<f32>().unwrap().into_iter().enumerate() {
                let apart = f64::from(decoded) - f64::from(values[place % bucket]);
                sums[place % bucket] += apart;
                squares[place % bucket] += apart * apart;
            }
        }
        let draws = (COPIES as u64 * SEEDS) as f64;
        for (element, (sum, square)) in sums.into_iter().zip(squares).enumerate() {
            // The variance is not above a quarter of the step's square; of so many draws it is known to a few hundredths.
            let bound = step * step / 4.0;
            assert!(square / draws <= 1.05 * bound + 1e-12, "{width} bits, element {element}: {}", square / draws);
            // One element out of a hundred thousand would be further off by chance.
            let error = 4.5 * (bound / draws).sqrt() + 1e-7;
            assert!((sum / draws).abs() <= error, "{width} bits, element {element}: {} of {error}", sum / draws);
        }
    }
}

pub fn same_stream_gives_the_same_bits(context: &Context) {
    let tensor = context.tensor(&[5000], &noise(5000, 21)).unwrap();
    let codec = Codec::Qsgd { bits: 4, bucket: 512 };
    let frame = |stream| codec.encode(&tensor, Feedback::default(), stream).unwrap().to_wire().unwrap();
    assert_eq!(frame(STREAM), frame(STREAM));
    assert_ne!(frame(STREAM), frame(Stream { seed: STREAM.seed + 1, ..STREAM }));
    assert_ne!(frame(STREAM), frame(Stream { offset: STREAM.offset + 1, ..STREAM }));
}

pub fn not_finite_elements_make_their_bucket_nan(context: &Context) {
    let mut values = noise(96, 22);
    let codec = Codec::Qsgd { bits: 4, bucket: 32 };
    let decode = |values: &[f32]| {
        let encoded = codec.encode(&context.tensor(&[96], values).unwrap(), Feedback::default(), STREAM).unwrap();
        encoded.decode().unwrap().to_vec::<f32>().unwrap()
    };
    let clean = decode(&values);
    for wrong in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        values[40] = wrong;
        let decoded = decode(&values);
        assert!(decoded[32..64].iter().all(|value| value.is_nan()), "{wrong}");
        assert_eq!(bits(&decoded[..32]), bits(&clean[..32]), "{wrong}");
        assert_eq!(bits(&decoded[64..]), bits(&clean[64..]), "{wrong}");
    }
}
