//! Which types each operation takes: what `wit/kernels.wit` promises to functions.
//!
//! A type is judged before anything is computed and knows no device, so one device is enough here.

use std::sync::Arc;

use weft_gpu::device::cpu::Cpu;
use weft_gpu::op::{Comparison, Conv2d, Reducer, Resampling, Stream, Unary, Window};
use weft_gpu::{Context, Crew, DType, Error, Limits, Result, Tensor};

const TYPES: [DType; 5] = [DType::F32, DType::F16, DType::U8, DType::I32, DType::U32];

/// What an argument may be.
#[derive(Clone, Copy, PartialEq)]
enum Takes {
    Only(DType),
    /// u8, i32 or u32.
    Index,
    Any,
    /// Any, as long as all arguments that say so are the same.
    Same,
}

use Takes::{Any, Index, Only, Same};

const F32: Takes = Only(DType::F32);
const U8: Takes = Only(DType::U8);
const U32: Takes = Only(DType::U32);

impl Takes {
    fn usual(self) -> DType {
        match self {
            Only(dtype) => dtype,
            Index => DType::U32,
            Any | Same => DType::F32,
        }
    }

    fn admits(self, dtype: DType) -> bool {
        match self {
            Only(only) => dtype == only,
            Index => matches!(dtype, DType::U8 | DType::I32 | DType::U32),
            Any | Same => true,
        }
    }
}

/// An operation by its name in the contract, what its arguments are, and how it is called.
struct Operation {
    name: &'static str,
    arguments: Vec<(Takes, &'static [usize])>,
    call: fn(&[Tensor]) -> Result<()>,
}

macro_rules! operations {
    ($($name:literal ($($takes:ident $shape:expr),*) => |$given:ident| $call:expr;)+) => {
        vec![$(Operation {
            name: $name,
            arguments: vec![$(($takes, {
                const SHAPE: &[usize] = &$shape;
                SHAPE
            })),*],
            call: |$given| $call.map(drop),
        }),+]
    };
}

fn operations() -> Vec<Operation> {
    const WINDOW: Window =
        Window { kernel: [1, 1], stride: [1, 1], padding: [0, 0], ceil: false, count_padding: false };
    operations! {
        "unary" (F32 [2, 2]) => |x| x[0].unary(Unary::Relu);
        "binary" (F32 [2, 2], F32 [2, 2]) => |x| x[0].add(&x[1]);
        "compare" (Same [2, 2], Same [2, 2]) => |x| x[0].compare(Comparison::Eq, &x[1]);
        "select" (U8 [2, 2], Same [2, 2], Same [2, 2]) => |x| x[0].select(&x[1], &x[2]);
        "cast" (Any [2, 2]) => |x| x[0].cast(DType::I32);
        "affine" (F32 [2, 2]) => |x| x[0].affine(2.0, 1.0);
        "clamp" (F32 [2, 2]) => |x| x[0].clamp(0.0, 1.0);
        "leaky-relu" (F32 [2, 2]) => |x| x[0].leaky(0.1);
        "power" (F32 [2, 2]) => |x| x[0].powf(2.0);
        "soft-threshold" (F32 [2, 2]) => |x| x[0].soft_threshold(0.1);
        "reduce" (F32 [2, 2]) => |x| x[0].reduce(Reducer::Sum, &[0], false);
        "variance" (F32 [2, 2]) => |x| x[0].reduce(Reducer::Variance { correction: 0 }, &[0], false);
        "arg-max" (F32 [2, 2]) => |x| x[0].arg_max(1, false);
        "arg-min" (F32 [2, 2]) => |x| x[0].arg_min(1, false);
        "top-k" (F32 [2, 2]) => |x| x[0].top_k(1);
        "reshape" (Any [2, 2]) => |x| x[0].reshape(&[4]);
        "permute" (Any [2, 2]) => |x| x[0].permute(&[1, 0]);
        "transpose" (Any [2, 2]) => |x| x[0].transposed();
        "expand" (Any [1, 2]) => |x| x[0].expand(&[2, 2]);
        "slice" (Any [2, 2]) => |x| x[0].slice(&[0, 0], &[1, 2], &[1, 1]);
        "narrow" (Any [2, 2]) => |x| x[0].narrow(0, 0, 1);
        "pad" (Any [2, 2]) => |x| x[0].pad(&[1, 0], &[0, 1], 0.0);
        "concat" (Same [2, 2], Same [2, 2]) => |x| x[0].context().concat(&[&x[0], &x[1]], 0);
        "gather-rows" (Any [2, 2], Index [3]) => |x| x[0].gather_rows(&x[1]);
        "scatter-add-rows" (F32 [2, 2], Index [2]) => |x| x[0].scatter_add_rows(&x[1], 3);
        "embedding" (Any [2, 2], Index [3]) => |x| x[0].embedding(&x[1]);
        "one-hot" (Index [2]) => |x| x[0].one_hot(3);
        "resize" (F32 [1, 1, 2, 2]) => |x| x[0].resize(Resampling::Nearest, 3, 3);
        "dropout" (F32 [2, 2]) => |x| x[0].dropout(0.5, Stream { seed: 1, offset: 0 });
        "matmul" (F32 [2, 2], F32 [2, 2]) => |x| x[0].matmul(&x[1]);
        "linear" (F32 [2, 2], F32 [2, 2], F32 [2]) => |x| x[0].linear(&x[1], Some(&x[2]), None);
        "conv2d" (F32 [1, 1, 2, 2], F32 [1, 1, 1, 1], F32 [1]) =>
            |x| x[0].conv2d(&x[1], Some(&x[2]), Conv2d::default());
        "csr-matmul" (F32 [0], U32 [1], U32 [0], F32 [2, 2]) => |x| x[0].csr_matmul(&x[1], &x[2], &x[3]);
        "csr-transposed-matmul" (F32 [0], U32 [1], U32 [0], F32 [0, 2]) =>
            |x| x[0].csr_transposed_matmul(&x[1], &x[2], &x[3], 2);
        "max-pool2d" (F32 [1, 1, 2, 2]) => |x| x[0].max_pool2d(WINDOW);
        "average-pool2d" (F32 [1, 1, 2, 2]) => |x| x[0].average_pool2d(WINDOW);
        "adaptive-average-pool2d" (F32 [1, 1, 2, 2]) => |x| x[0].adaptive_average_pool2d(1, 1);
        "adaptive-max-pool2d" (F32 [1, 1, 2, 2]) => |x| x[0].adaptive_max_pool2d(1, 1);
        "softmax" (F32 [2, 2]) => |x| x[0].softmax();
        "log-softmax" (F32 [2, 2]) => |x| x[0].log_softmax();
        "masked-softmax" (F32 [2, 2], U8 [2, 2]) => |x| x[0].masked_softmax(&x[1]);
        "batch-norm" (F32 [2, 2], F32 [2], F32 [2]) => |x| x[0].batch_norm(&x[1], &x[2], 1e-5, None);
        "batch-norm-inference" (F32 [2, 2], F32 [2], F32 [2], F32 [2], F32 [2]) =>
            |x| x[0].batch_norm_inference([&x[1], &x[2]], [&x[3], &x[4]], 1e-5, None);
        "layer-norm" (F32 [2, 2], F32 [2], F32 [2]) => |x| x[0].layer_norm(&x[1], &x[2], 1e-5);
        "local-response-norm" (F32 [1, 2, 2]) => |x| x[0].local_response_norm(1, 1.0, 1.0, 1.0);
        "cross-entropy" (F32 [2, 2], Index [2]) => |x| x[0].cross_entropy(&x[1]);
        "nll" (F32 [2, 2], Index [2]) => |x| x[0].nll(&x[1]);
        "binary-cross-entropy" (F32 [2], F32 [2]) => |x| x[0].bce_with_logits(&x[1]);
        "hinge" (F32 [2], F32 [2]) => |x| x[0].hinge(&x[1]);
        "mse" (F32 [2], F32 [2]) => |x| x[0].mse(&x[1]);
        "kmeans-assign" (F32 [2, 2], F32 [1, 2]) => |x| x[0].kmeans_assign(&x[1]);
        "kmeans-accumulate" (F32 [2, 2], U32 [2]) => |x| x[0].kmeans_accumulate(&x[1], 1);
        "assign" (Same [2, 2], Same [2, 2]) => |x| x[0].assign(&x[1]);
        "accumulate" (F32 [2, 2], F32 [2, 2]) => |x| x[0].accumulate(&x[1], 1.0);
        "blend" (F32 [2, 2], F32 [2, 2]) => |x| x[0].blend(&x[1], 0.5);
    }
}

fn call(context: &Context, operation: &Operation, types: &[DType]) -> Result<()> {
    let zeros = operation.arguments.iter().zip(types).map(|((_, shape), dtype)| context.full(shape, *dtype, 0.0));
    (operation.call)(&zeros.collect::<Result<Vec<_>>>()?)
}

#[test]
fn every_operation_takes_the_types_that_the_contract_says_and_no_others() {
    let context = Context::new(Arc::new(Cpu::new()), Arc::new(Crew::new(1)), Limits::default());
    for operation in operations() {
        let usual: Vec<DType> = operation.arguments.iter().map(|(takes, _)| takes.usual()).collect();
        for (index, (takes, _)) in operation.arguments.iter().enumerate() {
            for dtype in TYPES {
                let mut types = usual.clone();
                types[index] = dtype;
                // Alone among others of its kind it differs from them; together they may be anything.
                let is_odd = *takes == Same && dtype != usual[index];
                let asked = format!("`{}` with {types:?}", operation.name);
                match call(&context, &operation, &types) {
                    Ok(()) => assert!(takes.admits(dtype) && !is_odd, "{asked} was not refused"),
                    Err(error @ Error::BadType { .. }) => assert!(!takes.admits(dtype) || is_odd, "{asked}: {error}"),
                    Err(error) => panic!("{asked}: {error}"),
                }
                if is_odd {
                    for (given, (takes, _)) in types.iter_mut().zip(&operation.arguments) {
                        *given = if *takes == Same { dtype } else { *given };
                    }
                    call(&context, &operation, &types).unwrap();
                }
            }
        }
    }
}

/// What takes no tensors, or says nothing of types: `backward` and `gradient` are about weights, which are f32.
const WITHOUT: [&str; 6] = ["backward", "detach", "gradient", "iota", "normal", "uniform"];

#[test]
fn every_operation_of_the_contract_is_looked_at() {
    let contract = include_str!("../../../wit/kernels.wit");
    let mut named: Vec<&str> =
        contract.lines().filter_map(|line| line.trim().split_once(": func(")).map(|(name, _)| name).collect();
    let mut tested: Vec<&str> = operations().iter().map(|operation| operation.name).chain(WITHOUT).collect();
    named.sort_unstable();
    tested.sort_unstable();
    assert_eq!(named, tested);
}
