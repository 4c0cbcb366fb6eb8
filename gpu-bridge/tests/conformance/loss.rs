//! Losses, each computed together with its gradient.

use weft_gpu::DType;
use weft_gpu::op::{Loss, LossKind, Reduction};

use crate::array::Array;
use crate::case::{Case, Refusal, Tolerance, f32, of, within};

/// The loss is summed in f64, but its terms and the gradient are f32.
const CLOSE: Tolerance = within(3e-7, 2e-6);

const LABELLED: [LossKind; 4] = [
    LossKind::SoftmaxCrossEntropy { smoothing: 0.0 },
    LossKind::SoftmaxCrossEntropy { smoothing: 0.1 },
    LossKind::SoftmaxCrossEntropy { smoothing: 1.0 },
    LossKind::Nll,
];

const ELEMENTWISE: [LossKind; 3] = [LossKind::BinaryCrossEntropyWithLogits, LossKind::Hinge, LossKind::Mse];

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for reduction in [Reduction::Mean, Reduction::Sum] {
        for kind in LABELLED {
            let op = Loss { kind, reduction };
            for (index, [rows, classes]) in
                [[1, 1], [3, 5], [64, 10], [7, 33], [300, 1000], [5000, 3], [0, 4]].into_iter().enumerate()
            {
                let x = Array::noise(&[rows, classes], 1, -4.0, 4.0);
                let dtype = [DType::U8, DType::I32, DType::U32][index % 3];
                let labels = Array::integers(&[rows], dtype, 2, classes.min(256));
                let wanted: &[usize] = if (2..50).contains(&x.data.len()) { &[0] } else { &[] };
                cases.push(
                    Case::new(op, &[x, labels], CLOSE, move |x| labelled(op, &x[0], &x[1])).differentiated(wanted),
                );
            }
        }
        for kind in ELEMENTWISE {
            let op = Loss { kind, reduction };
            for shape in [&[] as &[usize], &[1], &[3, 7], &[2, 3, 5, 4], &[70_001], &[0, 3]] {
                let x = Array::noise(shape, 1, -4.0, 4.0);
                let t = targets(kind, shape);
                let wanted: &[usize] = if (1..50).contains(&x.data.len()) { &[0] } else { &[] };
                cases
                    .push(Case::new(op, &[x, t], CLOSE, move |x| elementwise(op, &x[0], &x[1])).differentiated(wanted));
            }
        }
    }
    cases.extend(special_cases());
    cases
}

fn targets(kind: LossKind, shape: &[usize]) -> Array {
    let mut targets = Array::noise(shape, 5, 0.0, 1.0);
    if kind == LossKind::Hinge {
        targets.data.iter_mut().for_each(|t| *t = if *t > 0.5 { 1.0 } else { -1.0 });
    }
    targets
}

/// Logits far apart, infinite or NaN.
fn special_cases() -> Vec<Case> {
    let entropy = Loss { kind: LossKind::SoftmaxCrossEntropy { smoothing: 0.0 }, reduction: Reduction::Sum };
    let labels = |labels: Vec<f64>| Array::new(&[labels.len()], DType::U32, labels);
    let case = |rows: usize, x: Vec<f64>, l: Vec<f64>| {
        let x = Array::f32(&[rows, x.len() / rows], x);
        Case::new(entropy, &[x, labels(l)], CLOSE, move |x| labelled(entropy, &x[0], &x[1]))
    };
    let mut cases = vec![
        case(2, vec![1000.0, 0.0, -1000.0, 3e38, 3e38, -3e38], vec![0.0, 1.0]),
        case(1, vec![1000.0, 0.0, -1000.0], vec![2.0]),
        case(2, vec![0.0, f64::NEG_INFINITY, 1.0, f64::NEG_INFINITY], vec![0.0, 1.0]),
        case(2, vec![0.0, f64::NAN, 1.0, 2.0], vec![0.0, 1.0]),
        case(1, vec![f64::NEG_INFINITY, f64::NEG_INFINITY], vec![0.0]),
    ];
    for kind in ELEMENTWISE {
        let op = Loss { kind, reduction: Reduction::Mean };
        let sure = Array::f32(&[6], vec![80.0, -80.0, 20.0, -20.0, 1e-3, 0.0]);
        let t = Array::f32(&[6], vec![1.0, 0.0, 1.0, 0.0, 1.0, 0.0]);
        cases.push(Case::new(op, &[sure, t], CLOSE, move |x| elementwise(op, &x[0], &x[1])));
        let x = Array::f32(&[3], vec![0.5, f64::NAN, 100.0]);
        let t = Array::f32(&[3], vec![1.0, 1.0, 1.0]);
        let nan = move |x: &[Array]| {
            let mut results = elementwise(op, &x[0], &x[1]);
            // The slope of a hinge at NaN is that of its falling side.
            if kind == LossKind::Hinge {
                results[1].data[1] = -1.0 / 3.0;
            }
            results
        };
        cases.push(Case::new(op, &[x, t], CLOSE, nan));
    }
    cases
}

pub fn refusals() -> Vec<Refusal> {
    let entropy =
        |smoothing: f32| Loss { kind: LossKind::SoftmaxCrossEntropy { smoothing }, reduction: Reduction::Mean };
    let labels = of(&[2], DType::U32);
    let mut refusals = vec![
        Refusal::new(entropy(-0.1), &[f32(&[2, 3]), labels], "smoothing -0.1 must be between 0 and 1"),
        Refusal::new(entropy(1.5), &[f32(&[2, 3]), labels], "smoothing 1.5 must be between 0 and 1"),
        Refusal::new(entropy(f32::NAN), &[f32(&[2, 3]), labels], "smoothing NaN must be between 0 and 1"),
        Refusal::new(
            entropy(0.0),
            &[f32(&[2, 0]), labels],
            "`softmax-cross-entropy`: label 0 is out of range, there are 0",
        ),
    ];
    for kind in [LABELLED[0], LABELLED[3]] {
        let op = Loss { kind, reduction: Reduction::Mean };
        refusals.extend([
            Refusal::new(op, &[f32(&[2, 3])], "1 inputs, it takes 2"),
            Refusal::new(op, &[f32(&[2, 3]), f32(&[2])], "input 1 is f32, not an index type"),
            Refusal::new(op, &[of(&[2, 3], DType::I32), labels], "input 0 is i32, not f32"),
            Refusal::new(op, &[f32(&[6]), labels], "input 0 is [6], it must have 2 axes"),
            Refusal::new(op, &[f32(&[3, 3]), labels], "input 1 is [2], not [3]"),
        ]);
    }
    for kind in ELEMENTWISE {
        let op = Loss { kind, reduction: Reduction::Sum };
        refusals.extend([
            Refusal::new(op, &[], "0 inputs, it takes 2"),
            Refusal::new(op, &[f32(&[2]), labels], "input 1 is u32, not f32"),
            Refusal::new(op, &[f32(&[2]), f32(&[3])], "inputs 0 and 1 differ in shape: [2] and [3]"),
        ]);
    }
    refusals
}

fn labelled(op: Loss, x: &Array, labels: &Array) -> Vec<Array> {
    let (rows, classes) = (x.shape[0], x.shape[1]);
    let factor = op.reduction.factor(rows);
    let mut loss = 0.0;
    let mut gradient = Array::f32(&x.shape, vec![0.0; x.data.len()]);
    for row in 0..rows {
        let label = labels.data[row] as usize;
        let x = &x.data[row * classes..][..classes];
        let gradient = &mut gradient.data[row * classes..][..classes];
        let LossKind::SoftmaxCrossEntropy { smoothing } = op.kind else {
            loss -= x[label];
            gradient[label] = -factor;
            continue;
        };
        let most = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = x.iter().map(|x| (x - most).exp()).sum();
        let smoothing = f64::from(smoothing);
        for class in 0..classes {
            let target = (1.0 - smoothing) * f64::from(class == label) + smoothing / classes as f64;
            if target > 0.0 {
                loss -= target * (x[class] - most - sum.ln());
            }
            gradient[class] = factor * ((x[class] - most).exp() / sum - target);
        }
        // A row that holds NaN has no loss, whether or not its label says so.
        if sum.is_nan() {
            loss = f64::NAN;
        }
    }
    vec![Array::f32(&[], vec![loss * factor]), gradient]
}

fn elementwise(op: Loss, x: &Array, t: &Array) -> Vec<Array> {
    let factor = op.reduction.factor(x.data.len());
    let each = |(&x, &t): (&f64, &f64)| match op.kind {
        LossKind::Hinge if t * x >= 1.0 => (0.0, 0.0),
        LossKind::Hinge => (1.0 - t * x, -t),
        LossKind::Mse => ((x - t) * (x - t), 2.0 * (x - t)),
        _ => {
            let sigmoid = 1.0 / (1.0 + (-x).exp());
            // log(1 + e^x), without its overflow
            let softplus = |x: f64| if x > 0.0 { x + (-x).exp().ln_1p() } else { x.exp().ln_1p() };
            (t * softplus(-x) + (1.0 - t) * softplus(x), sigmoid - t)
        }
    };
    let (losses, gradients): (Vec<f64>, Vec<f64>) = x.data.iter().zip(&t.data).map(each).unzip();
    let gradient = Array::f32(&x.shape, gradients.into_iter().map(|gradient| gradient * factor).collect());
    vec![Array::f32(&[], vec![losses.iter().sum::<f64>() * factor]), gradient]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use weft_gpu::device::cpu::Cpu;
    use weft_gpu::{Context, Crew, Limits};

    fn context() -> Context {
        Context::new(Arc::new(Cpu::new()), Arc::new(Crew::new(2)), Limits::default())
    }

    #[test]
    fn the_first_label_out_of_range_is_named() {
        let context = context();
        let x = context.zeros(&[9000, 3]).unwrap();
        let mut labels = vec![2_i32; 9000];
        (labels[70], labels[8000]) = (-1, 3);
        let error = x.cross_entropy(&context.tensor(&[9000], &labels).unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "`softmax-cross-entropy`: label -1 is out of range, there are 3");
        labels[70] = 0;
        let error = x.nll(&context.tensor(&[9000], &labels).unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "`nll`: label 3 is out of range, there are 3");
    }

    #[test]
    fn backward_of_a_loss_gives_the_gradient_that_came_with_it() {
        let context = context();
        let x = context.tensor(&[2, 2], &[1.0_f32, 2.0, 3.0, 4.0]).unwrap().parameter(None).unwrap();
        let target = context.tensor(&[2, 2], &[1.0_f32, 0.0, 3.0, 8.0]).unwrap();
        x.mse(&target).unwrap().backward().unwrap();
        assert_eq!(x.gradient().unwrap().to_vec::<f32>().unwrap(), [0.0, 1.0, 0.0, -2.0]);
    }

    #[test]
    fn a_target_has_no_gradient() {
        let context = context();
        let x = context.tensor(&[2], &[1.0_f32, 2.0]).unwrap().parameter(None).unwrap();
        let error = context.zeros(&[2]).unwrap().mse(&x).unwrap().backward().unwrap_err();
        assert_eq!(error.to_string(), "`mse` has no gradient with respect to its input 1; detach it first");
    }
}
