//! Element by element.

use weft_gpu::DType;
use weft_gpu::op::{
    Binary, BinaryGradient, Cast, Compare, Comparison, Select, Side, Unary, UnaryGradient, UnaryGradientFromOutput,
};

use crate::array::{Array, coordinates};
use crate::case::{Case, EXACT, ROUNDED, Refusal, Tolerance, f32, of, within};

/// Empty, one element, odd, larger than a tile, and so large that it is written around the caches.
const SHAPES: [&[usize]; 6] = [&[0, 3], &[1], &[7], &[3, 5, 7], &[70_001], &[60, 70_001]];

/// Every way in which two operands can lie to one another.
const BROADCASTS: [(&[usize], &[usize]); 13] = [
    (&[], &[]),
    (&[5], &[]),
    (&[], &[5]),
    (&[0, 4], &[4]),
    (&[7, 5], &[5]),
    (&[5], &[7, 5]),
    (&[7, 5], &[7, 1]),
    (&[7, 1], &[1, 5]),
    (&[3, 4, 5, 2], &[4, 1, 1]),
    (&[2, 3, 4], &[3, 1]),
    (&[1, 3, 1, 5], &[2, 1, 4, 1]),
    (&[300, 211], &[211]),
    (&[40, 3, 17, 19], &[3, 1, 1]),
];

const SPECIAL: [f64; 8] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1.0, -1.0, 1e-40];

/// Exactly the reference, which is rounded already and may be no f32.
const AS_IS: Tolerance = Tolerance { absolute: 1e-300, relative: 0.0 };

/// One function of one number: the exact one, where it is smooth, and how close the result is.
struct Function {
    op: Unary,
    exact: fn(f64) -> f64,
    /// Where it is defined, and within that where its gradient is compared.
    range: (f64, f64),
    smooth: (f64, f64),
    tolerance: Tolerance,
}

fn functions() -> Vec<Function> {
    let all = (-4.0, 4.0);
    let ulps = |count: f64| within(1e-45, count * 1.2e-7);
    let function = |op, exact, range, smooth, tolerance| Function { op, exact, range, smooth, tolerance };
    vec![
        function(Unary::Neg, |x| -x, all, all, EXACT),
        function(Unary::Exp, f64::exp, (-90.0, 80.0), (-2.0, 2.0), ulps(1.0)),
        function(Unary::Log, f64::ln, (1e-6, 9.0), (0.5, 4.0), ulps(1.0)),
        function(Unary::Sqrt, f64::sqrt, (0.0, 9.0), (0.5, 4.0), ROUNDED),
        function(Unary::Rsqrt, |x| 1.0 / x.sqrt(), (1e-6, 9.0), (0.5, 4.0), ulps(1.5)),
        function(Unary::Abs, f64::abs, all, (0.1, 4.0), EXACT),
        function(Unary::Sign, |x| if x == 0.0 { 0.0 } else { x.signum() }, all, (-4.0, -0.1), EXACT),
        function(Unary::Tanh, f64::tanh, (-10.0, 10.0), all, ulps(2.0)),
        function(Unary::Sigmoid, sigmoid, (-80.0, 80.0), all, ulps(3.0)),
        function(Unary::Relu, |x| x.max(0.0), all, (0.1, 4.0), EXACT),
        function(Unary::Relu, |x| x.max(0.0), all, (-4.0, -0.1), EXACT),
        function(Unary::Relu6, |x| x.clamp(0.0, 6.0), (-9.0, 9.0), (0.1, 5.9), EXACT),
        function(Unary::Relu6, |x| x.clamp(0.0, 6.0), (-9.0, 9.0), (6.1, 9.0), EXACT),
        function(Unary::Leaky { slope: 0.25 }, |x| if x > 0.0 { x } else { 0.25 * x }, all, (-4.0, -0.1), EXACT),
        function(Unary::Leaky { slope: -0.5 }, |x| if x > 0.0 { x } else { -0.5 * x }, all, (-4.0, -0.1), EXACT),
        function(Unary::Leaky { slope: -0.5 }, |x| if x > 0.0 { x } else { -0.5 * x }, all, (0.1, 4.0), EXACT),
        function(Unary::Gelu, |x| x * normal_share(x), (-9.0, 9.0), all, within(4e-7, 4e-7)),
        function(Unary::Silu, |x| x * sigmoid(x), (-80.0, 80.0), all, ulps(4.0)),
        function(Unary::HardSwish, |x| x * hard_sigmoid(x), all, (-2.9, 2.9), within(1e-7, 4e-7)),
        function(Unary::HardSwish, |x| x * hard_sigmoid(x), all, (3.1, 4.0), within(1e-7, 4e-7)),
        function(Unary::HardSigmoid, hard_sigmoid, all, (-2.9, 2.9), within(1e-7, 2e-7)),
        function(Unary::HardSigmoid, hard_sigmoid, all, (-4.0, -3.1), within(1e-7, 2e-7)),
        function(Unary::Clamp { low: -1.0, high: 2.0 }, |x| x.clamp(-1.0, 2.0), all, (-0.9, 1.9), EXACT),
        function(Unary::Clamp { low: -1.0, high: 2.0 }, |x| x.clamp(-1.0, 2.0), all, (2.1, 4.0), EXACT),
        function(Unary::Pow { exponent: 2.0 }, |x| x * x, all, all, ROUNDED),
        function(Unary::Pow { exponent: 3.0 }, |x| x.powi(3), all, all, ulps(1.0)),
        function(Unary::Pow { exponent: -0.5 }, |x| x.powf(-0.5), (1e-6, 9.0), (0.5, 4.0), ulps(1.0)),
        function(Unary::Pow { exponent: 0.0 }, |_| 1.0, all, all, EXACT),
        function(Unary::Affine { scale: 2.5, offset: -1.0 }, |x| 2.5 * x - 1.0, all, all, within(1.2e-6, 1.2e-7)),
        function(Unary::SoftThreshold { threshold: 1.0 }, soft_threshold, all, (1.1, 4.0), ROUNDED),
        function(Unary::SoftThreshold { threshold: 1.0 }, soft_threshold, all, (-0.9, 0.9), ROUNDED),
    ]
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn hard_sigmoid(x: f64) -> f64 {
    (x + 3.0).clamp(0.0, 6.0) / 6.0
}

fn soft_threshold(x: f64) -> f64 {
    x - x.clamp(-1.0, 1.0)
}

/// By the series of the error function that has no terms of different signs.
fn normal_share(x: f64) -> f64 {
    let t = x / std::f64::consts::SQRT_2;
    if t.abs() > 6.5 || t.is_nan() {
        return if t.is_nan() { t } else { 0.5 + 0.5 * t.signum() };
    }
    let (mut term, mut sum) = (t, t);
    for n in 1..400 {
        term *= 2.0 * t * t / f64::from(2 * n + 1);
        sum += term;
    }
    0.5 + 0.5 * sum * (-t * t).exp() * std::f64::consts::FRAC_2_SQRT_PI
}

/// The functions in f64.
type Exact = fn(f64) -> f64;
type Exact2 = Box<dyn Fn(f64, f64) -> f64>;
type Holds = fn(f64, f64) -> bool;

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    unary_cases(&mut cases);
    binary_cases(&mut cases);
    binary_gradient_cases(&mut cases);
    compare_cases(&mut cases);
    select_cases(&mut cases);
    cast_cases(&mut cases);
    cases
}

fn unary_cases(cases: &mut Vec<Case>) {
    for Function { op, exact, range, smooth, tolerance } in functions() {
        for shape in SHAPES.into_iter().take(if op == Unary::Neg { 6 } else { 5 }) {
            let x = Array::noise(shape, 1, range.0, range.1);
            cases.push(Case::new(op, &[x], tolerance, move |inputs| map(&inputs[0], exact)));
        }
        let x = Array::noise(&[2, 9], 3, smooth.0, smooth.1);
        cases.push(Case::new(op, std::slice::from_ref(&x), tolerance, move |i| map(&i[0], exact)).differentiated(&[0]));
        // Both gradients by a difference so small that its own error does not matter.
        let slope = move |x: f64| (exact(x + 1e-6) - exact(x - 1e-6)) / 2e-6;
        let close = within(3e-6, 3e-6);
        // The larger one takes more than the least that a GPU binds.
        for shape in [[2, 9], [9, 11]] {
            let x = Array::noise(&shape, 3, smooth.0, smooth.1);
            let dy = Array::noise(&shape, 4, -1.0, 1.0);
            let operands = [x.clone(), dy.clone()];
            let reference = move |i: &[Array]| zip(&i[0], &i[1], |x, dy| dy * slope(x));
            cases.push(Case::new(UnaryGradient(op), &operands, close, reference));
            if op.from_output() {
                // The reference goes by the input, which the output was made from.
                let y = Array::f32(&x.shape, x.data.iter().map(|&x| f64::from(exact(x) as f32)).collect());
                cases.push(Case::new(UnaryGradientFromOutput(op), &[y, dy], close, move |i| {
                    zip(&x, &i[1], |x, dy| dy * slope(x))
                }));
            }
        }
    }
    let special: [(Unary, Exact); 8] = [
        (Unary::Exp, f64::exp),
        (Unary::Tanh, f64::tanh),
        (Unary::Sigmoid, sigmoid),
        (Unary::Relu, |x| if x.is_nan() { x } else { x.max(0.0) }),
        (Unary::Relu6, |x| x.clamp(0.0, 6.0)),
        (Unary::Gelu, |x| if x == f64::NEG_INFINITY { 0.0 } else { x * normal_share(x) }),
        (Unary::Silu, |x| if x == f64::NEG_INFINITY { 0.0 } else { x * sigmoid(x) }),
        (Unary::Log, |x| if x < 0.0 { f64::NAN } else { x.ln() }),
    ];
    for (op, exact) in special {
        let x = Array::f32(&[8], SPECIAL.to_vec());
        cases.push(Case::new(op, &[x], within(1e-45, 5e-7), move |inputs| map(&inputs[0], exact)));
    }
    // Repeated and reversed as it is walked through: one axis of each kind.
    let x = Array::noise(&[3, 1, 4], 8, -1.0, 1.0);
    cases.push(Case::new(Unary::Abs, &[x], EXACT, |inputs| map(&inputs[0], f64::abs)));
}

/// A function of two numbers and where both may lie.
type Pair = (Binary, fn(f64, f64) -> f64, (f64, f64), Tolerance);

fn pairs() -> [Pair; 7] {
    let all = (-3.0, 3.0);
    [
        (Binary::Add, |a, b| a + b, all, within(4e-7, 0.0)),
        (Binary::Sub, |a, b| a - b, all, within(4e-7, 0.0)),
        (Binary::Mul, |a, b| a * b, all, ROUNDED),
        (Binary::Div, |a, b| a / b, (0.5, 3.0), ROUNDED),
        (Binary::Maximum, f64::max, all, EXACT),
        (Binary::Minimum, f64::min, all, EXACT),
        (Binary::Pow, f64::powf, (0.5, 3.0), within(0.0, 1.2e-7)),
    ]
}

fn binary_cases(cases: &mut Vec<Case>) {
    for (op, exact, (low, high), tolerance) in pairs() {
        let reference = move |inputs: &[Array]| zip(&inputs[0], &inputs[1], exact);
        for shape in SHAPES.into_iter().take(if op == Binary::Add { 6 } else { 5 }) {
            let (a, b) = (Array::noise(shape, 1, low, high), Array::noise(shape, 2, low, high));
            cases.push(Case::new(op, &[a, b], tolerance, reference));
        }
        for (a, b) in BROADCASTS {
            let (a, b) = (Array::noise(a, 1, low, high), Array::noise(b, 2, low, high));
            let small = a.data.len().max(b.data.len()) < 200;
            let case = Case::new(op, &[a, b], tolerance, reference);
            cases.push(if small { case.differentiated(&[0, 1]) } else { case });
        }
    }
    // Broadcast and so large that it is written around the caches.
    let (a, b) = (Array::noise(&[4200, 1001], 1, -1.0, 1.0), Array::noise(&[4200, 1], 2, -1.0, 1.0));
    cases.push(Case::new(Binary::Mul, &[a, b], ROUNDED, |i| zip(&i[0], &i[1], |a, b| a * b)));
    let nan_wins = |larger: bool| {
        move |a: f64, b: f64| {
            if a.is_nan() || b.is_nan() {
                f64::NAN
            } else if (a > b) == larger {
                a
            } else {
                b
            }
        }
    };
    let exact: [(Binary, Exact2); 6] = [
        (Binary::Add, Box::new(|a, b| a + b)),
        (Binary::Mul, Box::new(|a, b| a * b)),
        (Binary::Div, Box::new(|a, b| a / b)),
        (Binary::Pow, Box::new(f64::powf)),
        (Binary::Maximum, Box::new(nan_wins(true))),
        (Binary::Minimum, Box::new(nan_wins(false))),
    ];
    for (op, exact) in exact {
        // 1e-40 as an f32, so that its powers are those of the number that is there.
        let special = SPECIAL.map(|x| f64::from(x as f32)).to_vec();
        let (a, b) = (Array::f32(&[8, 1], special.clone()), Array::f32(&[8], special));
        cases.push(Case::new(op, &[a, b], within(2e-45, 1.2e-7), move |i| zip(&i[0], &i[1], &exact)));
    }
}

fn binary_gradient_cases(cases: &mut Vec<Case>) {
    for (of, exact, (low, high), _) in pairs() {
        for side in [Side::First, Side::Second] {
            for (a, b) in BROADCASTS.into_iter().take(11) {
                let (a, b) = (Array::noise(a, 1, low, high), Array::noise(b, 2, low, high));
                let dy = Array::noise(&broadcast(&a.shape, &b.shape), 3, -1.0, 1.0);
                let slope = move |a: f64, b: f64| match side {
                    Side::First => (exact(a + 1e-6, b) - exact(a - 1e-6, b)) / 2e-6,
                    Side::Second => (exact(a, b + 1e-6) - exact(a, b - 1e-6)) / 2e-6,
                };
                cases.push(Case::new(BinaryGradient { of, side }, &[a, b, dy], within(1e-5, 1e-5), move |i| {
                    zip(&zip(&i[0], &i[1], slope)[0], &i[2], |slope, dy| slope * dy)
                }));
            }
        }
    }
    // Ties, and the base 0.
    let ones = |data: [f64; 3]| Array::f32(&[3], data.to_vec());
    let known = [
        (Binary::Maximum, [1.0, 2.0, 3.0], [1.0, 1.0, 4.0], [1.0, 2.0, 0.0], [1.0, 0.0, 2.0]),
        (Binary::Minimum, [1.0, 2.0, 3.0], [1.0, 1.0, 4.0], [1.0, 0.0, 2.0], [1.0, 2.0, 0.0]),
        (Binary::Pow, [0.0, 0.0, 5.0], [2.0, 1.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 2.0 * 5.0_f64.ln()]),
    ];
    for (of, a, b, first, second) in known {
        for (side, want) in [(Side::First, first), (Side::Second, second)] {
            let inputs = [ones(a), ones(b), ones([2.0; 3])];
            cases.push(Case::new(BinaryGradient { of, side }, &inputs, ROUNDED, move |_| vec![ones(want)]));
        }
    }
}

fn compare_cases(cases: &mut Vec<Case>) {
    let comparisons: [(Comparison, Holds); 6] = [
        (Comparison::Eq, |a, b| a == b),
        (Comparison::Ne, |a, b| a != b),
        (Comparison::Lt, |a, b| a < b),
        (Comparison::Le, |a, b| a <= b),
        (Comparison::Gt, |a, b| a > b),
        (Comparison::Ge, |a, b| a >= b),
    ];
    for (comparison, exact) in comparisons {
        let reference =
            move |i: &[Array]| vec![zip_as(&i[0], &i[1], DType::U8, |a, b| f64::from(u8::from(exact(a, b))))];
        for dtype in DType::ALL {
            for (a, b) in [(&[0, 3][..], &[3][..]), (&[7, 5], &[5]), (&[4], &[]), (&[3, 1], &[1, 6]), (&[70_001], &[1])]
            {
                let (a, b) = (Array::integers(a, dtype, 1, 4), Array::integers(b, dtype, 2, 4));
                cases.push(Case::new(Compare(comparison), &[a, b], EXACT, reference));
            }
        }
        let (a, b) = (Array::f32(&[8, 1], SPECIAL.to_vec()), Array::f32(&[8], SPECIAL.to_vec()));
        cases.push(Case::new(Compare(comparison), &[a, b], EXACT, reference));
    }
}

fn select_cases(cases: &mut Vec<Case>) {
    let reference = |i: &[Array]| {
        let shape = broadcast(&i[0].shape, &broadcast(&i[1].shape, &i[2].shape));
        let data = coordinates(&shape)
            .map(|c| if i[0].broadcast_at(&c) != 0.0 { i[1].broadcast_at(&c) } else { i[2].broadcast_at(&c) })
            .collect();
        vec![Array::new(&shape, i[1].dtype, data)]
    };
    let shapes: [[&[usize]; 3]; 9] = [
        [&[0], &[0], &[0]],
        [&[3, 4], &[3, 4], &[3, 4]],
        [&[3, 4], &[3, 4], &[]],
        [&[3, 4], &[], &[3, 4]],
        [&[3, 1], &[3, 4], &[3, 4]],
        [&[4], &[3, 1], &[3, 1]],
        [&[2, 1, 1], &[1, 3, 1], &[1, 1, 4]],
        [&[70_001], &[70_001], &[1]],
        [&[1], &[5], &[5]],
    ];
    for dtype in DType::ALL {
        for [condition, a, b] in shapes {
            let inputs = [
                Array::integers(condition, DType::U8, 5, 3),
                Array::integers(a, dtype, 6, 200),
                Array::integers(b, dtype, 7, 200),
            ];
            let small = dtype == DType::F32 && inputs.iter().all(|input| input.data.len() < 200);
            let case = Case::new(Select, &inputs, EXACT, reference);
            cases.push(if small { case.differentiated(&[1, 2]) } else { case });
        }
    }
}

/// A number as it is when written into a type.
fn as_type(x: f64, dtype: DType) -> f64 {
    let integer = |low: f64, high: f64| if x.is_nan() { 0.0 } else { x.trunc().clamp(low, high) };
    match dtype {
        DType::F32 => f64::from(x as f32),
        DType::F16 => half::f16::from_f64(x).to_f64(),
        DType::U8 => integer(0.0, 255.0),
        DType::I32 => integer(f64::from(i32::MIN), f64::from(i32::MAX)),
        DType::U32 => integer(0.0, f64::from(u32::MAX)),
    }
}

fn cast_cases(cases: &mut Vec<Case>) {
    for from in DType::ALL {
        for to in DType::ALL {
            let reference = move |i: &[Array]| vec![Array::build(&i[0].shape, to, |e| as_type(i[0].data[e], to))];
            for shape in [&[0, 3][..], &[1], &[3, 5], &[70_001]] {
                let x = Array::noise(shape, 11, -400.0, 400.0);
                let x = Array::build(shape, from, |element| as_type(x.data[element], from));
                cases.push(Case::new(Cast(to), &[x], AS_IS, reference));
            }
            let large = [1e30, -1e30, 3e9, -3e9, 70_000.0, 65_519.0, 1e-5, 1e-8, 16_777_217.0, 255.9, -0.9, 4.3e9];
            let special: Vec<f64> = large.into_iter().chain(SPECIAL).map(|x| as_type(x, from)).collect();
            cases.push(Case::new(Cast(to), &[Array::new(&[20], from, special)], AS_IS, reference));
        }
    }
    let x = Array::noise(&[3, 5], 11, -4.0, 4.0);
    cases.push(Case::new(Cast(DType::F32), &[x], EXACT, |i| vec![i[0].clone()]).differentiated(&[0]));
}

pub fn refusals() -> Vec<Refusal> {
    let pair = [f32(&[2]), f32(&[2])];
    let gradient = BinaryGradient { of: Binary::Div, side: Side::First };
    let clamp = |low, high| Unary::Clamp { low, high };
    let nan = f32::NAN;
    vec![
        Refusal::new(Unary::Neg, &[], "`neg`: 0 inputs, it takes 1"),
        Refusal::new(Unary::Neg, &pair, "2 inputs, it takes 1"),
        Refusal::new(Unary::Neg, &[of(&[2], DType::U8)], "input 0 is u8, not f32"),
        Refusal::new(clamp(2.0, 1.0), &[f32(&[2])], "`clamp`: low 2 must be at most high 1"),
        Refusal::new(clamp(nan, 1.0), &[f32(&[2])], "must be at most"),
        Refusal::new(clamp(0.0, nan), &[f32(&[2])], "must be at most"),
        Refusal::new(Unary::SoftThreshold { threshold: -1.0 }, &[f32(&[2])], "threshold -1 must not be negative"),
        Refusal::new(Unary::SoftThreshold { threshold: nan }, &[f32(&[2])], "must not be negative"),
        Refusal::new(Unary::Leaky { slope: nan }, &[f32(&[2])], "`leaky`: the slope is NaN"),
        Refusal::new(Unary::Pow { exponent: nan }, &[f32(&[2])], "`pow`: the exponent is NaN"),
        Refusal::new(Unary::Affine { scale: nan, offset: 0.0 }, &[f32(&[2])], "must be numbers"),
        Refusal::new(Unary::Affine { scale: 1.0, offset: nan }, &[f32(&[2])], "must be numbers"),
        Refusal::new(UnaryGradient(Unary::Log), &[f32(&[2])], "1 inputs, it takes 2"),
        Refusal::new(UnaryGradient(Unary::Log), &[f32(&[2]), f32(&[3])], "differ in shape: [2] and [3]"),
        Refusal::new(UnaryGradient(Unary::Log), &[f32(&[2]), of(&[2], DType::F16)], "input 1 is f16, not f32"),
        Refusal::new(UnaryGradient(clamp(2.0, 1.0)), &pair, "`unary-gradient`: low 2 must be at most high 1"),
        Refusal::new(UnaryGradientFromOutput(Unary::Exp), &[f32(&[2])], "1 inputs, it takes 2"),
        Refusal::new(UnaryGradientFromOutput(Unary::Exp), &[f32(&[2]), f32(&[3])], "differ in shape"),
        Refusal::new(UnaryGradientFromOutput(Unary::Log), &pair, "the gradient of `log` needs its input"),
        Refusal::new(UnaryGradientFromOutput(Unary::Leaky { slope: -1.0 }), &pair, "needs its input"),
        Refusal::new(Binary::Add, &[f32(&[2])], "`add`: 1 inputs, it takes 2"),
        Refusal::new(Binary::Add, &[f32(&[2, 3]), f32(&[4])], "do not broadcast: [2, 3] and [4]"),
        Refusal::new(Binary::Add, &[f32(&[2]), of(&[2], DType::I32)], "input 1 is i32, not f32"),
        Refusal::new(Binary::Mul, &[f32(&[0, 3]), f32(&[2, 3])], "do not broadcast: [0, 3] and [2, 3]"),
        Refusal::new(Binary::Mul, &[f32(&[1 << 21, 1]), f32(&[1 << 21])], "do not broadcast"),
        Refusal::new(gradient, &pair, "`binary-gradient`: 2 inputs, it takes 3"),
        Refusal::new(gradient, &[f32(&[2, 1]), f32(&[3]), f32(&[3])], "result's shape: [3] and [2, 3]"),
        Refusal::new(gradient, &[f32(&[2]), f32(&[3]), f32(&[3])], "do not broadcast"),
        Refusal::new(Compare(Comparison::Lt), &[f32(&[2])], "`less`: 1 inputs, it takes 2"),
        Refusal::new(Compare(Comparison::Eq), &[f32(&[2]), of(&[2], DType::U8)], "`equal`: input 1 is u8, not f32"),
        Refusal::new(Compare(Comparison::Eq), &[f32(&[2]), f32(&[3])], "do not broadcast: [2] and [3]"),
        Refusal::new(Select, &pair, "`select`: 2 inputs, it takes 3"),
        Refusal::new(Select, &[f32(&[2]), f32(&[2]), f32(&[2])], "input 0 is f32, not u8"),
        Refusal::new(Select, &[of(&[2], DType::U8), f32(&[2]), of(&[2], DType::U8)], "input 2 is u8, not f32"),
        Refusal::new(Select, &[of(&[4], DType::U8), f32(&[2]), f32(&[2])], "do not broadcast"),
        Refusal::new(Cast(DType::U8), &pair, "`cast`: 2 inputs, it takes 1"),
    ]
}

fn map(x: &Array, f: impl Fn(f64) -> f64) -> Vec<Array> {
    vec![Array::f32(&x.shape, x.data.iter().map(|&x| f(x)).collect())]
}

fn zip(a: &Array, b: &Array, f: impl Fn(f64, f64) -> f64) -> Vec<Array> {
    vec![zip_as(a, b, DType::F32, f)]
}

fn zip_as(a: &Array, b: &Array, dtype: DType, f: impl Fn(f64, f64) -> f64) -> Array {
    let shape = broadcast(&a.shape, &b.shape);
    if a.shape == b.shape {
        return Array::new(&shape, dtype, a.data.iter().zip(&b.data).map(|(&a, &b)| f(a, b)).collect());
    }
    Array::new(&shape, dtype, coordinates(&shape).map(|c| f(a.broadcast_at(&c), b.broadcast_at(&c))).collect())
}

fn broadcast(a: &[usize], b: &[usize]) -> Vec<usize> {
    let rank = a.len().max(b.len());
    let size = |shape: &[usize], axis: usize| (axis + shape.len()).checked_sub(rank).map_or(1, |axis| shape[axis]);
    (0..rank).map(|axis| if size(a, axis) == 1 { size(b, axis) } else { size(a, axis) }).collect()
}
