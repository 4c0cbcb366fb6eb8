//! What workers exchange in fewer bytes.

use weft_gpu::DType;
use weft_gpu::op::{AddAt, CastSaturating, Dequantize, Largest, Quantize, Significant, Stream};

use crate::array::{Array, unit};
use crate::case::{Case, EXACT, Refusal, f32, of};

const STREAM: Stream = Stream { seed: 0x0123_4567_89AB_CDEF, offset: 7 };

pub fn cases() -> Vec<Case> {
    let mut cases = casts();
    for (bits, bucket, shape) in [
        (2, 32, &[1][..]),
        (3, 32, &[7, 9]),
        (4, 64, &[]),
        (4, 512, &[511]),
        (4, 512, &[513]),
        (5, 96, &[5, 61]),
        (6, 32, &[0, 3]),
        (7, 1024, &[3000]),
        (8, 544, &[50_001]),
        (3, 512, &[3, 20_011]),
    ] {
        cases.extend(levels(bits, bucket, Array::noise(shape, 5, -1.0, 1.0)));
    }
    cases.extend(levels(4, 32, Array::build(&[320], DType::F32, extreme)));
    for (count, shape) in [
        (1, &[][..]),
        (0, &[5]),
        (3, &[7]),
        (7, &[7]),
        (40, &[9, 300]),
        (2600, &[9, 300]),
        (1500, &[150_001]),
        (150_000, &[150_001]),
    ] {
        cases.push(largest(count, Array::noise(shape, 3, -1.0, 1.0)));
        // Many equals, of both signs.
        let few = Array::build(shape, DType::F32, |index| (8.0 * unit(4, index)).floor() / 4.0 - 1.0);
        cases.push(largest(count, few));
    }
    cases.push(largest(6, Array::build(&[40], DType::F32, |index| extreme(8 * index))));
    cases.extend(significant());
    cases.extend(add_at());
    cases
}

/// Numbers from one end to the other, by groups of 32: zeros, tiny, small, large, the largest, and what is not finite.
fn extreme(index: usize) -> f64 {
    let size = match index / 32 {
        0 => 0.0,
        1 => 1e-42,
        2 => f64::from(f32::MIN_POSITIVE),
        3 => 1e-30,
        4 => 1e30,
        5 | 6 => f64::from(f32::MAX),
        7 if index % 32 == 5 => f64::NAN,
        8 if index.is_multiple_of(32) => f64::NEG_INFINITY,
        _ => 1.0,
    };
    match index % 32 {
        0 => size,
        _ => f64::from((size * (2.0 * unit(9, index) - 1.0)) as f32),
    }
}

fn casts() -> Vec<Case> {
    let edges = [0.0, -0.0, 1.0, 65504.0, 65519.0, 65520.0, -65536.0, 3e38, -3e38, 1e-8, 6e-8, f64::INFINITY, f64::NAN];
    let edges = Array::f32(&[13], edges.iter().map(|&x| f64::from(x as f32)).collect());
    let noise = |shape: &[usize]| Array::noise(shape, 1, -1e5, 1e5);
    [edges, noise(&[]), noise(&[0]), noise(&[3, 5]), noise(&[40_001])]
        .map(|x| {
            Case::new(CastSaturating, &[x], EXACT, |x| {
                let half = |x: f64| if x.is_finite() { x.clamp(-65504.0, 65504.0) } else { x };
                vec![Array::new(&x[0].shape, DType::F16, x[0].data.iter().map(|&x| half(x)).collect())]
            })
        })
        .into()
}

/// There and back: codes bit by bit, by the definition.
fn levels(bits: u32, bucket: usize, x: Array) -> Vec<Case> {
    let (scales, codes) = quantized(bits, bucket, &x);
    let elements = x.data.len();
    let back = Dequantize { bits, bucket, elements };
    let there = Case::new(Quantize { bits, bucket, stream: STREAM }, &[x], EXACT, move |x| {
        let (scales, codes) = quantized(bits, bucket, &x[0]);
        vec![scales, codes]
    });
    let back = Case::new(back, &[scales, codes], EXACT, move |x| {
        let levels = (1_u32 << (bits - 1)) - 1;
        let data = (0..elements).map(|element| {
            let code =
                (0..bits as usize).fold(0, |code, bit| code | bit_at(&x[1], element * bits as usize + bit) << bit);
            let sign = if code >> (bits - 1) == 1 { -1.0 } else { 1.0 };
            let (level, scale) = (code & levels, x[0].data[element / bucket] as f32);
            let size = if level == levels { scale } else { level as f32 * (scale * (1.0 / levels as f32)) };
            sign * f64::from(size)
        });
        vec![Array::f32(&[elements], data.collect())]
    });
    vec![there, back]
}

fn quantized(bits: u32, bucket: usize, x: &Array) -> (Array, Array) {
    let levels = (1_u32 << (bits - 1)) - 1;
    let scale = |x: &[f64]| match x.iter().fold(0.0_f64, |most, x| if x.is_nan() { *x } else { most.max(x.abs()) }) {
        _ if x.iter().any(|x| !x.is_finite()) => f64::NAN,
        small if small < f64::from(f32::MIN_POSITIVE) => 0.0,
        most => most,
    };
    let scales: Vec<f64> = x.data.chunks(bucket).map(scale).collect();
    let mut codes = vec![0_u64; (x.data.len() * bits as usize).div_ceil(32)];
    for (element, &x) in x.data.iter().enumerate() {
        let scale = scales[element / bucket] as f32;
        if !(scale.is_finite() && scale > 0.0) {
            continue;
        }
        let lift = if scale >= 2_f32.powi(64) { 2_f32.powi(-64) } else { 1.0 };
        let lift = if scale < 2_f32.powi(-64) { 2_f32.powi(64) } else { lift };
        let exact = (x as f32).abs() * lift * (levels as f32 / (scale * lift));
        let chance = (STREAM.bits(element as u64) >> 8) as f32 / (1 << 24) as f32;
        let up = u32::from(chance < exact - exact.floor());
        let level = (exact.floor() as u32 + up).min(levels);
        let sign = u32::from(x < 0.0 && level > 0);
        let code = u64::from(sign << (bits - 1) | level);
        let (word, shift) = (element * bits as usize / 32, element * bits as usize % 32);
        codes[word] |= code << shift & 0xffff_ffff;
        if shift + bits as usize > 32 {
            codes[word + 1] |= code >> (32 - shift);
        }
    }
    let codes: Vec<f64> = codes.into_iter().map(|word| word as f64).collect();
    (Array::f32(&[scales.len()], scales), Array::new(&[codes.len()], DType::U32, codes))
}

fn bit_at(words: &Array, bit: usize) -> u32 {
    words.data[bit / 32] as u32 >> (bit % 32) & 1
}

fn largest(count: usize, x: Array) -> Case {
    Case::new(Largest { count }, &[x], EXACT, move |x| {
        let x = &x[0].data;
        let mut order: Vec<usize> = (0..x.len()).collect();
        let size = |index: usize| {
            if x[index].is_nan() { f64::INFINITY } else { x[index].abs().min(f64::from(f32::MAX) * 2.0) }
        };
        order.sort_by(|&a, &b| size(b).total_cmp(&size(a)));
        order.truncate(count);
        order.sort_unstable();
        let values = order.iter().map(|&index| x[index]).collect();
        let indices = order.iter().map(|&index| index as f64).collect();
        vec![Array::f32(&[count], values), Array::new(&[count], DType::U32, indices)]
    })
}

fn significant() -> Vec<Case> {
    let threshold = 0.25;
    let pair = |shape: &[usize]| [Array::noise(shape, 1, -1.0, 1.0), Array::noise(shape, 2, -3.0, 3.0)];
    let (infinite, nan) = (f64::INFINITY, f64::NAN);
    let changes = Array::f32(&[10], vec![0.0, -0.0, 1e-6, -0.25, 0.2, nan, infinite, infinite, 1.0, 1e-42]);
    let weights = Array::f32(&[10], vec![0.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0, infinite, nan, 0.0]);
    [pair(&[]), pair(&[0, 4]), pair(&[7]), pair(&[3, 50_001]), [changes, weights]]
        .map(|inputs| {
            Case::new(Significant { threshold }, &inputs, EXACT, move |x| {
                let least = |weight: f64| f64::from(threshold * weight.abs() as f32);
                let keeps = |change: f64, weight: f64| {
                    change != 0.0 && (change.is_nan() || weight.is_nan() || change.abs() >= least(weight))
                };
                let pairs = x[0].data.iter().zip(&x[1].data);
                let kept: Vec<f64> = pairs.clone().map(|(&c, &w)| if keeps(c, w) { c } else { 0.0 }).collect();
                let count = pairs.filter(|&(&c, &w)| keeps(c, w)).count();
                vec![Array::f32(&x[0].shape, kept), Array::new(&[1], DType::U32, vec![count as f64])]
            })
        })
        .into()
}

fn add_at() -> Vec<Case> {
    let mut cases = Vec::new();
    for (shape, step, count) in
        [(&[][..], 1, 1), (&[5], 1, 0), (&[0], 1, 0), (&[4, 6], 5, 5), (&[3, 50_001], 7, 21_429)]
    {
        let indices = Array::build(&[count], DType::U32, |index| (index * step) as f64);
        let inputs = [Array::noise(shape, 1, -1.0, 1.0), Array::noise(&[count], 2, -1.0, 1.0), indices];
        // Powers of two are exact, so it is no matter whether a device rounds once or twice.
        for scale in [1.0, -0.5] {
            cases.push(Case::new(AddAt { scale }, &inputs, EXACT, move |x| {
                let mut sums = x[0].clone();
                for (value, index) in x[1].data.iter().zip(&x[2].data) {
                    sums.data[*index as usize] += f64::from(scale) * value;
                }
                vec![sums]
            }));
        }
    }
    cases
}

pub fn refusals() -> Vec<Refusal> {
    let quantize = |bits, bucket| Quantize { bits, bucket, stream: STREAM };
    let back = |bits, bucket, elements| Dequantize { bits, bucket, elements };
    let (a, words) = (f32(&[2, 3]), |count| of(&[count], DType::U32));
    vec![
        Refusal::new(CastSaturating, &[], "`cast-saturating`: 0 inputs, it takes 1"),
        Refusal::new(CastSaturating, &[words(3)], "input 0 is u32, not f32"),
        Refusal::new(quantize(1, 32), &[a], "`quantize`: 1 bits: it takes from 2 to 8"),
        Refusal::new(quantize(9, 32), &[a], "9 bits"),
        Refusal::new(quantize(4, 0), &[a], "buckets of 0: it takes a multiple of 32"),
        Refusal::new(quantize(4, 33), &[a], "buckets of 33"),
        Refusal::new(quantize(4, 1 << 21), &[a], "at most 1048576"),
        Refusal::new(quantize(4, 32), &[a, a], "2 inputs, it takes 1"),
        Refusal::new(quantize(4, 32), &[words(3)], "input 0 is u32, not f32"),
        Refusal::new(back(4, 32, 33), &[f32(&[2])], "`dequantize`: 1 inputs, it takes 2"),
        Refusal::new(back(4, 32, 33), &[f32(&[1]), words(5)], "input 0 is [1], not [2]"),
        Refusal::new(back(4, 32, 33), &[f32(&[2]), words(4)], "input 1 is [4], not [5]"),
        Refusal::new(back(4, 32, 33), &[words(2), words(5)], "input 0 is u32, not f32"),
        Refusal::new(back(4, 32, 33), &[f32(&[2]), f32(&[5])], "input 1 is f32, not u32"),
        Refusal::new(back(4, 30, 33), &[f32(&[2]), words(5)], "buckets of 30"),
        Refusal::new(back(4, 32, usize::MAX), &[f32(&[2]), words(5)], "too large"),
        Refusal::new(Largest { count: 7 }, &[a], "`largest`: the 7 largest of [2, 3]"),
        Refusal::new(Largest { count: 1 }, &[words(4)], "input 0 is u32, not f32"),
        Refusal::new(Significant { threshold: 0.1 }, &[a], "`significant`: 1 inputs, it takes 2"),
        Refusal::new(Significant { threshold: 0.1 }, &[a, f32(&[6])], "inputs 0 and 1 differ in shape"),
        Refusal::new(Significant { threshold: 0.0 }, &[a, a], "threshold 0 must be finite and above 0"),
        Refusal::new(Significant { threshold: f32::NAN }, &[a, a], "threshold NaN"),
        Refusal::new(AddAt { scale: 1.0 }, &[a, f32(&[2])], "`add-at`: 2 inputs, it takes 3"),
        Refusal::new(AddAt { scale: f32::INFINITY }, &[a, f32(&[2]), words(2)], "scale inf must be finite"),
        Refusal::new(AddAt { scale: 1.0 }, &[a, f32(&[2]), f32(&[2])], "input 2 is f32, not u32"),
        Refusal::new(AddAt { scale: 1.0 }, &[a, f32(&[2, 1]), of(&[2, 1], DType::U32)], "it must have 1 axes"),
        Refusal::new(AddAt { scale: 1.0 }, &[a, f32(&[2]), words(3)], "inputs 1 and 2 differ in shape"),
        // All of them are 0, which is fine for one alone.
        Refusal::new(AddAt { scale: 1.0 }, &[a, f32(&[2]), words(2)], "indices must rise and be below 6"),
        Refusal::new(AddAt { scale: 1.0 }, &[f32(&[0]), f32(&[1]), words(1)], "the one at place 0 does not"),
    ]
}
