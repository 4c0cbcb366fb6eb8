//! What comes back, and in how many bytes.

use weft_gpu::{Codec, Context, Encoded};

use crate::{bits, codec, codecs, cpu, encode, gpu, noise};

const LENGTHS: [usize; 7] = [0, 1, 2, 511, 512, 513, 100_003];

/// How far an element may be from what was encoded, if it was sent.
fn bound(codec: Codec, values: &[f32], element: usize) -> f32 {
    match codec {
        Codec::Qsgd { bits, bucket } => {
            let bucket = values.chunks(bucket).nth(element / bucket).unwrap();
            let largest = bucket.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
            largest / ((1 << (bits - 1)) - 1) as f32 * 1.000_001
        }
        Codec::F16 => values[element].abs() / 2048.0 + 6e-8,
        _ => 0.0,
    }
}

pub fn any_length_comes_back(context: &Context) {
    for (codec, length) in codecs().flat_map(|codec| LENGTHS.map(|length| (codec, length))) {
        let values = noise(length, 1);
        let encoded = encode(codec, &context.tensor(&[length], &values).unwrap());
        let decoded = encoded.decode().unwrap().to_vec::<f32>().unwrap();
        assert_eq!(decoded.len(), length, "{codec}");
        let mut absent = 0;
        for (element, (&decoded, &value)) in decoded.iter().zip(&values).enumerate() {
            let is_absent = codec.takes_residual() && decoded == 0.0 && value != 0.0;
            absent += usize::from(is_absent);
            let apart = (decoded - value).abs();
            assert!(is_absent || apart <= bound(codec, &values, element), "{codec}: {decoded} of {value}");
        }
        assert_eq!(absent, length - encoded.sent(), "{codec} of {length}");
    }
}

pub fn frames_come_back_with_the_same_bits(context: &Context) {
    for (codec, length) in codecs().flat_map(|codec| LENGTHS.map(|length| (codec, length))) {
        let encoded = encode(codec, &context.tensor(&[length], &noise(length, 2)).unwrap());
        let frame = encoded.to_wire().unwrap();
        assert_eq!(frame.len(), encoded.bytes(), "{codec} of {length}");
        let received = Encoded::from_wire(context, &frame, length).unwrap();
        assert_eq!((received.codec(), received.elements()), (codec, length));
        assert_eq!(received.to_wire().unwrap(), frame, "{codec} of {length}");
        let [sent, received] = [&encoded, &received].map(|encoded| encoded.decode().unwrap().to_vec::<f32>().unwrap());
        assert_eq!(bits(&sent), bits(&received), "{codec} of {length}");
    }
}

pub fn views_are_encoded_as_their_elements(context: &Context) {
    let values = noise(60 * 50, 3);
    let view = context.tensor(&[60, 50], &values).unwrap().permute(&[1, 0]).unwrap();
    let flat = context.tensor(&[3000], &view.to_vec::<f32>().unwrap()).unwrap();
    for codec in codecs() {
        assert_eq!(encode(codec, &view).to_wire().unwrap(), encode(codec, &flat).to_wire().unwrap(), "{codec}");
    }
}

pub fn adding_is_decoding_and_adding(context: &Context) {
    let (values, before) = (noise(2000, 4), noise(2000, 5));
    for codec in codecs() {
        let encoded = encode(codec, &context.tensor(&[40, 50], &values).unwrap());
        let sum = context.tensor(&[20, 100], &before).unwrap();
        encoded.add_to(&sum, 0.25).unwrap();
        let decoded = encoded.decode().unwrap().to_vec::<f32>().unwrap();
        let want: Vec<f32> = before.iter().zip(&decoded).map(|(before, decoded)| before + 0.25 * decoded).collect();
        assert_eq!(bits(&sum.to_vec::<f32>().unwrap()), bits(&want), "{codec}");
        let small = context.zeros(&[1999]).unwrap();
        assert!(encoded.add_to(&small, 1.0).unwrap_err().to_string().contains("2000 elements do not fit [1999]"));
    }
}

pub fn memory_is_given_back(context: &Context) {
    for codec in codecs() {
        let encoded = encode(codec, &context.tensor(&[3000], &noise(3000, 6)).unwrap());
        drop((encoded.decode().unwrap(), encoded));
        assert_eq!(context.heap().used(), context.heap().kept(), "{codec}");
    }
}

#[test]
fn bytes_are_as_few_as_they_are_said_to_be() {
    let context = cpu();
    let (length, plain) = (100_003, 4.0 * 100_003.0);
    let tensor = context.tensor(&[length], &noise(length, 1)).unwrap();
    for (text, most) in [
        ("plain", 1.001),
        ("f16", 0.501),
        ("qsgd:8", 0.253),
        ("qsgd:4", 0.128),
        ("qsgd:2", 0.066),
        ("qsgd:4,32", 0.157),
        ("top-k:0.01", 0.0202),
    ] {
        let ratio = encode(codec(text), &tensor).bytes() as f64 / plain;
        assert!(ratio <= most, "{text}: {ratio}");
    }
    let bucket = encode(codec("qsgd:4"), &context.tensor(&[512], &noise(512, 1)).unwrap());
    assert!(bucket.bytes() as f64 <= 0.15 * 2048.0, "one bucket alone: {}", bucket.bytes());
}

#[test]
fn devices_agree_in_every_bit() {
    for (codec, length) in codecs().flat_map(|codec| [513, 100_003].map(|length| (codec, length))) {
        let values = noise(length, 7);
        let [cpu, gpu] = [cpu(), gpu()].map(|context| encode(codec, &context.tensor(&[length], &values).unwrap()));
        assert_eq!(cpu.to_wire().unwrap(), gpu.to_wire().unwrap(), "{codec} of {length}");
        let [cpu, gpu] = [cpu, gpu].map(|encoded| encoded.decode().unwrap().to_vec::<f32>().unwrap());
        assert_eq!(bits(&cpu), bits(&gpu), "{codec} of {length}");
    }
}

#[test]
fn threads_do_not_matter() {
    let context = cpu();
    let tensor = context.tensor(&[100_003], &noise(100_003, 8)).unwrap();
    for codec in codecs() {
        let frames = [1, 2].map(|threads| {
            context.set_threads(threads);
            encode(codec, &tensor).to_wire().unwrap()
        });
        assert_eq!(frames[0], frames[1], "{codec}");
    }
}

#[test]
fn halves_stay_finite_where_the_element_is() {
    let context = cpu();
    let values = [65504.0, 65520.0, -1e9, f32::MAX, f32::INFINITY, f32::NEG_INFINITY];
    let decoded = encode(Codec::F16, &context.tensor(&[6], &values).unwrap()).decode().unwrap();
    let want = [65504.0, 65504.0, -65504.0, 65504.0, f32::INFINITY, f32::NEG_INFINITY];
    assert_eq!(decoded.to_vec::<f32>().unwrap(), want);
    let nan = encode(Codec::F16, &context.tensor(&[1], &[f32::NAN]).unwrap()).decode().unwrap();
    assert!(nan.item().unwrap().is_nan());
}
