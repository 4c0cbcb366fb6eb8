//! Images of another size.

use weft_gpu::DType;
use weft_gpu::op::{Resampling, Resize, ResizeGradient};

use crate::array::{Array, coordinates};
use crate::case::{Case, EXACT, Refusal, f32, of, within};

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let sizes: [(&[usize], usize, usize); 11] = [
        (&[1, 1, 1, 1], 1, 1),
        (&[1, 1, 1, 1], 3, 2),
        (&[0, 2, 3, 4], 6, 8),
        (&[1, 2, 3, 4], 3, 4),
        (&[2, 1, 3, 4], 6, 8),
        (&[1, 2, 4, 6], 2, 3),
        (&[1, 1, 5, 3], 3, 7),
        (&[1, 1, 2, 9], 11, 2),
        (&[2, 3, 64, 48], 100, 33),
        (&[1, 1, 300, 200], 224, 224),
        (&[1, 3, 100, 90], 260, 301),
    ];
    for (sizes, height, width) in sizes {
        for mode in [Resampling::Nearest, Resampling::Bilinear] {
            let tolerance = if mode == Resampling::Nearest { EXACT } else { within(5e-7, 1e-6) };
            let x = Array::noise(sizes, 31, -1.0, 1.0);
            let small = x.data.len() < 100;
            let case = Case::new(Resize { mode, height, width }, &[x], tolerance, move |x| {
                vec![resized(&x[0], mode, height, width)]
            });
            cases.push(if small { case.differentiated(&[0]) } else { case });
            let dy = Array::noise(&[sizes[0], sizes[1], height, width], 32, -1.0, 1.0);
            let gradient = ResizeGradient { mode, height: sizes[2], width: sizes[3] };
            // Shrunk images: a pixel gets the sum of many.
            cases.push(Case::new(gradient, &[dy], within(1e-5, 1e-5), move |x| {
                vec![resized_gradient(&x[0], mode, sizes[2], sizes[3])]
            }));
        }
    }
    // At the same size a neighbour weighs nothing, even if it is not finite.
    let x = Array::f32(&[1, 1, 2, 3], vec![1.0, f64::INFINITY, 2.0, f64::NAN, 3.0, 4.0]);
    let same = Resize { mode: Resampling::Bilinear, height: 2, width: 3 };
    cases.push(Case::new(same, &[x], EXACT, |x| x.to_vec()));
    cases
}

/// The pixels that one comes from and what they weigh.
fn sources(mode: Resampling, from: usize, to: usize, index: usize) -> Vec<(usize, f64)> {
    match mode {
        Resampling::Nearest => vec![(index * from / to, 1.0)],
        Resampling::Bilinear => {
            let place = ((index as f64 + 0.5) * from as f64 / to as f64 - 0.5).max(0.0);
            let (near, weight) = (place.floor() as usize, place.fract());
            vec![(near, 1.0 - weight), ((near + 1).min(from - 1), weight)]
        }
    }
}

fn resized(x: &Array, mode: Resampling, height: usize, width: usize) -> Array {
    let to = [x.shape[0], x.shape[1], height, width];
    let data = coordinates(&to)
        .map(|c| {
            let mut sum = 0.0;
            for (row, row_weight) in sources(mode, x.shape[2], height, c[2]) {
                for (column, weight) in sources(mode, x.shape[3], width, c[3]) {
                    sum += row_weight * weight * x.at(&[c[0], c[1], row, column]);
                }
            }
            sum
        })
        .collect();
    Array::f32(&to, data)
}

fn resized_gradient(dy: &Array, mode: Resampling, height: usize, width: usize) -> Array {
    let mut dx = Array::build(&[dy.shape[0], dy.shape[1], height, width], DType::F32, |_| 0.0);
    for c in coordinates(&dy.shape) {
        for (row, row_weight) in sources(mode, height, dy.shape[2], c[2]) {
            for (column, weight) in sources(mode, width, dy.shape[3], c[3]) {
                let place = dx.index(&[c[0], c[1], row, column]);
                dx.data[place] += row_weight * weight * dy.at(&c);
            }
        }
    }
    dx
}

pub fn refusals() -> Vec<Refusal> {
    let resize = |height, width| Resize { mode: Resampling::Bilinear, height, width };
    let gradient = ResizeGradient { mode: Resampling::Nearest, height: 0, width: 2 };
    vec![
        Refusal::new(resize(2, 2), &[f32(&[2, 2])], "input 0 is [2, 2], it must have 4 axes"),
        Refusal::new(resize(2, 2), &[of(&[1, 1, 2, 2], DType::U8)], "input 0 is u8, not f32"),
        Refusal::new(resize(0, 2), &[f32(&[1, 1, 2, 2])], "to 0 x 2: a side is 1 to 2147483647"),
        Refusal::new(resize(2, 2), &[f32(&[1, 1, 2, 0])], "images of [1, 1, 2, 0] to 2 x 2"),
        Refusal::new(resize(2, usize::MAX), &[f32(&[1, 1, 2, 2])], "a side is 1 to 2147483647"),
        Refusal::new(resize(1 << 30, 1 << 30), &[f32(&[1, 1, 2, 2])], "too large"),
        Refusal::new(gradient, &[f32(&[1, 1, 2, 2])], "a side is 1 to 2147483647"),
        Refusal::new(resize(1, 1), &[], "0 inputs, it takes 1"),
        Refusal::new(gradient, &[], "0 inputs, it takes 1"),
    ]
}
