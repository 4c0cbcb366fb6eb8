//! Every call of a GPU, done again on the machine's cores with the same bits.

use std::sync::Arc;

use weft_gpu::device::cpu::Cpu;
use weft_gpu::op::{LocalResponseNormGradient, Normal, Op};
use weft_gpu::{Context, Crew, DType, Limits, Tensor};

/// Larger tensors are not compared.
const COMPARED: usize = 20_000;

/// Beyond this, sums lose all that is small, in another way for each order.
const LARGE: f32 = 1e4;

/// How far apart numbers may be, of the largest in the result and of the number itself.
const APART: f32 = 1e-3;

pub struct Shadow(Context);

impl Shadow {
    pub fn new(crew: &Arc<Crew>) -> Self {
        Self(Context::new(Arc::new(Cpu::new()), Arc::clone(crew), Limits::default()))
    }

    /// The inputs as they are now, if all of them can be compared with.
    pub fn copies(&self, inputs: &[Tensor]) -> Option<Vec<Tensor>> {
        inputs.iter().map(|input| self.copy(input)).collect()
    }

    /// What the GPU gave, or wrote in place, is what the cores give.
    pub fn compare(&self, op: &Op, before: &[Tensor], inputs: &[Tensor], outputs: &[Tensor]) {
        if !has_small_attributes(op) {
            return;
        }
        let _quiet = self.0.no_grad();
        let want = match self.0.run(op.clone(), &before.iter().collect::<Vec<_>>()) {
            Ok(want) => want,
            // Two inputs that were one tensor are two here, and may then be right.
            Err(error) => panic!("{op:?}: the GPU did what the cores refuse: {error}"),
        };
        let writes = op.spec().writes();
        let pairs = want.iter().chain(&before[..writes]).zip(outputs.iter().chain(&inputs[..writes]));
        for (want, got) in pairs {
            if want.shape().elements() > COMPARED {
                continue;
            }
            let same = match want.dtype() {
                DType::F32 => same_floats(op, want, got),
                DType::F16 => same_halves(want, got),
                _ => bytes(want) == bytes(got),
            };
            assert!(same, "{op:?} of {before:?}: {got:?} differs from the cores' {want:?}");
        }
    }

    fn copy(&self, tensor: &Tensor) -> Option<Tensor> {
        let tensor = tensor.detach();
        if tensor.shape().elements() > COMPARED {
            return None;
        }
        let sizes = tensor.shape();
        match tensor.dtype() {
            DType::F32 => {
                let values = tensor.to_vec::<f32>().ok()?;
                let small =
                    values.iter().all(|value| value.abs() < LARGE && (*value == 0.0 || value.abs() > 1.0 / LARGE));
                small.then(|| self.0.tensor(&sizes, &values).ok())?
            }
            DType::F16 => self.0.tensor(&sizes, &tensor.to_vec::<half::f16>().ok()?).ok(),
            DType::U8 => self.0.tensor(&sizes, &tensor.to_vec::<u8>().ok()?).ok(),
            DType::I32 => self.0.tensor(&sizes, &tensor.to_vec::<i32>().ok()?).ok(),
            DType::U32 => self.0.tensor(&sizes, &tensor.to_vec::<u32>().ok()?).ok(),
        }
    }
}

/// Whether what an operation multiplies sums with leaves them within what floats hold. Beyond that, what becomes infinite
/// first is another number on each device.
fn has_small_attributes(op: &Op) -> bool {
    match op {
        Op::LocalResponseNorm(norm) | Op::LocalResponseNormGradient(LocalResponseNormGradient(norm)) => {
            [norm.alpha, norm.beta, norm.k].iter().all(|factor| factor.abs() < LARGE)
        }
        _ => true,
    }
}

fn bytes(tensor: &Tensor) -> Option<Vec<u8>> {
    let mut bytes = vec![0; tensor.meta().bytes()];
    tensor.detach().read(0, &mut bytes).ok().map(|()| bytes)
}

/// A NaN is a NaN: which one, a GPU may forget.
fn same_halves(want: &Tensor, got: &Tensor) -> bool {
    let (Ok(want), Ok(got)) = (want.detach().to_vec::<half::f16>(), got.detach().to_vec::<half::f16>()) else {
        return false;
    };
    want.iter().zip(&got).all(|(want, got)| want.to_bits() == got.to_bits() || (want.is_nan() && got.is_nan()))
}

fn same_floats(op: &Op, want: &Tensor, got: &Tensor) -> bool {
    let (Ok(want), Ok(got)) = (want.detach().to_vec::<f32>(), got.detach().to_vec::<f32>()) else { return false };
    // Numbers from nothing have the attributes for their size.
    let scale = match op {
        Op::Normal(Normal { deviation, .. }) => deviation.abs(),
        _ => 0.0,
    };
    let finite =
        want.iter().filter(|value| value.is_finite()).fold(scale.max(1.0), |most, value| most.max(value.abs()));
    want.iter().zip(&got).all(|(want, got)| {
        want == got
            || (want.is_nan() && got.is_nan())
            || (want - got).abs() <= APART * finite
            // Close to where numbers end, one may be past the end.
            || (want.abs() > f32::MAX * 0.99 && got.abs() > f32::MAX * 0.99)
    })
}
