//! What is not sent is kept.

use weft_gpu::{Codec, Context, DType, Feedback, Tensor};

use crate::{STREAM, bits, codec, cpu, noise};

const LENGTH: usize = 10_007;

fn send(codec: Codec, tensor: &Tensor, residual: Option<&Tensor>, weights: &Tensor) -> Vec<f32> {
    let feedback = Feedback { residual, weights: codec.takes_weights().then_some(weights) };
    codec.encode(tensor, feedback, STREAM).unwrap().decode().unwrap().to_vec().unwrap()
}

pub fn the_largest_are_sent_and_of_equals_the_first(context: &Context) {
    let steps = |values: Vec<f32>| values.into_iter().map(|value| (value * 8.0).round() / 8.0).collect();
    for values in [noise(LENGTH, 30), steps(noise(LENGTH, 31)), vec![-1.5; LENGTH]] {
        let tensor = context.tensor(&[LENGTH], &values).unwrap();
        for fraction in [1e-9, 0.001, 0.01, 0.37, 1.0] {
            let count = ((LENGTH as f32 * fraction).round() as usize).max(1);
            let mut order: Vec<usize> = (0..LENGTH).collect();
            order.sort_by(|&a, &b| values[b].abs().total_cmp(&values[a].abs()).then(a.cmp(&b)));
            let mut want = vec![0.0; LENGTH];
            order[..count].iter().for_each(|&index| want[index] = values[index]);
            assert_eq!(send(Codec::TopK { fraction }, &tensor, None, &tensor), want, "{fraction}");
        }
    }
}

pub fn changes_beside_their_weight_are_sent(context: &Context) {
    let weights = context.tensor(&[6], &[1.0_f32, -1.0, 0.0, 0.0, 100.0, 1.0]).unwrap();
    let changes = context.tensor(&[6], &[0.25_f32, 0.2, 0.0, -1e-6, 1.0, -3.0]).unwrap();
    let codec = Codec::Significance { threshold: 0.25 };
    assert_eq!(send(codec, &changes, None, &weights), [0.25, 0.0, 0.0, -1e-6, 0.0, -3.0]);
    // Nothing at all is a frame too.
    let none = context.zeros(&[6]).unwrap();
    assert_eq!(send(codec, &none, None, &weights), [0.0; 6]);
    // What is too small alone is sent once it has come together.
    let residual = context.zeros(&[6]).unwrap();
    let small = context.full(&[6], DType::F32, 0.125).unwrap();
    let ones = context.full(&[6], DType::F32, 1.0).unwrap();
    assert_eq!(send(codec, &small, Some(&residual), &ones), [0.0; 6]);
    assert_eq!(send(codec, &small, Some(&residual), &ones), [0.25; 6]);
    assert_eq!(residual.to_vec::<f32>().unwrap(), [0.0; 6]);
}

pub fn what_was_sent_and_the_residual_are_what_was_put_in(context: &Context) {
    let weights = context.tensor(&[LENGTH], &noise(LENGTH, 32)).unwrap();
    for codec in [codec("top-k:0.05"), codec("significance:0.9")] {
        let residual = context.zeros(&[LENGTH]).unwrap();
        let (mut put_in, mut sent) = (vec![0.0_f64; LENGTH], vec![0.0_f64; LENGTH]);
        for round in 0..50 {
            let values = noise(LENGTH, 100 + round);
            let decoded = send(codec, &context.tensor(&[LENGTH], &values).unwrap(), Some(&residual), &weights);
            put_in.iter_mut().zip(&values).for_each(|(sum, &value)| *sum += f64::from(value));
            sent.iter_mut().zip(&decoded).for_each(|(sum, &value)| *sum += f64::from(value));
        }
        let residual = residual.to_vec::<f32>().unwrap();
        for ((put_in, sent), kept) in put_in.into_iter().zip(sent).zip(residual) {
            // Each round rounds once, to about the size of what is kept.
            assert!((put_in - sent - f64::from(kept)).abs() < 1e-4, "{codec}: {put_in} of {sent} and {kept}");
        }
    }
}

pub fn restored_residual_goes_on_with_the_same_bits(context: &Context) {
    let weights = context.tensor(&[LENGTH], &noise(LENGTH, 33)).unwrap();
    for codec in [codec("top-k:0.05"), codec("significance:0.9")] {
        let residual = context.zeros(&[LENGTH]).unwrap();
        let round = |residual: &Tensor, round: u64| {
            let values = context.tensor(&[LENGTH], &noise(LENGTH, 200 + round)).unwrap();
            bits(&send(codec, &values, Some(residual), &weights))
        };
        (0..3).for_each(|number| drop(round(&residual, number)));
        let stored = residual.to_vec::<f32>().unwrap();
        let went_on: Vec<_> = (3..6).map(|number| round(&residual, number)).collect();
        let restored = context.tensor(&[LENGTH], &stored).unwrap();
        let again: Vec<_> = (3..6).map(|number| round(&restored, number)).collect();
        assert!(went_on == again, "{codec}: what is sent differs");
        assert_eq!(bits(&residual.to_vec().unwrap()), bits(&restored.to_vec().unwrap()), "{codec}");
    }
}

#[test]
fn feedback_that_does_not_fit_is_refused() {
    let context = cpu();
    let (x, y) = (context.zeros(&[4]).unwrap(), context.zeros(&[4]).unwrap());
    let (short, integers) = (context.zeros(&[3]).unwrap(), context.full(&[4], DType::U32, 0.0).unwrap());
    let apart = context.zeros(&[4, 2]).unwrap().permute(&[1, 0]).unwrap().narrow(0, 0, 1).unwrap();
    let apart = apart.permute(&[1, 0]).unwrap();
    let column = context.zeros(&[4, 1]).unwrap();
    let foreign = cpu().zeros(&[4]).unwrap();
    let (none, top_k, significance) = (None, codec("top-k:0.5"), codec("significance:1"));
    for (codec, tensor, residual, weights, says) in [
        (Codec::Plain, &x, Some(&y), none, "`plain` keeps no residual"),
        (codec("qsgd:4"), &x, Some(&y), none, "`qsgd:4` keeps no residual"),
        (top_k, &x, none, Some(&y), "`top-k:0.5` takes no weights"),
        (significance, &x, none, none, "`significance:1` needs the weights"),
        (significance, &x, none, Some(&short), "the weights is f32 [3], the tensor f32 [4]"),
        (top_k, &x, Some(&short), none, "the residual is f32 [3], the tensor f32 [4]"),
        (top_k, &x, Some(&integers), none, "the residual is u32 [4]"),
        (top_k, &x, Some(&x), none, "memory that nothing else shares"),
        (significance, &x, Some(&y), Some(&y), "memory that nothing else shares"),
        (top_k, &column, Some(&apart), none, "it must be contiguous"),
        (top_k, &x, Some(&foreign), none, "different contexts"),
        (codec("plain"), &integers, none, none, "not f32"),
        (Codec::TopK { fraction: 0.0 }, &x, none, none, "fraction `0` must be above 0"),
        (Codec::Qsgd { bits: 4, bucket: 31 }, &x, none, none, "buckets of 31"),
    ] {
        let feedback = Feedback { residual, weights };
        let error = codec.encode(tensor, feedback, STREAM).map(drop).unwrap_err().to_string();
        assert!(error.contains(says), "{codec}: {error:?} does not say {says:?}");
    }
}

#[test]
fn tensors_of_parameters_are_encoded_without_their_history() {
    let context = cpu();
    let weight = context.tensor(&[4], &noise(4, 1)).unwrap().parameter(None).unwrap();
    let doubled = weight.affine(2.0, 0.0).unwrap();
    let nodes = context.tape_nodes();
    for codec in crate::codecs() {
        crate::encode(codec, &weight).decode().unwrap();
        crate::encode(codec, &doubled).decode().unwrap();
    }
    assert_eq!(context.tape_nodes(), nodes);
}
