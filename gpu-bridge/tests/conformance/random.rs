//! Constants, counts and random numbers.

use weft_gpu::op::{Dropout, Fill, Iota, Normal, Stream, Uniform};
use weft_gpu::{DType, Shape};

use crate::array::Array;
use crate::case::{Case, EXACT, Refusal, f32, of, within};

const STREAMS: [Stream; 3] = [
    Stream { seed: 0, offset: 0 },
    Stream { seed: 0x0123_4567_89AB_CDEF, offset: 7 },
    Stream { seed: u64::MAX, offset: u64::MAX },
];

/// Empty, one element, less and more than is made at a time, and larger than a tile.
const SHAPES: [&[usize]; 7] = [&[0, 3], &[], &[1], &[7], &[3, 5, 7], &[64], &[3, 50_001]];

fn shape(sizes: &[usize]) -> Shape {
    Shape::new(sizes).unwrap()
}

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for sizes in SHAPES {
        for stream in STREAMS {
            cases.extend(random(sizes, stream));
        }
        for dtype in DType::ALL {
            for value in [0.0, 1.0, -2.75, 300.5, 1e20, f64::NAN, f64::NEG_INFINITY] {
                let fill = Fill { shape: shape(sizes), dtype, value };
                cases.push(Case::new(fill, &[], EXACT, move |_| {
                    vec![Array::build(sizes, dtype, |_| cast(value, dtype))]
                }));
            }
        }
    }
    let counts = [
        (0, 5, 1),
        (1, -3, 7),
        (9, -4, 1),
        (200, 250, -1),
        (40, i32::MAX - 39, 1),
        (40, i32::MIN, 50_000_000),
        (3, i32::MIN, i32::MAX),
        (130_001, 5, 3),
        (130_001, 0, 0),
        (130_001, 0, 33_000),
    ];
    for (count, start, step) in counts {
        for dtype in DType::ALL {
            let value = move |at: usize| f64::from(start) + f64::from(step) * at as f64;
            let fits = |at: usize| match dtype {
                DType::F32 | DType::F16 | DType::I32 => value(at) == f64::from(value(at) as i32),
                _ => value(at) == cast(value(at), dtype),
            };
            if count == 0 || (fits(0) && fits(count - 1)) {
                cases.push(Case::new(Iota { count, dtype, start, step }, &[], EXACT, move |_| {
                    vec![Array::build(&[count], dtype, |at| cast(value(at), dtype))]
                }));
            }
        }
    }
    let x = Array::noise(&[3, 5], 1, -1.0, 1.0);
    for rate in [0.0, 0.3] {
        let op = Dropout { rate, stream: STREAMS[1] };
        cases.push(
            Case::new(op, std::slice::from_ref(&x), EXACT, move |x| vec![dropped(&x[0], op)]).differentiated(&[0]),
        );
    }
    // What is dropped is 0 whatever it was.
    let x = Array::build(&[40], DType::F32, |index| if index % 2 == 0 { f64::NAN } else { f64::INFINITY });
    let op = Dropout { rate: 0.5, stream: STREAMS[0] };
    cases.push(Case::new(op, &[x], EXACT, move |x| vec![dropped(&x[0], op)]));
    cases
}

fn random(sizes: &'static [usize], stream: Stream) -> Vec<Case> {
    let mut cases = Vec::new();
    for (low, high) in [(0.0, 1.0), (-1.0, 1.0), (1.0, 1.000_000_1), (-3.5, 1e30)] {
        cases.push(Case::new(Uniform { shape: shape(sizes), low, high, stream }, &[], EXACT, move |_| {
            vec![Array::build(sizes, DType::F32, |index| {
                let u = (stream.bits(index as u64) >> 8) as f32 / 16_777_216.0;
                f64::from((low + (high - low) * u).min(high.next_down()))
            })]
        }));
    }
    for (mean, deviation) in [(0.0, 1.0), (-3.0, 0.02), (5.0, 0.0)] {
        let tolerance = within(2e-6 * f64::from(deviation), 1.2e-7);
        cases.push(Case::new(Normal { shape: shape(sizes), mean, deviation, stream }, &[], tolerance, move |_| {
            vec![Array::build(sizes, DType::F32, |index| {
                f64::from(mean) + f64::from(deviation) * normal(stream, index as u64)
            })]
        }));
    }
    for rate in [0.0, 0.1, 0.5, 0.999_999_94] {
        let op = Dropout { rate, stream };
        let x = Array::noise(sizes, 2, -1.0, 1.0);
        cases.push(Case::new(op, &[x], EXACT, move |x| vec![dropped(&x[0], op)]));
    }
    cases
}

fn normal(stream: Stream, element: u64) -> f64 {
    let even = element / 2 * 2;
    let word = |element| f64::from(stream.bits(element) >> 8);
    let radius = (-2.0 * ((word(even) + 1.0) / 16_777_216.0).ln()).sqrt();
    let angle = std::f64::consts::TAU * word(even + 1) / 16_777_216.0;
    radius * if element == even { angle.cos() } else { angle.sin() }
}

fn dropped(x: &Array, op: Dropout) -> Array {
    let threshold = (f64::from(op.rate) * 4_294_967_296.0).floor();
    // Rounded as the definition says: the scale to f32, then the product.
    let scale = f64::from((1.0 / (1.0 - f64::from(op.rate))) as f32);
    let keep = |index: usize| f64::from(op.stream.bits(index as u64)) >= threshold;
    let data = x.data.iter().enumerate().map(|(index, &x)| if keep(index) { x * scale } else { 0.0 }).collect();
    Array::f32(&x.shape, data)
}

/// What a type makes of a number: floats round, integers truncate and saturate, NaN becomes 0.
fn cast(value: f64, dtype: DType) -> f64 {
    match dtype {
        DType::F32 => f64::from(value as f32),
        DType::F16 => half::f16::from_f64(value).to_f64(),
        DType::U8 => f64::from(value as u8),
        DType::I32 => f64::from(value as i32),
        DType::U32 => f64::from(value as u32),
    }
}

pub fn refusals() -> Vec<Refusal> {
    let stream = STREAMS[0];
    let uniform = |low, high| Uniform { shape: shape(&[2]), low, high, stream };
    let normal = |mean, deviation| Normal { shape: shape(&[2]), mean, deviation, stream };
    let iota = |count, dtype, start, step| Iota { count, dtype, start, step };
    let x = f32(&[2]);
    let mut refusals = vec![
        Refusal::new(Fill { shape: shape(&[]), dtype: DType::F32, value: 0.0 }, &[x], "1 inputs, it takes 0"),
        Refusal::new(uniform(0.0, 1.0), &[x], "1 inputs, it takes 0"),
        Refusal::new(normal(0.0, 1.0), &[x], "1 inputs, it takes 0"),
        Refusal::new(iota(1, DType::F32, 0, 1), &[x], "1 inputs, it takes 0"),
        Refusal::new(iota(usize::MAX, DType::F32, 0, 1), &[], "too large"),
        Refusal::new(iota(257, DType::U8, 0, 1), &[], "0 to 256 as u8: they do not fit"),
        Refusal::new(iota(1, DType::U8, 256, 0), &[], "256 to 256 as u8"),
        Refusal::new(iota(2, DType::U32, 0, -1), &[], "0 to -1 as u32"),
        Refusal::new(iota(1, DType::U32, -1, 0), &[], "-1 to -1 as u32"),
        Refusal::new(iota(4, DType::I32, i32::MAX - 2, 1), &[], "as i32: they do not fit"),
        Refusal::new(iota(1 << 40, DType::F32, 0, i32::MIN), &[], "as f32: they do not fit"),
        Refusal::new(normal(f32::NAN, 1.0), &[], "mean NaN"),
        Refusal::new(normal(f32::INFINITY, 1.0), &[], "mean inf"),
        Refusal::new(normal(0.0, -1.0), &[], "deviation -1"),
        Refusal::new(normal(0.0, f32::NAN), &[], "deviation NaN"),
        Refusal::new(normal(0.0, f32::INFINITY), &[], "deviation inf"),
        Refusal::new(Dropout { rate: 0.5, stream }, &[], "0 inputs, it takes 1"),
        Refusal::new(Dropout { rate: 0.5, stream }, &[of(&[2], DType::U8)], "input 0 is u8, not f32"),
    ];
    for (low, high) in [
        (1.0, 1.0),
        (2.0, 1.0),
        (f32::NAN, 1.0),
        (0.0, f32::NAN),
        (0.0, f32::INFINITY),
        (f32::NEG_INFINITY, 0.0),
        (f32::MIN, f32::MAX),
    ] {
        refusals.push(Refusal::new(uniform(low, high), &[], "must be below high"));
    }
    for rate in [-0.1, 1.0, 2.0, f32::NAN, f32::INFINITY] {
        refusals.push(Refusal::new(Dropout { rate, stream }, &[x], "must be at least 0 and below 1"));
    }
    refusals
}
