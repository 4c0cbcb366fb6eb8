//! Many elements to one.

use weft_gpu::op::{ArgReduce, Extreme, Reduce, Reducer};
use weft_gpu::{Axes, DType};

use crate::array::{Array, coordinates};
use crate::case::{Case, EXACT, Refusal, Tolerance, f32, of, within};

const REDUCERS: [Reducer; 7] = [
    Reducer::Sum,
    Reducer::Mean,
    Reducer::Max,
    Reducer::Min,
    Reducer::SumSquares,
    Reducer::Variance { correction: 0 },
    Reducer::Variance { correction: 1 },
];

/// Shapes and axes: all, rows, columns, both ends, the middle, more alternations than any kernel takes at once, none,
/// sizes of one, and larger than a tile each way.
const SHAPES: [(&[usize], &[usize]); 22] = [
    (&[], &[]),
    (&[1], &[0]),
    (&[7], &[0]),
    (&[3, 5], &[]),
    (&[3, 5], &[0, 1]),
    (&[3, 5], &[1]),
    (&[3, 5], &[0]),
    (&[4, 3, 5], &[1]),
    (&[4, 3, 5], &[0, 2]),
    (&[2, 3, 4, 5], &[0, 2, 3]),
    (&[2, 3, 4, 5], &[1, 3]),
    (&[2, 3, 4, 5], &[0, 2]),
    (&[2, 3, 2, 2, 3], &[1, 3]),
    (&[2, 2, 3, 2, 2, 3], &[0, 2, 4]),
    (&[1, 6, 1, 2], &[0, 1]),
    (&[0, 4], &[1]),
    (&[70_001], &[0]),
    (&[2, 140_000], &[1]),
    (&[1_031, 97], &[1]),
    (&[1_031, 97], &[0]),
    (&[3, 700, 50], &[1]),
    (&[9, 2_100], &[0]),
];

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for reducer in REDUCERS {
        for (shape, axes) in SHAPES {
            for keep in [false, true] {
                let x = Array::noise(shape, 1, -1.0, 3.0);
                let few = x.data.len() < 200;
                // The variance of one element, less one, is not a number.
                let defined = axes.iter().map(|&axis| shape[axis]).product::<usize>() > 1;
                let op = Reduce { reducer, axes: Axes::new(axes).unwrap(), keep };
                let case = Case::new(op, &[x], tolerance(reducer, shape, axes), move |i| vec![reduce(&op, &i[0])]);
                let smooth = few && (defined || !matches!(reducer, Reducer::Variance { .. }));
                cases.push(if smooth { case.differentiated(&[0]) } else { case });
            }
        }
        special_cases(reducer, &mut cases);
    }
    large_cases(&mut cases);
    arg_cases(&mut cases);
    cases
}

/// Terms are at most 3 in size, and 9 when squared: sums are within a millionth of the sum of these.
fn tolerance(reducer: Reducer, shape: &[usize], axes: &[usize]) -> Tolerance {
    let count = axes.iter().map(|&axis| shape[axis]).product::<usize>() as f64;
    match reducer {
        Reducer::Sum => within(count * 1e-6, 1.2e-7),
        Reducer::Mean => within(1e-6, 1.2e-7),
        Reducer::Max | Reducer::Min => EXACT,
        Reducer::SumSquares => within(0.0, 1e-6),
        Reducer::Variance { .. } => within(1e-12, 2e-6),
    }
}

/// Nothing, NaN and infinities.
fn special_cases(reducer: Reducer, cases: &mut Vec<Case>) {
    let op = |axes: &[usize]| Reduce { reducer, axes: Axes::new(axes).unwrap(), keep: false };
    if !matches!(reducer, Reducer::Max | Reducer::Min) {
        for (shape, axes) in [(&[0][..], &[0][..]), (&[3, 0, 2], &[1]), (&[0, 2], &[0, 1])] {
            let op = op(axes);
            cases.push(Case::new(op, &[Array::noise(shape, 1, 0.0, 1.0)], EXACT, move |i| vec![reduce(&op, &i[0])]));
        }
    }
    if !matches!(reducer, Reducer::Variance { .. }) {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            for axes in [&[0][..], &[1], &[0, 1]] {
                let mut x = Array::noise(&[40, 50], 2, 0.0, 1.0);
                x.data[77] = value;
                let op = op(axes);
                cases.push(Case::new(op, &[x], within(1e-3, 1e-6), move |i| vec![reduce(&op, &i[0])]));
            }
        }
    }
    // Extremes that several elements share: each has its part of the gradient.
    if matches!(reducer, Reducer::Max | Reducer::Min) {
        let x = Array::f32(&[2, 4], vec![1.0, 3.0, 3.0, 2.0, -1.0, -1.0, -1.0, -1.0]);
        let op = op(&[1]);
        cases.push(Case::new(op, &[x], EXACT, move |i| vec![reduce(&op, &i[0])]));
    }
}

/// Sums of so many elements that a sum in f32 would be off by far more, and far from zero.
fn large_cases(cases: &mut Vec<Case>) {
    let case = |reducer, shape: &[usize], axes: &[usize], (low, high): (f64, f64), tolerance| {
        let op = Reduce { reducer, axes: Axes::new(axes).unwrap(), keep: false };
        Case::new(op, &[Array::noise(shape, 5, low, high)], tolerance, move |i| vec![reduce(&op, &i[0])])
    };
    let rounded = within(0.0, 3e-7);
    cases.push(case(Reducer::Sum, &[2_000_003], &[0], (0.0, 1.0), rounded));
    cases.push(case(Reducer::Mean, &[500_009, 2], &[0], (0.0, 1.0), rounded));
    cases.push(case(Reducer::SumSquares, &[700_001], &[0], (0.0, 1.0), rounded));
    cases.push(case(Reducer::Sum, &[40, 3, 61, 59], &[0, 2, 3], (0.0, 1.0), rounded));
    // The mean is a thousand deviations away: squares would leave three digits.
    let variance = Reducer::Variance { correction: 1 };
    cases.push(case(variance, &[300_001], &[0], (1_000.0, 1_001.0), within(0.0, 2e-5)));
    cases.push(case(variance, &[30_001, 5], &[0], (1_000.0, 1_001.0), within(0.0, 2e-5)));
}

fn arg_cases(cases: &mut Vec<Case>) {
    let shapes: [(&[usize], usize); 11] = [
        (&[1], 0),
        (&[9], 0),
        (&[3, 5], 0),
        (&[3, 5], 1),
        (&[4, 3, 5], 1),
        (&[0, 3], 1),
        (&[2, 1, 3], 1),
        (&[150_001], 0),
        (&[1_031, 97], 0),
        (&[1_031, 97], 1),
        (&[3, 700, 50], 1),
    ];
    for extreme in [Extreme::Max, Extreme::Min] {
        for (shape, axis) in shapes {
            for (keep, kinds) in [(false, 1 << 20), (true, 3)] {
                // Few kinds of numbers have many ties, of which the first is wanted.
                let x = Array::integers(shape, DType::F32, 4, kinds);
                let op = ArgReduce { extreme, axis, keep };
                cases.push(Case::new(op, &[x], EXACT, move |i| vec![arg_reduce(&op, &i[0])]));
            }
        }
        for axis in [0, 1] {
            let mut x = Array::noise(&[300, 40], 2, 0.0, 1.0);
            for (index, value) in [(81, f64::NAN), (9_081, f64::NAN), (5, f64::INFINITY), (6, f64::NEG_INFINITY)] {
                x.data[index] = value;
            }
            let op = ArgReduce { extreme, axis, keep: false };
            cases.push(Case::new(op, &[x], EXACT, move |i| vec![arg_reduce(&op, &i[0])]));
        }
    }
}

pub fn refusals() -> Vec<Refusal> {
    let reduce = |reducer, axes: &[usize]| Reduce { reducer, axes: Axes::new(axes).unwrap(), keep: false };
    let arg = |axis| ArgReduce { extreme: Extreme::Max, axis, keep: false };
    let mut refusals = vec![
        Refusal::new(reduce(Reducer::Max, &[1]), &[f32(&[3, 0])], "`max`: there is none of nothing: [3, 0]"),
        Refusal::new(reduce(Reducer::Min, &[0]), &[f32(&[0])], "`min`: there is none of nothing: [0]"),
        Refusal::new(arg(0), &[], "`arg-max`: 0 inputs, it takes 1"),
        Refusal::new(arg(0), &[of(&[2], DType::I32)], "input 0 is i32, not f32"),
        Refusal::new(arg(1), &[f32(&[3])], "[3] has no axis 1"),
        Refusal::new(arg(usize::MAX), &[f32(&[3])], "has no axis"),
        Refusal::new(arg(1), &[f32(&[3, 0])], "axis 1 of [3, 0] is empty"),
        Refusal::new(ArgReduce { extreme: Extreme::Min, axis: 0, keep: true }, &[f32(&[0])], "`arg-min`: axis 0"),
    ];
    for reducer in REDUCERS {
        refusals.push(Refusal::new(reduce(reducer, &[]), &[], "0 inputs, it takes 1"));
        refusals.push(Refusal::new(reduce(reducer, &[0]), &[of(&[2], DType::U8)], "input 0 is u8, not f32"));
        refusals.push(Refusal::new(reduce(reducer, &[0, 2]), &[f32(&[2, 3])], "[2, 3] has no axis 2"));
    }
    refusals
}

/// The elements that each result is made of, in order, under the shape of the results.
fn gathered(x: &Array, axes: Axes, keep: bool) -> (Vec<usize>, Vec<Vec<f64>>) {
    let kept: Vec<usize> = (0..x.rank()).filter(|&axis| !axes.contains(axis)).collect();
    let sizes: Vec<usize> = kept.iter().map(|&axis| x.shape[axis]).collect();
    let mut groups = vec![Vec::new(); sizes.iter().product()];
    for (element, at) in coordinates(&x.shape).enumerate() {
        let group = kept.iter().fold(0, |index, &axis| index * x.shape[axis] + at[axis]);
        groups[group].push(x.data[element]);
    }
    let with_ones = (0..x.rank()).map(|axis| if axes.contains(axis) { 1 } else { x.shape[axis] }).collect();
    (if keep { with_ones } else { sizes }, groups)
}

fn reduce(op: &Reduce, x: &Array) -> Array {
    let (shape, groups) = gathered(x, op.axes, op.keep);
    let extreme = |x: &[f64], pick: fn(f64, f64) -> f64| {
        x.iter().copied().reduce(|a, b| if a.is_nan() || b.is_nan() { f64::NAN } else { pick(a, b) }).unwrap()
    };
    let one = |x: &Vec<f64>| {
        let count = x.len() as f64;
        let mean = x.iter().sum::<f64>() / count;
        match op.reducer {
            Reducer::Sum => x.iter().sum(),
            Reducer::Mean => mean,
            Reducer::Max => extreme(x, f64::max),
            Reducer::Min => extreme(x, f64::min),
            Reducer::SumSquares => x.iter().map(|x| x * x).sum(),
            Reducer::Variance { correction } if count <= f64::from(correction) => f64::NAN,
            Reducer::Variance { correction } => {
                x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (count - f64::from(correction))
            }
        }
    };
    Array::f32(&shape, groups.iter().map(one).collect())
}

fn arg_reduce(op: &ArgReduce, x: &Array) -> Array {
    let (shape, groups) = gathered(x, Axes::new(&[op.axis]).unwrap(), op.keep);
    let beyond = |x: f64, than: f64| match op.extreme {
        _ if than.is_nan() => false,
        _ if x.is_nan() => true,
        Extreme::Max => x > than,
        Extreme::Min => x < than,
    };
    let one = |x: &Vec<f64>| (1..x.len()).fold(0, |best, at| if beyond(x[at], x[best]) { at } else { best }) as f64;
    Array::new(&shape, DType::U32, groups.iter().map(one).collect())
}
