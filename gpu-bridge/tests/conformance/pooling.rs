//! Windows to one element: maxima and means of images.

use std::slice::from_ref;

use weft_gpu::op::{
    AdaptiveAveragePool2d, AdaptiveAveragePool2dGradient, AdaptiveMaxPool2d, AdaptiveMaxPool2dGradient, AveragePool2d,
    AveragePool2dGradient, MaxPool2d, MaxPool2dGradient, Window,
};
use weft_gpu::{DType, Shape};

use crate::array::{Array, coordinates};
use crate::case::{Case, EXACT, Refusal, Tolerance, f32, of, within};

const AVERAGED: Tolerance = within(1e-6, 1e-6);

fn window(kernel: [usize; 2], stride: [usize; 2], padding: [usize; 2]) -> Window {
    Window { kernel, stride, padding, ceil: false, count_padding: true }
}

/// Strides 1, 2 and 3, with and without padding, overlapping, touching and apart, ceil mode with and without a last
/// window that begins too late, and kernels larger than the image.
fn windows() -> Vec<(Window, [usize; 4])> {
    let plain = [
        (window([2, 2], [2, 2], [0, 0]), [2, 3, 8, 10]),
        (window([2, 2], [2, 2], [0, 0]), [1, 2, 7, 9]),
        (window([2, 2], [2, 2], [0, 0]), [3, 5, 34, 70]),
        (window([3, 3], [2, 2], [1, 1]), [2, 2, 9, 11]),
        (window([3, 3], [2, 2], [1, 1]), [3, 4, 56, 56]),
        (window([3, 3], [2, 2], [0, 0]), [1, 3, 13, 13]),
        (window([3, 3], [1, 1], [1, 1]), [2, 3, 8, 8]),
        (window([3, 3], [3, 3], [0, 0]), [2, 3, 10, 11]),
        (window([2, 5], [1, 3], [1, 2]), [2, 1, 6, 17]),
        (window([1, 1], [2, 2], [0, 0]), [2, 2, 5, 5]),
        (window([5, 5], [1, 1], [2, 2]), [1, 1, 1, 1]),
        (window([2, 2], [3, 3], [1, 1]), [0, 4, 5, 5]),
        (window([2, 2], [5, 7], [1, 1]), [1, 2, 3, 4]),
        (window([3, 2], [2, 2], [1, 0]), [64, 24, 12, 12]),
    ];
    let ceil = [
        (window([2, 2], [2, 2], [0, 0]), [1, 2, 7, 9]),
        (window([3, 3], [2, 2], [1, 1]), [2, 2, 8, 9]),
        (window([2, 2], [3, 3], [1, 1]), [1, 2, 5, 8]),
        (window([2, 3], [2, 3], [1, 1]), [1, 2, 6, 7]),
        (window([2, 2], [2, 2], [0, 0]), [1, 1, 1, 1]),
        (window([1 << 30, 3], [1 << 30, 1 << 31], [0, 1]), [2, 1, 3, 2]),
    ];
    let exclusive = |(window, shape): &(Window, [usize; 4])| (Window { count_padding: false, ..*window }, *shape);
    let ceil: Vec<_> = ceil.into_iter().map(|(window, shape)| (Window { ceil: true, ..window }, shape)).collect();
    plain
        .iter()
        .copied()
        .chain(plain.iter().map(exclusive))
        .chain(ceil.clone())
        .chain(ceil.iter().map(exclusive))
        .collect()
}

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (window, shape) in windows() {
        let x = apart(&shape);
        let pooled = windowed(&x, window);
        let dy = Array::noise(&pooled.shape, 2, -1.0, 1.0);
        let small = x.data.len() < 200 && !x.data.is_empty();
        let wanted: &[usize] = if small { &[0] } else { &[] };
        let max = move |x: &[Array]| vec![maxima(&x[0], &windowed(&x[0], window))];
        cases.push(Case::new(MaxPool2d(window), from_ref(&x), EXACT, max).differentiated(wanted));
        let average = move |x: &[Array]| vec![means(&x[0], &windowed(&x[0], window))];
        cases.push(Case::new(AveragePool2d(window), from_ref(&x), AVERAGED, average).differentiated(wanted));
        cases.push(Case::new(MaxPool2dGradient(window), &[x.clone(), dy.clone()], AVERAGED, move |x| {
            vec![maxima_gradient(&x[0], &x[1], &windowed(&x[0], window))]
        }));
        let op = AveragePool2dGradient { window, input: Shape::new(&shape).unwrap() };
        cases.push(Case::new(op, &[dy], AVERAGED, move |dy| vec![means_gradient(&x, &dy[0], &pooled)]));
    }
    for (shape, height, width) in [
        ([2, 3, 7, 5], 3, 2),
        ([2, 3, 8, 8], 4, 2),
        ([3, 2, 7, 9], 1, 1),
        ([1, 2, 2, 3], 5, 4),
        ([40, 30, 7, 7], 3, 3),
        ([0, 2, 3, 3], 1, 1),
        ([20, 500, 4, 4], 1, 1),
        ([2, 3, 20, 17], 1, 1),
    ] {
        let x = apart(&shape);
        let pooled = adaptive(&x, height, width);
        let dy = Array::noise(&pooled.shape, 2, -1.0, 1.0);
        let wanted: &[usize] = if (1..=300).contains(&x.data.len()) { &[0] } else { &[] };
        let max = move |x: &[Array]| vec![maxima(&x[0], &adaptive(&x[0], height, width))];
        cases.push(Case::new(AdaptiveMaxPool2d { height, width }, from_ref(&x), EXACT, max).differentiated(wanted));
        let average = move |x: &[Array]| vec![means(&x[0], &adaptive(&x[0], height, width))];
        cases.push(
            Case::new(AdaptiveAveragePool2d { height, width }, from_ref(&x), AVERAGED, average).differentiated(wanted),
        );
        cases.push(Case::new(AdaptiveMaxPool2dGradient, &[x.clone(), dy.clone()], AVERAGED, move |x| {
            vec![maxima_gradient(&x[0], &x[1], &adaptive(&x[0], height, width))]
        }));
        let op = AdaptiveAveragePool2dGradient { input: Shape::new(&shape).unwrap() };
        cases.push(Case::new(op, &[dy], AVERAGED, move |dy| vec![means_gradient(&x, &dy[0], &pooled)]));
    }
    cases.extend(special_cases());
    cases.extend(large_windows());
    cases
}

/// Windows so large that they are gone through in pieces.
fn large_windows() -> Vec<Case> {
    let mut cases = Vec::new();
    for (window, shape) in [
        (window([1, 300], [1, 1], [0, 7]), [1, 1, 2, 2000]),
        (window([300, 20], [1, 1], [3, 0]), [1, 1, 300, 900]),
        (window([290, 40], [2, 3], [0, 0]), [1, 1, 300, 950]),
    ] {
        let x = apart(&shape);
        let pooled = windowed(&x, window);
        let dy = Array::noise(&pooled.shape, 2, -1.0, 1.0);
        let max = move |x: &[Array]| vec![maxima(&x[0], &windowed(&x[0], window))];
        cases.push(Case::new(MaxPool2d(window), from_ref(&x), EXACT, max));
        let noise = Array::noise(&shape, 3, -1.0, 1.0);
        let average = move |x: &[Array]| vec![means(&x[0], &windowed(&x[0], window))];
        cases.push(Case::new(AveragePool2d(window), &[noise], within(1e-5, 1e-5), average));
        cases.push(Case::new(MaxPool2dGradient(window), &[x.clone(), dy.clone()], within(1e-3, 1e-4), move |x| {
            vec![maxima_gradient(&x[0], &x[1], &windowed(&x[0], window))]
        }));
        let op = AveragePool2dGradient { window, input: Shape::new(&shape).unwrap() };
        cases.push(Case::new(op, &[dy], within(1e-5, 1e-4), move |dy| vec![means_gradient(&x, &dy[0], &pooled)]));
    }
    cases
}

/// Equal elements, NaN and infinities.
fn special_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let pick = |index: usize| [1.0, f64::NAN, f64::NEG_INFINITY, 1.0, f64::INFINITY, 0.0, 1.0][index * index % 11 % 7];
    let inputs = [
        Array::f32(&[1, 1, 6, 10], vec![f64::NEG_INFINITY; 60]),
        Array::f32(&[1, 1, 6, 10], vec![2.0; 60]),
        Array::build(&[2, 2, 6, 10], DType::F32, pick),
        Array::build(&[2, 2, 6, 10], DType::F32, |index| if index % 3 == 0 { f64::NAN } else { index as f64 }),
    ];
    let mut overlapping = window([3, 3], [2, 2], [1, 1]);
    overlapping.ceil = true;
    for x in inputs {
        for window in [
            window([2, 2], [2, 2], [0, 0]),
            overlapping,
            window([3, 2], [1, 1], [1, 1]),
            window([2, 2], [3, 3], [0, 0]),
        ] {
            let max = move |x: &[Array]| vec![maxima(&x[0], &windowed(&x[0], window))];
            cases.push(Case::new(MaxPool2d(window), from_ref(&x), EXACT, max));
            let dy = Array::noise(&windowed(&x, window).shape, 2, -1.0, 1.0);
            cases.push(Case::new(MaxPool2dGradient(window), &[x.clone(), dy], AVERAGED, move |x| {
                vec![maxima_gradient(&x[0], &x[1], &windowed(&x[0], window))]
            }));
        }
        let dy = Array::noise(&[x.shape[0], x.shape[1], 4, 4], 2, -1.0, 1.0);
        cases.push(Case::new(AdaptiveMaxPool2d { height: 4, width: 4 }, from_ref(&x), EXACT, |x| {
            vec![maxima(&x[0], &adaptive(&x[0], 4, 4))]
        }));
        cases.push(Case::new(AdaptiveMaxPool2dGradient, &[x, dy], AVERAGED, |x| {
            vec![maxima_gradient(&x[0], &x[1], &adaptive(&x[0], 4, 4))]
        }));
    }
    cases
}

pub fn refusals() -> Vec<Refusal> {
    let image = f32(&[1, 1, 4, 4]);
    let two = window([2, 2], [2, 2], [0, 0]);
    let shape = |sizes: &[usize]| Shape::new(sizes).unwrap();
    let mut refusals = vec![
        Refusal::new(MaxPool2d(two), &[], "0 inputs, it takes 1"),
        Refusal::new(MaxPool2d(two), &[of(&[1, 1, 4, 4], DType::U8)], "input 0 is u8, not f32"),
        Refusal::new(MaxPool2d(two), &[f32(&[4, 4])], "[4, 4] must be [n, c, h, w]"),
        Refusal::new(MaxPool2d(two), &[f32(&[1, 1, 0, 4])], "height and width must be 1"),
        Refusal::new(MaxPool2d(two), &[f32(&[1, 1, 1, 4])], "kernel 2 does not fit 1 with padding 0"),
        Refusal::new(MaxPool2dGradient(two), &[image], "1 inputs, it takes 2"),
        Refusal::new(MaxPool2dGradient(two), &[image, f32(&[1, 1, 2, 3])], "input 1 is [1, 1, 2, 3], not [1, 1, 2, 2]"),
        Refusal::new(MaxPool2dGradient(two), &[image, of(&[1, 1, 2, 2], DType::I32)], "input 1 is i32, not f32"),
        Refusal::new(AveragePool2d(two), &[image, image], "2 inputs, it takes 1"),
        Refusal::new(AveragePool2d(two), &[f32(&[1, 4, 4])], "must be [n, c, h, w]"),
        Refusal::new(
            AveragePool2dGradient { window: two, input: shape(&[1, 1, 4, 4]) },
            &[f32(&[1, 1, 2, 3])],
            "input 0 is [1, 1, 2, 3], not [1, 1, 2, 2]",
        ),
        Refusal::new(AveragePool2dGradient { window: two, input: shape(&[4, 4]) }, &[image], "must be [n, c, h, w]"),
        Refusal::new(AdaptiveAveragePool2d { height: 0, width: 2 }, &[image], "output of 0 by 2"),
        Refusal::new(AdaptiveAveragePool2d { height: usize::MAX, width: 2 }, &[image], "must be 1 to"),
        Refusal::new(AdaptiveAveragePool2d { height: 1 << 31, width: 1 << 31 }, &[image], "too large"),
        Refusal::new(AdaptiveAveragePool2d { height: 2, width: 2 }, &[f32(&[4])], "must be [n, c, h, w]"),
        Refusal::new(AdaptiveAveragePool2d { height: 2, width: 2 }, &[f32(&[1, 1, 4, 0])], "height and width"),
        Refusal::new(AdaptiveAveragePool2dGradient { input: shape(&[1, 1, 4, 4]) }, &[f32(&[4])], "must have 4 axes"),
        Refusal::new(AdaptiveAveragePool2dGradient { input: shape(&[1, 2, 4, 4]) }, &[image], "not [1, 2, 4, 4]"),
        Refusal::new(AdaptiveMaxPool2d { height: 2, width: 0 }, &[image], "output of 2 by 0"),
        Refusal::new(AdaptiveMaxPool2d { height: 2, width: 2 }, &[], "0 inputs, it takes 1"),
        Refusal::new(AdaptiveMaxPool2dGradient, &[image], "1 inputs, it takes 2"),
        Refusal::new(
            AdaptiveMaxPool2dGradient,
            &[image, f32(&[2, 1, 2, 2])],
            "input 1 is [2, 1, 2, 2], not [1, 1, 2, 2]",
        ),
        Refusal::new(AdaptiveMaxPool2dGradient, &[image, f32(&[1, 1, 0, 2])], "output of 0 by 2"),
    ];
    for (window, says) in [
        (window([0, 2], [2, 2], [0, 0]), "kernel 0 and stride 2 must be 1"),
        (window([2, 2], [2, 0], [0, 0]), "kernel 2 and stride 0 must be 1"),
        (window([2, 2], [usize::MAX, 2], [0, 0]), "must be 1 to"),
        (window([usize::MAX, 2], [2, 2], [usize::MAX / 2, 0]), "must be 1 to"),
        (window([3, 3], [2, 2], [2, 1]), "padding 2 must be at most half the kernel 3"),
        (window([2, 2], [2, 2], [0, usize::MAX]), "must be at most half the kernel 2"),
        (window([2, 5], [2, 2], [0, 0]), "kernel 5 does not fit 4 with padding 0"),
    ] {
        refusals.push(Refusal::new(MaxPool2d(window), &[image], says));
        refusals.push(Refusal::new(AveragePool2d(window), &[image], says));
        refusals.push(Refusal::new(MaxPool2dGradient(window), &[image, image], says));
        let op = AveragePool2dGradient { window, input: shape(&[1, 1, 4, 4]) };
        refusals.push(Refusal::new(op, &[image], says));
    }
    refusals
}

/// Negative numbers, so that padding would win if it counted; in a small array all so far apart that no small step
/// changes which is the largest.
fn apart(shape: &[usize]) -> Array {
    Array::build(shape, DType::F32, |index| (index * 7919 % 1009) as f64 / 64.0 - 16.0)
}

/// A window of a plane: its rows, its columns and what a mean divides by.
type Region = (Vec<usize>, Vec<usize>, f64);

/// The windows of a plane in order, and the shape of what comes out.
struct Pooled {
    shape: Vec<usize>,
    windows: Vec<Region>,
}

fn windowed(x: &Array, window: Window) -> Pooled {
    let along = |axis: usize| {
        let size = x.shape[axis + 2] as i64;
        let [kernel, stride, padding] =
            [window.kernel[axis], window.stride[axis], window.padding[axis]].map(|value| value as i64);
        let mut parts = Vec::new();
        for index in 0.. {
            let start = index * stride - padding;
            let fits = start + kernel <= size + padding;
            // Ceil mode admits one more window, if it has anything to look at.
            let begins = window.ceil && start < size && start - stride + kernel < size + padding;
            if !fits && !begins {
                break;
            }
            let end = (start + kernel).min(size + padding);
            let inside: Vec<usize> = (start.max(0)..end.min(size)).map(|place| place as usize).collect();
            let count = if window.count_padding { (end - start) as f64 } else { inside.len() as f64 };
            parts.push((inside, count));
        }
        parts
    };
    let (rows, columns) = (along(0), along(1));
    let windows =
        rows.iter().flat_map(|(r, a)| columns.iter().map(move |(c, b)| (r.clone(), c.clone(), a * b))).collect();
    Pooled { shape: vec![x.shape[0], x.shape[1], rows.len(), columns.len()], windows }
}

fn adaptive(x: &Array, height: usize, width: usize) -> Pooled {
    let part = |index: usize, count: usize, size: usize| -> Vec<usize> {
        let start = (index as f64 * size as f64 / count as f64).floor() as usize;
        let end = ((index + 1) as f64 * size as f64 / count as f64).ceil() as usize;
        (start..end).collect()
    };
    let mut windows = Vec::new();
    for row in 0..height {
        for column in 0..width {
            let (rows, columns) = (part(row, height, x.shape[2]), part(column, width, x.shape[3]));
            let count = (rows.len() * columns.len()) as f64;
            windows.push((rows, columns, count));
        }
    }
    Pooled { shape: vec![x.shape[0], x.shape[1], height, width], windows }
}

/// Each result with its image, channel and window.
fn each(pooled: &Pooled) -> impl Iterator<Item = ([usize; 2], &Region)> {
    coordinates(&pooled.shape).map(|c| ([c[0], c[1]], &pooled.windows[c[2] * pooled.shape[3] + c[3]]))
}

/// Where the largest of a window is: the first of equals, the last NaN.
fn largest(x: &Array, [n, c]: [usize; 2], (rows, columns, _): &Region) -> usize {
    let mut best = x.index(&[n, c, rows[0], columns[0]]);
    for &row in rows {
        for &column in columns {
            let index = x.index(&[n, c, row, column]);
            if x.data[index].is_nan() || x.data[index] > x.data[best] {
                best = index;
            }
        }
    }
    best
}

fn maxima(x: &Array, pooled: &Pooled) -> Array {
    Array::f32(&pooled.shape, each(pooled).map(|(plane, window)| x.data[largest(x, plane, window)]).collect())
}

fn maxima_gradient(x: &Array, dy: &Array, pooled: &Pooled) -> Array {
    let mut dx = Array::f32(&x.shape, vec![0.0; x.data.len()]);
    for ((plane, window), dy) in each(pooled).zip(&dy.data) {
        dx.data[largest(x, plane, window)] += dy;
    }
    dx
}

fn means(x: &Array, pooled: &Pooled) -> Array {
    let mean = |([n, c], (rows, columns, count)): ([usize; 2], &Region)| {
        let sum: f64 =
            rows.iter().map(|&row| columns.iter().map(|&column| x.at(&[n, c, row, column])).sum::<f64>()).sum();
        sum / count
    };
    Array::f32(&pooled.shape, each(pooled).map(mean).collect())
}

fn means_gradient(x: &Array, dy: &Array, pooled: &Pooled) -> Array {
    let mut dx = Array::f32(&x.shape, vec![0.0; x.data.len()]);
    for (([n, c], (rows, columns, count)), dy) in each(pooled).zip(&dy.data) {
        for &row in rows {
            for &column in columns {
                let index = dx.index(&[n, c, row, column]);
                dx.data[index] += dy / count;
            }
        }
    }
    dx
}
