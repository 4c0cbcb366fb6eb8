//! The same elements elsewhere: views, copies, rows by index, the largest, images of another size.

use weft_gpu::op::{
    Assign, Concat, Copy, Expand, GatherRows, OneHot, Op, Pad, Permute, Resampling, Reshape, Resize, ResizeGradient,
    ScatterAddRows, Slice, TopK, TopKGradient,
};
use weft_gpu::{DType, Shape};

use crate::array::{Array, coordinates};
use crate::case::{Case, EXACT, Refusal, f32, of, within};

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    cases.extend(views());
    cases.extend(copies());
    cases.extend(joins());
    cases.extend(rows());
    cases.extend(tops());
    cases.extend(resizes());
    cases
}

fn shape(sizes: &[usize]) -> Shape {
    Shape::new(sizes).unwrap()
}

fn slice(starts: &[usize], sizes: &[usize], steps: &[usize]) -> Slice {
    Slice { starts: shape(starts), sizes: shape(sizes), steps: shape(steps) }
}

fn pad(before: &[usize], after: &[usize], steps: &[usize], value: f32) -> Pad {
    Pad { before: shape(before), after: shape(after), steps: shape(steps), value }
}

/// Elements of any type that differ from their neighbours.
fn varied(shape: &[usize], dtype: DType) -> Array {
    match dtype {
        DType::F32 => Array::noise(shape, 5, -3.0, 3.0),
        DType::F16 => Array::integers(shape, dtype, 6, 2000),
        DType::U8 => Array::integers(shape, dtype, 7, 256),
        DType::I32 | DType::U32 => Array::integers(shape, dtype, 8, 1 << 30),
    }
}

/// The array of a shape whose element at some coordinates is that of `x` at others.
fn rearranged(x: &Array, shape: &[usize], from: impl Fn(&[usize]) -> Vec<usize>) -> Array {
    Array::new(shape, x.dtype, coordinates(shape).map(|c| x.at(&from(&c))).collect())
}

fn views() -> Vec<Case> {
    let mut cases = Vec::new();
    let reshapes: [(&[usize], &[usize]); 7] = [
        (&[], &[1, 1]),
        (&[0, 3], &[5, 0]),
        (&[6], &[2, 3]),
        (&[4, 1, 6], &[2, 2, 3, 2]),
        (&[2, 3, 4], &[24]),
        (&[2, 3, 4], &[3, 8]),
        (&[300, 500], &[150, 1000]),
    ];
    for (from, to) in reshapes {
        for dtype in [DType::F32, DType::U8] {
            let case = Case::new(Reshape(shape(to)), &[varied(from, dtype)], EXACT, move |x| {
                vec![Array::new(to, x[0].dtype, x[0].data.clone())]
            });
            cases.push(if dtype == DType::F32 && from.len() == 3 { case.differentiated(&[0]) } else { case });
        }
    }
    let orders: [(&[usize], &[usize]); 6] = [
        (&[], &[]),
        (&[3, 0], &[1, 0]),
        (&[3, 4], &[1, 0]),
        (&[2, 3, 4, 5], &[3, 1, 0, 2]),
        (&[1, 2, 1, 3, 1, 2, 1, 2], &[7, 0, 5, 2, 3, 4, 1, 6]),
        (&[200, 300], &[1, 0]),
    ];
    for (sizes, order) in orders {
        let to: Vec<usize> = order.iter().map(|&axis| sizes[axis]).collect();
        let case = Case::new(Permute::new(order).unwrap(), &[varied(sizes, DType::F32)], EXACT, move |x| {
            vec![rearranged(&x[0], &to, |c| {
                let mut from = vec![0; c.len()];
                order.iter().zip(c).for_each(|(&axis, &c)| from[axis] = c);
                from
            })]
        });
        cases.push(if sizes.iter().product::<usize>() < 200 { case.differentiated(&[0]) } else { case });
    }
    let expansions: [(&[usize], &[usize]); 7] = [
        (&[], &[3]),
        (&[1], &[0]),
        (&[1, 0], &[4, 0]),
        (&[3, 1], &[2, 3, 4]),
        (&[4], &[3, 4]),
        (&[1, 5], &[3, 5]),
        (&[1, 300], &[300, 300]),
    ];
    for (from, to) in expansions {
        cases.push(Case::new(Expand(shape(to)), &[varied(from, DType::I32)], EXACT, move |x| {
            vec![Array::new(to, x[0].dtype, coordinates(to).map(|c| x[0].broadcast_at(&c)).collect())]
        }));
    }
    let repeated = Case::new(Expand(shape(&[2, 3])), &[varied(&[1], DType::F32)], EXACT, |x| {
        vec![Array::f32(&[2, 3], vec![x[0].data[0]; 6])]
    });
    cases.push(repeated.differentiated(&[0]));
    let slices: [(&[usize], Slice); 8] = [
        (&[], slice(&[], &[], &[])),
        (&[5], slice(&[5], &[0], &[1])),
        (&[5], slice(&[0], &[0], &[1])),
        (&[5], slice(&[4], &[1], &[1 << 39])),
        (&[7], slice(&[1], &[3], &[2])),
        (&[4, 5, 6], slice(&[1, 0, 2], &[2, 5, 2], &[2, 1, 3])),
        (&[4, 0], slice(&[1, 0], &[2, 0], &[1, 7])),
        (&[300, 400], slice(&[3, 1], &[290, 133], &[1, 3])),
    ];
    for (sizes, op) in slices {
        for dtype in [DType::F32, DType::F16] {
            let case = Case::new(op, &[varied(sizes, dtype)], EXACT, move |x| vec![sliced(&x[0], &op)]);
            let small = sizes.iter().product::<usize>() < 200;
            cases.push(if small && dtype == DType::F32 { case.differentiated(&[0]) } else { case });
        }
    }
    cases
}

fn sliced(x: &Array, op: &Slice) -> Array {
    rearranged(x, &op.sizes, |c| c.iter().enumerate().map(|(axis, &c)| op.starts[axis] + c * op.steps[axis]).collect())
}

fn copies() -> Vec<Case> {
    let mut cases = Vec::new();
    let shapes: [&[usize]; 9] =
        [&[], &[0, 3], &[1], &[7], &[3, 5, 7], &[64, 64], &[70_001], &[3, 129, 257], &[2, 3, 4, 5, 2, 3]];
    for sizes in shapes {
        for dtype in DType::ALL {
            cases.push(Case::new(Copy, &[varied(sizes, dtype)], EXACT, |x| x.to_vec()));
        }
    }
    cases.push(Case::new(Copy, &[varied(&[2, 3], DType::F32)], EXACT, |x| x.to_vec()).differentiated(&[0]));
    let special = Array::f32(&[2, 2], vec![f64::NAN, f64::INFINITY, -0.0, f64::NEG_INFINITY]);
    cases.push(Case::new(Copy, &[special], EXACT, |x| x.to_vec()));
    let assignments: [(&[usize], &[usize]); 7] = [
        (&[3, 4], &[3, 4]),
        (&[0, 4], &[1, 4]),
        (&[3, 4], &[]),
        (&[3, 4], &[4]),
        (&[2, 3, 4], &[3, 1]),
        (&[300, 301], &[300, 1]),
        (&[300, 301], &[301]),
    ];
    for (into, from) in assignments {
        for dtype in DType::ALL {
            let inputs = [Array::build(into, dtype, |_| 1.0), varied(from, dtype)];
            cases.push(Case::new(Assign, &inputs, EXACT, |x| {
                let data = coordinates(&x[0].shape).map(|c| x[1].broadcast_at(&c)).collect();
                vec![Array::new(&x[0].shape, x[0].dtype, data)]
            }));
        }
    }
    cases
}

fn joins() -> Vec<Case> {
    let mut cases = Vec::new();
    let pads: [(&[usize], Pad); 9] = [
        (&[], pad(&[], &[], &[], 1.0)),
        (&[3], pad(&[0], &[0], &[1], 1.0)),
        (&[0], pad(&[2], &[1], &[5], 1.5)),
        (&[3], pad(&[1], &[2], &[1], 0.0)),
        (&[3], pad(&[1], &[2], &[3], -7.5)),
        (&[2, 3], pad(&[1, 0], &[0, 2], &[1, 2], 300.0)),
        (&[2, 3, 4], pad(&[0, 1, 2], &[2, 1, 0], &[3, 1, 2], 9.0)),
        (&[2, 3], pad(&[1, 0], &[0, 2], &[1, 2], f32::NAN)),
        (&[3, 200, 200], pad(&[0, 1, 1], &[0, 1, 1], &[1, 1, 1], f32::NEG_INFINITY)),
    ];
    for (sizes, op) in pads {
        for dtype in DType::ALL {
            let case = Case::new(op, &[varied(sizes, dtype)], EXACT, move |x| vec![padded(&x[0], &op)]);
            let small = sizes.iter().product::<usize>() < 200 && op.value.is_finite();
            cases.push(if small && dtype == DType::F32 { case.differentiated(&[0]) } else { case });
        }
    }
    let concats: [(usize, &[&[usize]]); 7] = [
        (0, &[&[3]]),
        (0, &[&[3], &[0], &[2]]),
        (1, &[&[2, 3], &[2, 1], &[2, 4]]),
        (0, &[&[1, 3, 2], &[2, 3, 2]]),
        (1, &[&[2, 1, 2], &[2, 2, 2]]),
        (1, &[&[0, 3], &[0, 4]]),
        (1, &[&[3, 100, 70], &[3, 200, 70], &[3, 1, 70]]),
    ];
    for (axis, shapes) in concats {
        for dtype in DType::ALL {
            let inputs: Vec<Array> = shapes.iter().map(|sizes| varied(sizes, dtype)).collect();
            let case = Case::new(Concat { axis }, &inputs, EXACT, move |x| vec![joined(x, axis)]);
            let small = inputs.iter().all(|x| x.data.len() < 200);
            let all: Vec<usize> = (0..inputs.len()).collect();
            cases.push(if small && dtype == DType::F32 { case.differentiated(&all) } else { case });
        }
    }
    let many: Vec<Array> = (0..40).map(|_| varied(&[2, 2], DType::F32)).collect();
    let all: Vec<usize> = (0..40).collect();
    cases.push(Case::new(Concat { axis: 0 }, &many, EXACT, |x| vec![joined(x, 0)]).differentiated(&all));
    cases
}

fn padded(x: &Array, op: &Pad) -> Array {
    let rank = x.rank();
    let spread = |axis: usize| if x.shape[axis] == 0 { 0 } else { (x.shape[axis] - 1) * op.steps[axis] + 1 };
    let sizes: Vec<usize> = (0..rank).map(|axis| op.before[axis] + spread(axis) + op.after[axis]).collect();
    let value = match x.dtype {
        DType::F32 | DType::F16 => f64::from(op.value),
        DType::U8 => f64::from(op.value as u8),
        DType::I32 => f64::from(op.value as i32),
        DType::U32 => f64::from(op.value as u32),
    };
    Array::new(
        &sizes,
        x.dtype,
        coordinates(&sizes)
            .map(|c| {
                let from: Option<Vec<usize>> = (0..rank)
                    .map(|axis| {
                        let inner = c[axis].checked_sub(op.before[axis])?;
                        let on = inner % op.steps[axis] == 0 && inner / op.steps[axis] < x.shape[axis];
                        on.then_some(inner / op.steps[axis])
                    })
                    .collect();
                from.map_or(value, |from| x.at(&from))
            })
            .collect(),
    )
}

fn joined(inputs: &[Array], axis: usize) -> Array {
    let mut sizes = inputs[0].shape.clone();
    sizes[axis] = inputs.iter().map(|x| x.shape[axis]).sum();
    let data = coordinates(&sizes)
        .map(|mut c| {
            let mut at = 0;
            while c[axis] >= inputs[at].shape[axis] {
                c[axis] -= inputs[at].shape[axis];
                at += 1;
            }
            inputs[at].at(&c)
        })
        .collect();
    Array::new(&sizes, inputs[0].dtype, data)
}

fn rows() -> Vec<Case> {
    let mut cases = Vec::new();
    // The sizes of one row, how many there are, and the shape of the index.
    let sizes: [(&[usize], usize, &[usize]); 10] = [
        (&[], 4, &[]),
        (&[3], 5, &[]),
        (&[3], 5, &[7]),
        (&[3], 5, &[0]),
        (&[0], 5, &[4]),
        (&[], 3, &[9]),
        (&[2, 3], 4, &[3, 2]),
        (&[1], 1, &[1]),
        (&[33], 300, &[70, 5]),
        (&[40_000], 3, &[5]),
    ];
    for (row, count, index_shape) in sizes {
        for dtype in [DType::U8, DType::I32, DType::U32] {
            let index = Array::integers(index_shape, dtype, 11, count.min(250));
            let table = Array::noise(&[&[count], row].concat(), 12, -1.0, 1.0);
            let small = table.data.len() < 200;
            let gather = Case::new(GatherRows, &[table, index.clone()], EXACT, |x| vec![gathered(&x[0], &x[1])]);
            cases.push(if small { gather.differentiated(&[0]) } else { gather });
            let rows = Array::noise(&[index_shape, row].concat(), 13, -1.0, 1.0);
            let small = rows.data.len() < 200;
            let scatter = Case::new(ScatterAddRows { count }, &[rows, index.clone()], within(1e-5, 1e-6), move |x| {
                vec![scattered(&x[0], &x[1], count)]
            });
            cases.push(if small { scatter.differentiated(&[0]) } else { scatter });
            cases.push(Case::new(OneHot { classes: count }, &[index], EXACT, move |x| vec![one_hot(&x[0], count)]));
        }
    }
    for dtype in DType::ALL {
        let index = Array::integers(&[5], DType::U8, 14, 6);
        cases.push(Case::new(GatherRows, &[varied(&[6, 3], dtype), index], EXACT, |x| vec![gathered(&x[0], &x[1])]));
    }
    // A row that is not finite touches its own sum only.
    let rows = Array::f32(&[3, 2], vec![1.0, 2.0, f64::NAN, f64::INFINITY, 3.0, 4.0]);
    let index = Array::new(&[3], DType::I32, vec![2.0, 0.0, 2.0]);
    cases.push(Case::new(ScatterAddRows { count: 4 }, &[rows, index], EXACT, |x| vec![scattered(&x[0], &x[1], 4)]));
    cases
}

fn gathered(table: &Array, index: &Array) -> Array {
    let width: usize = table.shape[1..].iter().product();
    let data = index.data.iter().flat_map(|&row| &table.data[row as usize * width..][..width]).copied().collect();
    Array::new(&[&index.shape, &table.shape[1..]].concat(), table.dtype, data)
}

fn scattered(rows: &Array, index: &Array, count: usize) -> Array {
    let row = &rows.shape[index.rank()..];
    let width: usize = row.iter().product();
    let mut data = vec![0.0; count * width];
    for (at, &to) in index.data.iter().enumerate() {
        for column in 0..width {
            data[to as usize * width + column] += rows.data[at * width + column];
        }
    }
    Array::f32(&[&[count], row].concat(), data)
}

fn one_hot(index: &Array, classes: usize) -> Array {
    let hot = |&class: &f64| (0..classes).map(move |at| if at as f64 == class { 1.0 } else { 0.0 });
    Array::f32(&[&index.shape[..], &[classes]].concat(), index.data.iter().flat_map(hot).collect())
}

fn tops() -> Vec<Case> {
    let mut cases = Vec::new();
    let sizes: [(&[usize], usize); 10] = [
        (&[1], 1),
        (&[5], 5),
        (&[0, 4], 2),
        (&[3, 7], 2),
        (&[2, 3, 40], 33),
        (&[2, 50], 50),
        (&[500, 100], 5),
        (&[70_001], 40),
        (&[70_001], 7),
        (&[3, 2500], 700),
    ];
    for (sizes, count) in sizes {
        // Few enough elements are all different, by more than a finite difference.
        let x = Array::build(sizes, DType::F32, |index| f64::from((index * 389 % 1009) as f32 / 100.0));
        let small = x.data.len() < 1000;
        let case = Case::new(TopK { count }, &[x], EXACT, move |x| top(&x[0], count));
        cases.push(if small { case.differentiated(&[0]) } else { case });
    }
    // Many equals, and all that is not a number.
    for count in [3, 40] {
        let x = Array::build(&[2, 60], DType::F32, |index| match index % 7 {
            0 => f64::NAN,
            1 => f64::INFINITY,
            2 => f64::NEG_INFINITY,
            3 => 0.0,
            4 => -0.0,
            _ => 1.0,
        });
        cases.push(Case::new(TopK { count }, &[x], EXACT, move |x| top(&x[0], count)));
    }
    for (sizes, size) in [(&[2, 3][..], 5), (&[3], 1), (&[0, 2], 4), (&[2, 0], 0), (&[2000, 3], 50), (&[3, 100], 150)] {
        let indices = Array::integers(sizes, DType::U32, 22, size);
        let dy = Array::noise(sizes, 23, -1.0, 1.0);
        cases.push(Case::new(TopKGradient { size }, &[dy, indices], within(1e-6, 1e-6), move |x| {
            let count = x[0].shape[x[0].rank() - 1];
            let mut to = x[0].shape.clone();
            to[x[0].rank() - 1] = size;
            let mut dx = Array::build(&to, DType::F32, |_| 0.0);
            for (at, (&dy, &index)) in x[0].data.iter().zip(&x[1].data).enumerate() {
                dx.data[at / count * size + index as usize] += dy;
            }
            vec![dx]
        }));
    }
    cases
}

fn top(x: &Array, count: usize) -> Vec<Array> {
    let size = x.shape[x.rank() - 1];
    let mut shape = x.shape.clone();
    shape[x.rank() - 1] = count;
    let (mut values, mut indices) = (Vec::new(), Vec::new());
    for row in x.data.chunks(size) {
        let mut order: Vec<usize> = (0..size).collect();
        // Stable, so that the lower index stays first.
        order.sort_by(|&a, &b| match (row[a].is_nan(), row[b].is_nan()) {
            (false, false) => row[b].partial_cmp(&row[a]).unwrap(),
            (a, b) => b.cmp(&a),
        });
        values.extend(order[..count].iter().map(|&index| row[index]));
        indices.extend(order[..count].iter().map(|&index| index as f64));
    }
    vec![Array::f32(&shape, values), Array::new(&shape, DType::U32, indices)]
}

fn resizes() -> Vec<Case> {
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
    let u8s = |sizes: &[usize]| of(sizes, DType::U8);
    let resize = |height, width| Resize { mode: Resampling::Bilinear, height, width };
    let mut refusals = vec![
        Refusal::new(Reshape(shape(&[4])), &[f32(&[5])], "elements differs: [5] and [4]"),
        Refusal::new(Permute::new(&[1, 0]).unwrap(), &[f32(&[5])], "input 0 is [5], it must have 2 axes"),
        Refusal::new(Expand(shape(&[4])), &[f32(&[2])], "does not expand: [2] and [4]"),
        Refusal::new(Expand(shape(&[2])), &[f32(&[2, 2])], "does not expand: [2, 2] and [2]"),
        Refusal::new(Expand(shape(&[1])), &[f32(&[2])], "does not expand: [2] and [1]"),
        Refusal::new(slice(&[0], &[1], &[1]), &[f32(&[2, 2])], "must have the axes of [2, 2]"),
        Refusal::new(slice(&[0], &[1, 1], &[1, 1]), &[f32(&[2, 2])], "must have the axes of [2, 2]"),
        Refusal::new(slice(&[0], &[1], &[0]), &[f32(&[2])], "1 from 0 in steps of 0 do not fit axis 0 of [2]"),
        Refusal::new(slice(&[1], &[2], &[1]), &[f32(&[2])], "2 from 1 in steps of 1 do not fit axis 0 of [2]"),
        Refusal::new(slice(&[3], &[0], &[1]), &[f32(&[2])], "0 from 3 in steps of 1 do not fit axis 0 of [2]"),
        Refusal::new(slice(&[0], &[1 << 40], &[1 << 40]), &[f32(&[2])], "do not fit axis 0 of [2]"),
        Refusal::new(slice(&[0, 1], &[2, 2], &[1, 2]), &[f32(&[2, 3])], "do not fit axis 1 of [2, 3]"),
        Refusal::new(Copy, &[f32(&[2]), f32(&[2])], "2 inputs, it takes 1"),
        Refusal::new(Assign, &[f32(&[2]), u8s(&[2])], "input 1 is u8, not f32"),
        Refusal::new(Assign, &[f32(&[2]), f32(&[3])], "does not expand: [3] and [2]"),
        Refusal::new(Assign, &[f32(&[2]), f32(&[2, 2])], "does not expand: [2, 2] and [2]"),
        Refusal::new(pad(&[0], &[0], &[1], 0.0), &[f32(&[2, 2])], "must have the axes of [2, 2]"),
        Refusal::new(pad(&[0, 0], &[0], &[1, 1], 0.0), &[f32(&[2, 2])], "must have the axes of [2, 2]"),
        Refusal::new(pad(&[0], &[0], &[0], 0.0), &[f32(&[2])], "steps at least 1"),
        Refusal::new(pad(&[1 << 40], &[1], &[1], 0.0), &[f32(&[2])], "too large"),
        Refusal::new(pad(&[1], &[1], &[1 << 40], 0.0), &[f32(&[2])], "too large"),
        Refusal::new(Concat { axis: 0 }, &[], "0 inputs, it takes at least 1"),
        Refusal::new(Concat { axis: 0 }, &[f32(&[])], "[] has no axis 0"),
        Refusal::new(Concat { axis: 1 }, &[f32(&[2]), f32(&[2])], "[2] has no axis 1"),
        Refusal::new(Concat { axis: usize::MAX }, &[f32(&[2])], "has no axis"),
        Refusal::new(Concat { axis: 0 }, &[f32(&[2]), u8s(&[2])], "input 1 is u8, not f32"),
        Refusal::new(Concat { axis: 0 }, &[f32(&[2, 3]), f32(&[2, 4])], "beside axis 0: [2, 3] and [2, 4]"),
        Refusal::new(Concat { axis: 0 }, &[f32(&[2, 3]), f32(&[2])], "beside axis 0: [2, 3] and [2]"),
        Refusal::new(GatherRows, &[f32(&[2, 3])], "1 inputs, it takes 2"),
        Refusal::new(GatherRows, &[f32(&[]), u8s(&[3])], "input 0 is a scalar"),
        Refusal::new(GatherRows, &[f32(&[2, 3]), f32(&[3])], "input 1 is f32, not an index type"),
        Refusal::new(GatherRows, &[f32(&[0, 3]), u8s(&[3])], "row 0 is out of range, there are 0"),
        Refusal::new(GatherRows, &[f32(&[1; 8]), u8s(&[1, 1])], "make 9 axes"),
        Refusal::new(ScatterAddRows { count: 2 }, &[u8s(&[2, 3]), u8s(&[2])], "input 0 is u8, not f32"),
        Refusal::new(ScatterAddRows { count: 2 }, &[f32(&[2, 3]), f32(&[2])], "input 1 is f32, not an index type"),
        Refusal::new(ScatterAddRows { count: 2 }, &[f32(&[2, 3]), u8s(&[3])], "not one index per row: [2, 3] and [3]"),
        Refusal::new(ScatterAddRows { count: 2 }, &[f32(&[2]), u8s(&[2, 1])], "not one index per row: [2] and [2, 1]"),
        Refusal::new(ScatterAddRows { count: usize::MAX }, &[f32(&[2, 3]), u8s(&[2])], "too large"),
        Refusal::new(ScatterAddRows { count: 0 }, &[f32(&[2, 3]), u8s(&[2])], "row 0 is out of range, there are 0"),
        Refusal::new(ScatterAddRows { count: 5 }, &[f32(&[1; 8]), u8s(&[])], "make 9 axes"),
        Refusal::new(OneHot { classes: 0 }, &[u8s(&[2])], "0 classes"),
        Refusal::new(OneHot { classes: 3 }, &[f32(&[2])], "input 0 is f32, not an index type"),
        Refusal::new(OneHot { classes: usize::MAX }, &[u8s(&[2])], "too large"),
        Refusal::new(TopK { count: 0 }, &[f32(&[2])], "the 0 largest of the last axis of [2]"),
        Refusal::new(TopK { count: 3 }, &[f32(&[2])], "the 3 largest of the last axis of [2]"),
        Refusal::new(TopK { count: 1 }, &[f32(&[])], "input 0 is a scalar"),
        Refusal::new(TopK { count: 1 }, &[u8s(&[2])], "input 0 is u8, not f32"),
        Refusal::new(TopKGradient { size: 1 }, &[f32(&[2]), u8s(&[2])], "input 1 is u8, not u32"),
        Refusal::new(TopKGradient { size: 1 }, &[f32(&[2]), of(&[3], DType::U32)], "differ in shape: [2] and [3]"),
        Refusal::new(TopKGradient { size: 1 }, &[f32(&[]), of(&[], DType::U32)], "input 0 is a scalar"),
        Refusal::new(TopKGradient { size: 0 }, &[f32(&[2]), of(&[2], DType::U32)], "out of range, there are 0"),
        Refusal::new(TopKGradient { size: usize::MAX }, &[f32(&[2]), of(&[2], DType::U32)], "too large"),
        Refusal::new(resize(2, 2), &[f32(&[2, 2])], "input 0 is [2, 2], it must have 4 axes"),
        Refusal::new(resize(2, 2), &[u8s(&[1, 1, 2, 2])], "input 0 is u8, not f32"),
        Refusal::new(resize(0, 2), &[f32(&[1, 1, 2, 2])], "to 0 x 2: a side is 1 to 2147483647"),
        Refusal::new(resize(2, 2), &[f32(&[1, 1, 2, 0])], "images of [1, 1, 2, 0] to 2 x 2"),
        Refusal::new(resize(2, usize::MAX), &[f32(&[1, 1, 2, 2])], "a side is 1 to 2147483647"),
        Refusal::new(resize(1 << 30, 1 << 30), &[f32(&[1, 1, 2, 2])], "too large"),
    ];
    let gradient = ResizeGradient { mode: Resampling::Nearest, height: 0, width: 2 };
    refusals.push(Refusal::new(gradient, &[f32(&[1, 1, 2, 2])], "a side is 1 to 2147483647"));
    let no_input: [Op; 10] = [
        Reshape(shape(&[0])).into(),
        Permute::new(&[]).unwrap().into(),
        Expand(shape(&[])).into(),
        slice(&[], &[], &[]).into(),
        Copy.into(),
        pad(&[], &[], &[], 0.0).into(),
        OneHot { classes: 1 }.into(),
        TopK { count: 1 }.into(),
        resize(1, 1).into(),
        gradient.into(),
    ];
    refusals.extend(no_input.map(|op| Refusal::new(op, &[], "0 inputs, it takes 1")));
    refusals
}

#[cfg(test)]
mod on_the_cpu {
    use std::sync::Arc;

    use weft_gpu::device::cpu::Cpu;
    use weft_gpu::{Context, Crew, Error, Limits};

    use super::*;

    fn context() -> Context {
        Context::new(Arc::new(Cpu::new()), Arc::new(Crew::new(3)), Limits::default())
    }

    #[test]
    fn the_first_index_that_is_out_of_range_is_named() {
        let context = context();
        let mut index = vec![1_i32; 5000];
        index[1234] = -1;
        index[4321] = 7;
        let index = context.tensor(&[5000], &index).unwrap();
        let table = context.zeros(&[7, 64]).unwrap();
        let out_of_range = |op| Err(Error::IndexOutOfRange { op, what: "row", index: -1, count: 7 });
        for threads in [1, 3] {
            context.set_threads(threads);
            assert_eq!(table.gather_rows(&index).map(drop), out_of_range("gather-rows"));
            let rows = context.zeros(&[5000, 64]).unwrap();
            assert_eq!(rows.scatter_add_rows(&index, 7).map(drop), out_of_range("scatter-add-rows"));
            let class = Err(Error::IndexOutOfRange { op: "one-hot", what: "class", index: -1, count: 7 });
            assert_eq!(index.one_hot(7).map(drop), class);
        }
    }

    #[test]
    fn what_is_no_permutation_is_refused() {
        for order in [&[1][..], &[0, 0], &[0, 2], &[usize::MAX], &[0, 1, 2, 3, 4, 5, 6, 7, 8]] {
            assert!(Permute::new(order).is_err(), "{order:?}");
        }
    }

    /// Axes swapped of what was contiguous: blocks, strips, channels of images and what is left of them.
    #[test]
    fn copies_of_permuted_tensors_are_exact() {
        let context = context();
        let permuted: [(&[usize], &[usize]); 10] = [
            (&[16, 16], &[1, 0]),
            (&[33, 50], &[1, 0]),
            (&[300, 700], &[1, 0]),
            (&[2, 40, 41, 3], &[0, 3, 1, 2]),
            (&[2, 3, 40, 41], &[0, 2, 3, 1]),
            (&[2, 210, 200, 4], &[0, 3, 1, 2]),
            (&[2, 4, 210, 200], &[0, 2, 3, 1]),
            (&[3, 17, 5, 64], &[0, 2, 3, 1]),
            (&[20, 30, 40], &[2, 1, 0]),
            (&[5, 1, 20_000], &[2, 0, 1]),
        ];
        for (sizes, order) in permuted {
            for dtype in DType::ALL {
                let x = varied(sizes, dtype);
                let to: Vec<usize> = order.iter().map(|&axis| sizes[axis]).collect();
                let want = rearranged(&x, &to, |c| {
                    let mut from = vec![0; c.len()];
                    order.iter().zip(c).for_each(|(&axis, &c)| from[axis] = c);
                    from
                });
                for threads in [1, 3] {
                    context.set_threads(threads);
                    let copy = x.upload(&context).permute(order).unwrap().copy().unwrap();
                    assert!(Array::download(&copy) == want, "{dtype} {sizes:?} as {order:?}");
                }
            }
        }
    }

    #[test]
    fn contiguous_copies_only_what_lies_apart() {
        let context = context();
        let x = context.tensor(&[2, 3], &[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        let used = context.heap().used();
        assert_eq!(x.contiguous().unwrap().to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(context.heap().used(), used);
        let apart = x.transposed().unwrap().contiguous().unwrap();
        assert!(apart.layout().is_contiguous());
        assert_eq!(apart.to_vec::<f32>().unwrap(), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    }

    #[test]
    fn narrowing_and_joining_again_changes_nothing() {
        let context = context();
        let x = context.tensor(&[2, 5], &(0..10_u8).collect::<Vec<_>>()).unwrap();
        let (left, right) = (x.narrow(1, 0, 2).unwrap(), x.narrow(1, 2, 3).unwrap());
        let joined = context.concat(&[&left, &right], 1).unwrap();
        assert_eq!(joined.to_vec::<u8>().unwrap(), x.to_vec::<u8>().unwrap());
        assert!(x.narrow(2, 0, 1).is_err());
        assert!(x.narrow(1, 4, 2).is_err());
    }
}
