//! Codecs from end to end: a tensor, a frame of bytes, a tensor again. Every device runs the same suite; a device is one
//! line at the end of this file.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::num::NonZeroU32;
use std::sync::{Arc, OnceLock};

use weft_gpu::device::Shared;
use weft_gpu::device::cpu::Cpu;
use weft_gpu::device::gpu::{Adapter, Gpu};
use weft_gpu::op::Stream;
use weft_gpu::{Codec, Context, Crew, Encoded, Feedback, Limits, Tensor};

mod chance;
mod feedback;
mod frames;
mod names;
mod round_trips;
mod training;

/// One of each, and of those with numbers some.
const CODECS: [&str; 13] = [
    "plain",
    "f16",
    "qsgd:2",
    "qsgd:3,32",
    "qsgd:4",
    "qsgd:5,96",
    "qsgd:6",
    "qsgd:7",
    "qsgd:8,1024",
    "top-k:0.01",
    "top-k:0.3",
    "top-k:1",
    "significance:0.5",
];

const STREAM: Stream = Stream { seed: 11, offset: 3 };

fn cpu() -> Context {
    Context::new(Arc::new(Cpu::new()), Arc::new(Crew::new(2)), Limits::default())
}

/// A handle of a GPU that all tests share; a software one will do.
fn gpu() -> Context {
    static GPU: OnceLock<Gpu> = OnceLock::new();
    let gpu = GPU.get_or_init(|| {
        let adapter = Adapter::all().into_iter().next().unwrap_or_else(|| panic!("there is no Vulkan device"));
        Gpu::open(adapter, None).unwrap()
    });
    Context::new(gpu.open(&"test".into(), NonZeroU32::MIN).unwrap(), Arc::new(Crew::new(1)), Limits::default())
}

fn codec(text: &str) -> Codec {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn codecs() -> impl Iterator<Item = Codec> {
    CODECS.into_iter().map(codec)
}

/// Numbers that look like gradients: most of them small. The same for the same seed.
fn noise(count: usize, seed: u64) -> Vec<f32> {
    let unit = |index: u64| f64::from(Stream { seed, offset: 99 }.bits(index)) / f64::from(u32::MAX) - 0.5;
    (0..count as u64).map(|index| (8.0 * unit(index).powi(3)) as f32).collect()
}

/// Encodes with the weights that a codec may want, and no residual.
fn encode(codec: Codec, tensor: &Tensor) -> Encoded {
    let weights = tensor.context().full(&tensor.shape(), weft_gpu::DType::F32, 0.5).unwrap();
    let feedback = Feedback { residual: None, weights: codec.takes_weights().then_some(&weights) };
    codec.encode(tensor, feedback, STREAM).unwrap_or_else(|error| panic!("{codec}: {error}"))
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Runs all that a device must do.
macro_rules! suite {
    (@tests $context:expr; $($file:ident: $($test:ident)+;)+) => {
        $($(#[test]
        fn $test() {
            crate::$file::$test(&$context);
        })+)+
    };
    ($name:ident, $context:expr) => {
        mod $name {
            use super::*;

            suite! { @tests $context;
                round_trips:
                    any_length_comes_back
                    frames_come_back_with_the_same_bits
                    views_are_encoded_as_their_elements
                    adding_is_decoding_and_adding
                    memory_is_given_back;
                chance:
                    mean_is_the_element_and_variance_is_bounded
                    same_stream_gives_the_same_bits
                    not_finite_elements_make_their_bucket_nan;
                feedback:
                    the_largest_are_sent_and_of_equals_the_first
                    changes_beside_their_weight_are_sent
                    what_was_sent_and_the_residual_are_what_was_put_in
                    restored_residual_goes_on_with_the_same_bits;
                training:
                    every_codec_trains_as_well_as_plain;
            }
        }
    };
}

suite!(on_cpu, cpu());
suite!(on_gpu, gpu());
