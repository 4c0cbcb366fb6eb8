//! Convolution in two dimensions and its two gradients.

use weft_gpu::op::{Conv2d, Conv2dGradientInput, Conv2dGradientWeight};
use weft_gpu::{DType, Shape};

use crate::array::{Array, coordinates};
use crate::case::{Case, Refusal, Tolerance, f32, of, within};

/// Rounding grows with the number of products; Winograd's filtering costs two digits more.
const CLOSE: Tolerance = Tolerance { absolute: 2e-4, relative: 1e-4 };

/// A convolution, the shape of its input, output channels and kernel.
type Sample = (Conv2d, [usize; 4], usize, [usize; 2]);

fn samples() -> Vec<Sample> {
    let plain = Conv2d::default();
    let grouped = |groups| Conv2d { groups, ..Conv2d::padded(1) };
    vec![
        // one element; one channel; LeNet's two
        (plain, [1, 1, 1, 1], 1, [1, 1]),
        (plain, [2, 1, 6, 5], 2, [3, 2]),
        (plain, [3, 1, 28, 28], 6, [5, 5]),
        (plain, [2, 6, 12, 12], 16, [5, 5]),
        // pointwise: odd planes, single pixels, several panels
        (plain, [3, 5, 3, 3], 7, [1, 1]),
        (plain, [33, 20, 1, 1], 18, [1, 1]),
        (plain, [2, 40, 17, 9], 70, [1, 1]),
        (Conv2d::strided(2, 0), [2, 12, 9, 8], 20, [1, 1]),
        // strides, padding, dilation, kernels of many shapes
        (Conv2d::strided(2, 1), [2, 3, 9, 11], 8, [3, 3]),
        (Conv2d { stride: [2, 1], padding: [2, 0], dilation: [1, 2], groups: 1 }, [2, 3, 7, 9], 4, [3, 2]),
        (Conv2d { stride: [3, 3], padding: [3, 3], ..plain }, [1, 2, 10, 10], 3, [7, 7]),
        (Conv2d { padding: [4, 4], ..plain }, [1, 2, 3, 3], 2, [3, 3]),
        // one image whose output channels are shared out, unevenly
        (Conv2d::padded(2), [1, 64, 16, 16], 64, [5, 5]),
        // groups and depthwise
        (grouped(2), [2, 6, 5, 5], 8, [3, 3]),
        (grouped(3), [2, 3, 6, 6], 6, [3, 3]),
        (grouped(11), [3, 11, 5, 7], 11, [3, 3]),
        (Conv2d { stride: [2, 2], groups: 9, ..Conv2d::padded(2) }, [2, 9, 8, 8], 9, [5, 5]),
        (Conv2d { dilation: [2, 2], groups: 8, ..Conv2d::padded(2) }, [2, 8, 6, 6], 8, [3, 3]),
        // strides and padding that leave almost nothing but zeros, in groups too
        (Conv2d { stride: [1, 65_537], padding: [1, 1], ..plain }, [2, 3, 30, 1], 3, [3, 3]),
        (Conv2d { stride: [1 << 30; 2], padding: [1 << 30; 2], ..plain }, [1, 2, 2, 2], 2, [1, 1]),
        (Conv2d { stride: [1 << 30; 2], padding: [1 << 30; 2], groups: 2, ..plain }, [1, 2, 2, 2], 2, [1, 1]),
        (Conv2d { dilation: [1 << 30; 2], padding: [1 << 30; 2], groups: 2, ..plain }, [1, 2, 2, 2], 2, [3, 3]),
        // Winograd's: whole squares, ragged edges, many channels, many squares, other paddings
        (Conv2d::padded(1), [2, 16, 8, 8], 16, [3, 3]),
        (Conv2d::padded(1), [3, 19, 7, 11], 23, [3, 3]),
        (Conv2d::padded(0), [2, 17, 9, 6], 16, [3, 3]),
        (Conv2d::padded(2), [1, 16, 4, 4], 40, [3, 3]),
        (Conv2d::padded(1), [5, 32, 16, 16], 48, [3, 3]),
        (Conv2d::padded(1), [40, 16, 4, 4], 150, [3, 3]),
        // rows of more squares than a strip has, more channels than are multiplied at a time
        (Conv2d::padded(1), [1, 16, 5, 150], 18, [3, 3]),
        (Conv2d::padded(1), [2, 70, 6, 18], 20, [3, 3]),
        (Conv2d::padded(1), [3, 130, 4, 4], 70, [3, 3]),
        // images that are copied in bands
        (Conv2d::padded(2), [2, 6, 130, 40], 7, [5, 5]),
        (Conv2d::strided(2, 3), [1, 3, 120, 90], 8, [7, 7]),
    ]
}

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (index, (conv, input, outputs, kernel)) in samples().into_iter().enumerate() {
        let x = Array::noise(&input, 10, -1.0, 1.0);
        let weight = Array::noise(&[outputs, input[1] / conv.groups, kernel[0], kernel[1]], 11, -0.5, 0.5);
        let bias = Array::noise(&[outputs], 12, -1.0, 1.0);
        let y = convolve(&conv, &x, &weight, None);
        let dy = Array::noise(&y.shape, 13, -1.0, 1.0);
        let (input, weights) = (shape(&x), shape(&weight));
        let with_bias = index % 2 == 0;
        let mut inputs = vec![x.clone(), weight.clone()];
        inputs.extend(with_bias.then_some(bias));
        let forward = Case::new(conv, &inputs, CLOSE, move |x| vec![convolve(&conv, &x[0], &x[1], x.get(2))]);
        cases.push(forward);
        let (for_input, for_weight) = (x.clone(), weight.clone());
        cases.push(Case::new(Conv2dGradientInput { conv, input }, &[dy.clone(), weight], CLOSE, move |x| {
            vec![gradients(&conv, &for_input, &x[1], &x[0]).0]
        }));
        cases.push(Case::new(Conv2dGradientWeight { conv, weight: weights }, &[x, dy], within(2e-3, 1e-3), move |x| {
            vec![gradients(&conv, &x[0], &for_weight, &x[1]).1]
        }));
    }
    // Small enough for finite differences.
    for (conv, input, outputs) in [
        (Conv2d::padded(1), [2, 2, 3, 4], 3),
        (Conv2d::strided(2, 1), [1, 2, 5, 4], 2),
        (Conv2d { groups: 2, ..Conv2d::padded(1) }, [1, 2, 4, 3], 2),
        (Conv2d { groups: 2, dilation: [2, 1], ..Conv2d::padded(2) }, [1, 4, 4, 3], 4),
    ] {
        let x = Array::noise(&input, 20, -1.0, 1.0);
        let weight = Array::noise(&[outputs, input[1] / conv.groups, 3, 3], 21, -0.5, 0.5);
        let bias = Array::noise(&[outputs], 22, -1.0, 1.0);
        let case = Case::new(conv, &[x, weight, bias], CLOSE, move |x| vec![convolve(&conv, &x[0], &x[1], x.get(2))]);
        cases.push(case.differentiated(&[0, 1, 2]));
    }
    for (input, weight) in [([0, 3, 4, 4], [2, 3, 3, 3]), ([2, 0, 4, 4], [2, 0, 3, 3]), ([2, 3, 4, 4], [0, 3, 3, 3])] {
        let (x, weight) = (Array::noise(&input, 1, -1.0, 1.0), Array::noise(&weight, 2, -1.0, 1.0));
        let conv = Conv2d::padded(1);
        cases.push(Case::new(conv, &[x, weight], CLOSE, move |x| vec![convolve(&conv, &x[0], &x[1], None)]));
    }
    cases
}

pub fn refusals() -> Vec<Refusal> {
    let conv = Conv2d::default();
    let huge = Conv2d { padding: [1 << 31; 2], ..conv };
    let x = f32(&[1, 2, 4, 4]);
    let sized = |sizes: &[usize]| Shape::new(sizes).unwrap();
    vec![
        Refusal::new(conv, &[x], "1 inputs, it takes 2 or 3"),
        Refusal::new(conv, &[x, of(&[1, 2, 3, 3], DType::F16)], "input 1 is f16, not f32"),
        Refusal::new(conv, &[f32(&[2, 4, 4]), f32(&[1, 2, 3, 3])], "both must have 4 axes: [2, 4, 4] and [1, 2, 3, 3]"),
        Refusal::new(conv, &[x, f32(&[1, 3, 3, 3])], "channels do not fit 1 groups: [1, 2, 4, 4] and [1, 3, 3, 3]"),
        Refusal::new(Conv2d { groups: 2, ..conv }, &[x, f32(&[3, 1, 3, 3])], "channels do not fit 2 groups"),
        Refusal::new(conv, &[x, f32(&[1, 2, 5, 3])], "the kernel does not fit"),
        Refusal::new(conv, &[x, f32(&[1, 2, 0, 3])], "the kernel does not fit"),
        Refusal::new(Conv2d { stride: [0, 1], ..conv }, &[x, f32(&[1, 2, 3, 3])], "must be at least 1"),
        Refusal::new(Conv2d { groups: 0, ..conv }, &[x, f32(&[1, 2, 3, 3])], "must be at least 1"),
        Refusal::new(Conv2d { dilation: [1 << 31, 1], ..conv }, &[x, f32(&[1, 2, 3, 3])], "the kernel does not fit"),
        Refusal::new(Conv2d { dilation: [usize::MAX, 1], ..conv }, &[x, f32(&[1, 2, 1, 3])], "must be at most"),
        Refusal::new(Conv2d { stride: [1, 1 << 62], ..conv }, &[x, f32(&[1, 2, 3, 3])], "must be at most"),
        Refusal::new(Conv2d { padding: [1 << 62, 0], ..conv }, &[x, f32(&[1, 2, 3, 3])], "must be at most"),
        Refusal::new(huge, &[x, f32(&[1, 2, 3, 3])], "elements"),
        Refusal::new(conv, &[x, f32(&[3, 2, 3, 3]), f32(&[2])], "input 2 is [2], not [3]"),
        Refusal::new(
            Conv2dGradientInput { conv, input: sized(&[1, 2, 4, 4]) },
            &[f32(&[1, 3, 3, 3]), f32(&[3, 2, 3, 3])],
            "input 0 is [1, 3, 3, 3], not [1, 3, 2, 2]",
        ),
        Refusal::new(
            Conv2dGradientWeight { conv, weight: sized(&[3, 2, 3, 3]) },
            &[x, f32(&[1, 3, 3, 3])],
            "input 1 is [1, 3, 3, 3], not [1, 3, 2, 2]",
        ),
    ]
}

fn shape(array: &Array) -> Shape {
    Shape::new(&array.shape).unwrap()
}

/// Calls `each` with every output, input and weight that meet.
fn each_product(
    conv: &Conv2d,
    x: &Array,
    weight: &Array,
    to: [usize; 2],
    mut each: impl FnMut([usize; 4], usize, usize),
) {
    let (inputs, outputs) = (weight.shape[1], weight.shape[0] / conv.groups);
    for tap in coordinates(&weight.shape) {
        for at in coordinates(&[x.shape[0], to[0], to[1]]) {
            let source = |axis: usize| {
                (at[axis + 1] * conv.stride[axis] + tap[axis + 2] * conv.dilation[axis])
                    .checked_sub(conv.padding[axis])
                    .filter(|&source| source < x.shape[axis + 2])
            };
            if let (Some(row), Some(column)) = (source(0), source(1)) {
                let channel = tap[0] / outputs * inputs + tap[1];
                each([at[0], tap[0], at[1], at[2]], x.index(&[at[0], channel, row, column]), weight.index(&tap));
            }
        }
    }
}

fn output_shape(conv: &Conv2d, x: &Array, weight: &Array) -> [usize; 4] {
    let size = |axis: usize| {
        let reach = (weight.shape[axis + 2] - 1) * conv.dilation[axis] + 1;
        (x.shape[axis + 2] + 2 * conv.padding[axis] - reach) / conv.stride[axis] + 1
    };
    [x.shape[0], weight.shape[0], size(0), size(1)]
}

fn convolve(conv: &Conv2d, x: &Array, weight: &Array, bias: Option<&Array>) -> Array {
    let shape = output_shape(conv, x, weight);
    let mut y = Array::build(&shape, DType::F32, |index| {
        bias.map_or(0.0, |bias| bias.data[index / (shape[2] * shape[3]) % shape[1]])
    });
    each_product(conv, x, weight, [shape[2], shape[3]], |output, input, tap| {
        let at = y.index(&output);
        y.data[at] += x.data[input] * weight.data[tap];
    });
    y
}

/// The gradients of input and weight.
fn gradients(conv: &Conv2d, x: &Array, weight: &Array, dy: &Array) -> (Array, Array) {
    let mut dx = Array::build(&x.shape, DType::F32, |_| 0.0);
    let mut dw = Array::build(&weight.shape, DType::F32, |_| 0.0);
    each_product(conv, x, weight, [dy.shape[2], dy.shape[3]], |output, input, tap| {
        let dy = dy.at(&output);
        dx.data[input] += dy * weight.data[tap];
        dw.data[tap] += dy * x.data[input];
    });
    (dx, dw)
}
