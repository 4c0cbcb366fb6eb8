//! Runs cases on a device and compares.

use std::collections::BTreeMap;
use std::sync::Arc;

use weft_gpu::device::Device;
use weft_gpu::{Context, Crew, DType, Limits, Tensor};

use crate::array::{Array, unit};
use crate::case::{Case, Refusal, Tolerance};

/// How many threads the results must not depend on.
const THREADS: [usize; 3] = [1, 2, 3];

/// Memory of a GPU is taken and bound in multiples of this.
const GRANULE: usize = 256;

/// The step of finite differences.
const STEP: f64 = 1e-4;

fn context(device: &Arc<dyn Device>) -> Context {
    Context::new(Arc::clone(device), Arc::new(Crew::new(3)), Limits::default())
}

/// Results are as the reference says, the same bits on any number of threads and for views; and all memory comes back.
pub fn values(device: &Arc<dyn Device>, cases: &[Case]) {
    values_of(device, cases, &[false, true]);
}

fn values_of(device: &Arc<dyn Device>, cases: &[Case], views: &[bool]) {
    for case in cases {
        let context = context(device);
        let want = (case.reference)(&case.inputs);
        let mut first: Option<Vec<Array>> = None;
        let counts = if device.info().threads > 1 { &THREADS[..] } else { &THREADS[..1] };
        for &threads in counts {
            context.set_threads(threads);
            for &apart in views {
                let got = run(&context, case, apart);
                let place = format!("{} (threads {threads}, views {apart})", describe(case));
                compare(&place, &want, &got, case.tolerance);
                match &first {
                    None => first = Some(got),
                    Some(first) => assert!(same_bits(first, &got), "{place}: other bits than on one thread"),
                }
            }
        }
        assert_eq!(context.heap().used(), context.heap().kept(), "{}: memory was not given back", describe(case));
    }
}

/// All of it where the largest operand is bound in two pieces: `device` gives one with bindings of no more than so many
/// bytes. Every operation has a case that is large enough.
pub fn split(device: impl Fn(u64) -> Arc<dyn Device>, cases: &[Case]) {
    let mut is_split = BTreeMap::new();
    for case in cases {
        let outputs = (case.reference)(&case.inputs);
        let largest = |views: bool| {
            let inputs = case.inputs.iter().map(|input| input.stored_bytes(views));
            inputs.chain(outputs.iter().map(|output| output.stored_bytes(false))).max().unwrap_or(0)
        };
        let was_split: &mut bool = is_split.entry(case.op.name()).or_default();
        for views in [false, true] {
            if let Some(bytes) = half(largest(views)) {
                *was_split = true;
                values_of(&device(bytes), std::slice::from_ref(case), &[views]);
            }
        }
        if let Some(bytes) = half(largest(false)) {
            gradients(&device(bytes), std::slice::from_ref(case));
        }
    }
    let whole: Vec<_> = is_split.iter().filter(|(_, was_split)| !**was_split).map(|(name, _)| name).collect();
    assert!(whole.is_empty(), "no case of these is large enough to be split: {whole:?}");
}

/// Bytes of a binding that holds more than half of so many, but not all; few different ones, as each is a device.
fn half(bytes: usize) -> Option<u64> {
    let taken = bytes.next_multiple_of(GRANULE);
    let most = (taken - 1).checked_ilog2().map(|power| 1 << power);
    most.filter(|most| *most >= GRANULE as u64)
}

/// Runs a case and gives its results, or what was written in place.
fn run(context: &Context, case: &Case, apart: bool) -> Vec<Array> {
    let writes = case.op.spec().writes();
    let inputs: Vec<Tensor> = case
        .inputs
        .iter()
        .enumerate()
        .map(
            |(index, input)| if apart && index >= writes { input.upload_apart(context) } else { input.upload(context) },
        )
        .collect();
    let inputs: Vec<&Tensor> = inputs.iter().collect();
    let outputs = context.run(case.op.clone(), &inputs).unwrap_or_else(|error| panic!("{}: {error}", describe(case)));
    if writes > 0 {
        return inputs[..writes].iter().map(|input| Array::download(input)).collect();
    }
    outputs.iter().map(Array::download).collect()
}

/// Gradients are what finite differences of the reference say.
pub fn gradients(device: &Arc<dyn Device>, cases: &[Case]) {
    for case in cases.iter().filter(|case| !case.gradients.is_empty()) {
        let context = context(device);
        let inputs: Vec<Tensor> = case
            .inputs
            .iter()
            .enumerate()
            .map(|(index, input)| {
                let tensor = input.upload(&context);
                if case.gradients.contains(&index) { tensor.parameter(None).unwrap() } else { tensor }
            })
            .collect();
        let outputs = context.run(case.op.clone(), &inputs.iter().collect::<Vec<_>>()).unwrap();
        let weights = Array::noise(&outputs[0].shape(), 77, -1.0, 1.0);
        outputs[0]
            .backward_from(&weights.upload(&context))
            .unwrap_or_else(|error| panic!("{}: {error}", describe(case)));
        let loss = |inputs: &[Array]| -> f64 {
            (case.reference)(inputs)[0].data.iter().zip(&weights.data).map(|(y, w)| y * w).sum()
        };
        for &input in &case.gradients {
            let mut moved = case.inputs.clone();
            let want = Array::build(&case.inputs[input].shape, DType::F32, |element| {
                let center = case.inputs[input].data[element];
                let step = STEP * center.abs().max(1.0);
                moved[input].data[element] = center + step;
                let above = loss(&moved);
                moved[input].data[element] = center - step;
                let below = loss(&moved);
                moved[input].data[element] = center;
                (above - below) / (2.0 * step)
            });
            let got =
                Array::download(&inputs[input].gradient().unwrap_or_else(|| panic!("{}: no gradient", describe(case))));
            let scale = want.data.iter().fold(1.0_f64, |scale, x| scale.max(x.abs()));
            let tolerance = Tolerance { absolute: 2e-4 * scale, relative: 2e-4 };
            compare(&format!("gradient of input {input} of {}", describe(case)), &[want], &[got], tolerance);
        }
    }
}

/// What must be refused is, by an error that names the operation and the reason.
pub fn refusals(device: &Arc<dyn Device>, refusals: Vec<Refusal>) {
    let context = context(device);
    for refusal in refusals {
        let inputs: Vec<Tensor> = refusal
            .inputs
            .iter()
            .map(|meta| Array::build(&meta.shape, meta.dtype, |index| unit(3, index)).upload(&context))
            .collect();
        let name = refusal.op.name();
        // What only shows while it runs may be told by the next read.
        let outcome = context.run(refusal.op.clone(), &inputs.iter().collect::<Vec<_>>()).and_then(|outputs| {
            outputs.iter().chain(&inputs).try_for_each(|tensor| tensor.read(0, &mut []))?;
            Ok(outputs)
        });
        match outcome {
            Ok(outputs) => panic!("{:?} of {:?} was not refused: {outputs:?}", refusal.op, refusal.inputs),
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains(refusal.says), "`{name}`: {text:?} does not say {:?}", refusal.says);
            }
        }
    }
}

fn describe(case: &Case) -> String {
    let shapes: Vec<String> = case.inputs.iter().map(|input| format!("{}{:?}", input.dtype, input.shape)).collect();
    format!("{:?} of {}", case.op, shapes.join(", "))
}

fn compare(place: &str, want: &[Array], got: &[Array], tolerance: Tolerance) {
    assert_eq!(want.len(), got.len(), "{place}: number of results");
    for (result, (want, got)) in want.iter().zip(got).enumerate() {
        assert_eq!(want.shape, got.shape, "{place}: shape of result {result}");
        assert_eq!(want.dtype, got.dtype, "{place}: type of result {result}");
        let exact = tolerance.relative == 0.0 && tolerance.absolute == 0.0;
        let round = |want: f64| match got.dtype {
            DType::F32 if exact => f64::from(want as f32),
            DType::F16 if exact => half::f16::from_f64(want).to_f64(),
            _ => want,
        };
        for (element, (&want, &got)) in want.data.iter().zip(&got.data).enumerate() {
            let want_rounded = round(want);
            let close = if want.is_finite() && (want.abs() as f32).is_finite() {
                (got - want_rounded).abs() <= tolerance.absolute + tolerance.relative * want.abs()
            } else {
                (want.is_nan() && got.is_nan()) || f64::from(want as f32) == got
            };
            assert!(close, "{place}: element {element} of result {result} is {got}, not {want} ({tolerance:?})");
        }
    }
}

fn same_bits(a: &[Array], b: &[Array]) -> bool {
    a.iter().zip(b).all(|(a, b)| a.data.iter().zip(&b.data).all(|(a, b)| a.to_bits() == b.to_bits()))
}
