//! For each operation what takes it longest.

use weft_gpu::op::*;
use weft_gpu::{Axes, Context, DType, Result, Shape, Tensor};

use crate::Call;

/// An operation that takes long.
pub struct Case {
    pub name: &'static str,
    pub call: fn(&Context) -> Result<Call>,
}

impl Case {
    /// Which of the operations it is.
    pub fn operation(&self, context: &Context) -> String {
        let (op, _) = (self.call)(context).unwrap();
        let text = format!("{op:?}");
        text.split('(').next().unwrap_or_default().to_owned()
    }
}

/// Two to the twentieth.
const M: usize = 1 << 20;

const STREAM: Stream = Stream { seed: 1, offset: 2 };

/// What all of the memory holds but for a little.
const MOST: usize = 63 * M;

/// What half of the memory holds.
const HALF: usize = 31 * M;

fn shape(sizes: &[usize]) -> Shape {
    Shape::new(sizes).unwrap()
}

fn ones(context: &Context, sizes: &[usize]) -> Result<Tensor> {
    context.full(sizes, DType::F32, 1.0)
}

/// One element that is repeated: it takes no memory however large it is.
fn repeated(context: &Context, sizes: &[usize]) -> Result<Tensor> {
    context.run_one(Expand(shape(sizes)), &[&ones(context, &[1])?])
}

fn zeros(context: &Context, sizes: &[usize], dtype: DType) -> Result<Tensor> {
    context.full(sizes, dtype, 0.0)
}

/// Sparse rows of which the last has all of so many values, in the first column.
fn one_row(context: &Context, stored: usize) -> Result<[Tensor; 3]> {
    let offsets = context.tensor(&[2], &[0, stored as u32])?;
    Ok([offsets, zeros(context, &[stored], DType::U32)?, ones(context, &[stored])?])
}

fn window(kernel: [usize; 2], stride: usize) -> Window {
    Window { kernel, stride: [stride; 2], padding: [0, 0], ceil: false, count_padding: true }
}

fn conv(stride: usize, padding: [usize; 2], groups: usize) -> Conv2d {
    Conv2d { stride: [stride; 2], padding, dilation: [1, 1], groups }
}

/// Images, and windows whose every row has millions of elements.
const LONG_ROW: [usize; 4] = [1, 1, 1, 8 * M];
const LONG_WINDOW: [usize; 2] = [1, 4 * M];
const LONG_POOLED: [usize; 4] = [1, 1, 1, 4 * M + 1];

/// A large image, and large windows of it.
const LARGE_IMAGE: [usize; 4] = [1, 1, 3500, 3500];
const LARGE_WINDOW: [usize; 2] = [1750, 1750];
const LARGE_POOLED: [usize; 4] = [1, 1, 1751, 1751];

/// A column that is pooled to a row: every window is all of the column.
const COLUMN: [usize; 4] = [1, 1, 16 * M, 1];
const ROW: [usize; 4] = [1, 1, 1, 16 * M - 1];

macro_rules! cases {
    ($($name:literal: |$context:ident| $body:expr;)+) => {
        pub const ALL: &[Case] = &[$(Case {
            name: $name,
            call: |$context: &Context| -> Result<Call> {
                let (op, inputs) = $body;
                Ok((Op::from(op), Vec::from(inputs)))
            },
        }),+];
    };
}

cases! {
    // elementwise
    "a unary function": |c| (Unary::Gelu, [repeated(c, &[MOST])?]);
    "a unary gradient": |c| (UnaryGradient(Unary::Gelu), [repeated(c, &[MOST])?, repeated(c, &[MOST])?]);
    "a gradient from the output": |c| (UnaryGradientFromOutput(Unary::Tanh), [repeated(c, &[MOST])?, repeated(c, &[MOST])?]);
    "a power": |c| (Binary::Pow, [repeated(c, &[MOST])?, repeated(c, &[MOST])?]);
    "a gradient of a power": |c| {
        let inputs = [repeated(c, &[MOST])?, repeated(c, &[MOST])?, repeated(c, &[MOST])?];
        (BinaryGradient { of: Binary::Pow, side: Side::Second }, inputs)
    };
    "a comparison": |c| (Compare(Comparison::Lt), [repeated(c, &[4 * MOST])?, repeated(c, &[4 * MOST])?]);
    "a choice": |c| (Select, [zeros(c, &[1], DType::U8)?, repeated(c, &[MOST])?, repeated(c, &[MOST])?]);
    "a cast": |c| (Cast(DType::F16), [repeated(c, &[2 * MOST])?]);
    // reduction
    "a sum of all": |c| (Reduce { reducer: Reducer::Sum, axes: Axes::new(&[0, 1])?, keep: false }, [ones(c, &[60, M])?]);
    "a variance of long columns": |c| {
        let op = Reduce { reducer: Reducer::Variance { correction: 1 }, axes: Axes::new(&[0])?, keep: false };
        (op, [ones(c, &[HALF, 2])?])
    };
    "a sum of alternating axes": |c| {
        let op = Reduce { reducer: Reducer::Sum, axes: Axes::new(&[0, 2, 4])?, keep: false };
        (op, [ones(c, &[64, 2, 64, 2, 1024])?])
    };
    "a sum of nothing": |c| (Reduce { reducer: Reducer::Sum, axes: Axes::new(&[1])?, keep: false }, [ones(c, &[MOST, 0])?]);
    "a position of the largest": |c| (ArgReduce { extreme: Extreme::Max, axis: 0, keep: false }, [ones(c, &[MOST])?]);
    // layout
    "a reshape that copies": |c| (Reshape(shape(&[25 * M])), [ones(c, &[5120, 5120])?.transposed()?]);
    "a permutation": |c| (Permute::new(&[1, 0])?, [ones(c, &[5120, 5120])?]);
    "an expansion": |c| (Expand(shape(&[1 << 20, 1 << 20])), [ones(c, &[1])?]);
    "a slice": |c| (Slice { starts: shape(&[0]), sizes: shape(&[M]), steps: shape(&[7]) }, [ones(c, &[8 * M])?]);
    "a copy of what is repeated": |c| (Copy, [repeated(c, &[MOST])?]);
    "a border": |c| {
        let op = Pad { before: shape(&[HALF]), after: shape(&[HALF]), steps: shape(&[1]), value: 1.0 };
        (op, [ones(c, &[1])?])
    };
    "a concatenation": |c| (Concat { axis: 0 }, [repeated(c, &[HALF])?, repeated(c, &[HALF])?]);
    "gathered rows": |c| (GatherRows, [ones(c, &[4, M])?, zeros(c, &[55], DType::U32)?]);
    "rows that are added to one": |c| (ScatterAddRows { count: 1 }, [ones(c, &[6 * M, 8])?, zeros(c, &[6 * M], DType::U32)?]);
    "rows that are added to one of many": |c| {
        (ScatterAddRows { count: 1 << 16 }, [ones(c, &[1 << 14, 512])?, zeros(c, &[1 << 14], DType::U32)?])
    };
    "rows that are added to one of millions": |c| {
        (ScatterAddRows { count: 17 * M }, [ones(c, &[20 * M, 1])?, zeros(c, &[20 * M], DType::U32)?])
    };
    "classes": |c| (OneHot { classes: MOST }, [zeros(c, &[1], DType::U32)?]);
    "a few largest of a row that rises": |c| {
        let rising = c.run_one(Iota { count: 50 * M, dtype: DType::F32, start: 0, step: 1 }, &[])?;
        (TopK { count: 32 }, [rising])
    };
    "many largest of a long row": |c| {
        let numbers = c.run_one(Uniform { shape: shape(&[12 * M]), low: 0.0, high: 1.0, stream: STREAM }, &[])?;
        (TopK { count: 12 * M }, [numbers])
    };
    "many largest of equals": |c| (TopK { count: 10 * M }, [ones(c, &[12 * M])?]);
    "a gradient of many largest": |c| {
        (TopKGradient { size: HALF }, [ones(c, &[15 * M])?, zeros(c, &[15 * M], DType::U32)?])
    };
    "an image that is stretched": |c| {
        (Resize { mode: Resampling::Bilinear, height: 1, width: 18 * M }, [ones(c, &[1, 1, 1, 4 * M])?])
    };
    "a column that is resized to a row": |c| {
        (Resize { mode: Resampling::Bilinear, height: 1, width: 10 * M }, [ones(c, &[1, 1, 20 * M, 1])?])
    };
    "the gradient of a row that was resized to a column": |c| {
        (ResizeGradient { mode: Resampling::Bilinear, height: 1, width: 16 * M }, [ones(c, &[1, 1, 4 * M, 1])?])
    };
    "the gradient of a pixel that was resized to a row": |c| {
        (ResizeGradient { mode: Resampling::Bilinear, height: 1, width: 1 }, [ones(c, &[1, 1, 1, 20 * M])?])
    };
    // random
    "a constant": |c| { let _ = c; (Fill { shape: shape(&[MOST]), dtype: DType::F32, value: 1.0 }, []) };
    "a count": |c| { let _ = c; (Iota { count: MOST, dtype: DType::F32, start: 0, step: 0 }, []) };
    "random numbers": |c| { let _ = c; (Uniform { shape: shape(&[MOST]), low: 0.0, high: 1.0, stream: STREAM }, []) };
    "normal numbers": |c| { let _ = c; (Normal { shape: shape(&[MOST]), mean: 0.0, deviation: 1.0, stream: STREAM }, []) };
    "dropout": |c| (Dropout { rate: 0.5, stream: STREAM }, [ones(c, &[HALF])?]);
    // matrix
    "products of matrices that are repeated along their depth": |c| {
        (MatMul { scale: 1.0 }, [repeated(c, &[8, 32, 1 << 31])?, repeated(c, &[8, 1 << 31, 32])?])
    };
    "products of long vectors": |c| {
        (MatMul { scale: 1.0 }, [repeated(c, &[64, 1, 1 << 32])?, repeated(c, &[64, 1 << 32, 1])?])
    };
    "products of many large matrices": |c| {
        (MatMul { scale: 1.0 }, [repeated(c, &[8, 2048, 1 << 14])?, repeated(c, &[8, 1 << 14, 2048])?])
    };
    "a matrix that lies across, times a vector": |c| {
        let matrix = c.run_one(Permute::new(&[1, 2, 0])?, &[&ones(c, &[5000, 5, 1000])?])?;
        (MatMul { scale: 1.0 }, [matrix, repeated(c, &[5, 5000, 1])?])
    };
    "products without depth": |c| (MatMul { scale: 1.0 }, [ones(c, &[8, 2048, 0])?, ones(c, &[8, 0, 2048])?]);
    "a linear layer": |c| (Linear { activation: None }, [ones(c, &[4096, 4096])?, ones(c, &[4096, 4096])?]);
    "a linear layer with an activation": |c| {
        let op = Linear { activation: Some(Unary::Gelu) };
        (op, [ones(c, &[4096, 4096])?, ones(c, &[4096, 4096])?, ones(c, &[4096])?])
    };
    "products of vectors whose elements lie apart": |c| {
        let row = ones(c, &[12 * M, 2])?.transposed()?.narrow(0, 0, 1)?;
        let column = ones(c, &[12 * M, 2])?.narrow(1, 0, 1)?;
        (MatMul { scale: 1.0 }, [row, column])
    };
    // convolution
    "a convolution": |c| (conv(1, [3, 3], 1), [ones(c, &[1, 64, 320, 320])?, ones(c, &[64, 64, 7, 7])?]);
    "a convolution of many channels": |c| (conv(1, [1, 1], 1), [ones(c, &[1, 64, 440, 440])?, ones(c, &[64, 64, 3, 3])?]);
    "a convolution with a large kernel": |c| (conv(1, [0, 0], 1), [ones(c, &LARGE_IMAGE)?, ones(c, &[1, 1, 700, 700])?]);
    "a convolution with a long kernel": |c| (conv(1, [0, 0], 1), [ones(c, &[1, 1, 1, 8 * M])?, ones(c, &[1, 1, 1, M])?]);
    "a convolution of pixels": |c| (conv(1, [0, 0], 1), [ones(c, &[1, 512, 64, 64])?, ones(c, &[7000, 512, 1, 1])?]);
    "a convolution of one channel each": |c| (conv(1, [0, 0], 8), [ones(c, &[1, 8, 700, 700])?, ones(c, &[8, 1, 350, 350])?]);
    "a convolution that sees mostly padding": |c| {
        (conv(1, [0, 8 * M], 1), [ones(c, &[1, 1, 1, 3])?, ones(c, &[1, 1, 1, M])?])
    };
    "a convolution of one channel with a large kernel": |c| {
        (conv(1, [0, 0], 1), [ones(c, &[1, 1, 3000, 3000])?, ones(c, &[1, 1, 2000, 2000])?])
    };
    "a convolution without channels": |c| {
        (conv(1, [0, 1 << 31], 1), [ones(c, &[1, 0, 1, 3])?, ones(c, &[1, 0, 1, u32::MAX as usize])?])
    };
    "a convolution with a tall kernel": |c| {
        (conv(1, [0, 0], 1), [ones(c, &[1, 1, 8 * M, 1])?, ones(c, &[1, 1, 4 * M, 1])?])
    };
    "a convolution with tall kernels": |c| {
        (conv(1, [0, 0], 1), [ones(c, &[1, 1, 4 * M, 1])?, ones(c, &[2, 1, 2 * M, 1])?])
    };
    "a convolution of small images": |c| (conv(1, [1, 1], 1), [ones(c, &[16, 40, 8, 8])?, ones(c, &[10_000, 40, 3, 3])?]);
    "a gradient of a convolution's input": |c| {
        let op = Conv2dGradientInput { conv: conv(2, [0, 0], 1), input: shape(&[1, 1, 190, 190]) };
        (op, [ones(c, &[1, 2048, 64, 64])?, ones(c, &[2048, 1, 64, 64])?])
    };
    "a gradient of a large image": |c| {
        let op = Conv2dGradientInput { conv: conv(1, [0, 0], 1), input: shape(&[1, 64, 330, 330]) };
        (op, [ones(c, &[1, 64, 324, 324])?, ones(c, &[64, 64, 7, 7])?])
    };
    "a gradient of images much larger than what they became": |c| {
        let op = Conv2dGradientInput { conv: conv(1, [0, 0], 1), input: shape(&[100, 8, 64, 64]) };
        (op, [ones(c, &[100, 64, 32, 32])?, ones(c, &[64, 8, 33, 33])?])
    };
    "a gradient of the images of one channel each": |c| {
        let op = Conv2dGradientInput { conv: conv(1, [0, 0], 8), input: shape(&[1, 8, 700, 700]) };
        (op, [ones(c, &[1, 8, 351, 351])?, ones(c, &[8, 1, 350, 350])?])
    };
    "a gradient of a convolution's weight": |c| {
        let op = Conv2dGradientWeight { conv: conv(1, [0, 0], 1), weight: shape(&[64, 16, 7, 7]) };
        (op, [ones(c, &[4, 16, 406, 406])?, ones(c, &[4, 64, 400, 400])?])
    };
    "a gradient of a small weight of many channels": |c| {
        let op = Conv2dGradientWeight { conv: conv(1, [1, 1], 1), weight: shape(&[64, 64, 3, 3]) };
        (op, [ones(c, &[1, 64, 440, 440])?, ones(c, &[1, 64, 440, 440])?])
    };
    "a gradient of a large kernel": |c| {
        let op = Conv2dGradientWeight { conv: conv(1, [0, 0], 1), weight: shape(&[8, 1, 60, 60]) };
        (op, [ones(c, &[1, 1, 120, 120])?, ones(c, &[1, 8, 61, 61])?])
    };
    "a gradient of the kernels of one channel each": |c| {
        let op = Conv2dGradientWeight { conv: conv(1, [0, 0], 8), weight: shape(&[8, 1, 350, 350]) };
        (op, [ones(c, &[1, 8, 700, 700])?, ones(c, &[1, 8, 351, 351])?])
    };
    "a gradient of the small kernel of a large image": |c| {
        let op = Conv2dGradientWeight { conv: conv(1, [1, 1], 1), weight: shape(&[1, 1, 3, 3]) };
        (op, [ones(c, &[1, 1, 5000, 5000])?, ones(c, &[1, 1, 5000, 5000])?])
    };
    // pooling
    "the largest of long windows": |c| (MaxPool2d(window(LONG_WINDOW, 1)), [ones(c, &LONG_ROW)?]);
    "the largest of large windows": |c| (MaxPool2d(window(LARGE_WINDOW, 1)), [ones(c, &LARGE_IMAGE)?]);
    "a gradient of the largest of long windows": |c| {
        (MaxPool2dGradient(window(LONG_WINDOW, 1)), [ones(c, &LONG_ROW)?, ones(c, &LONG_POOLED)?])
    };
    "a gradient of the largest of large windows": |c| {
        (MaxPool2dGradient(window(LARGE_WINDOW, 1)), [ones(c, &LARGE_IMAGE)?, ones(c, &LARGE_POOLED)?])
    };
    "the mean of long windows": |c| (AveragePool2d(window(LONG_WINDOW, 1)), [ones(c, &LONG_ROW)?]);
    "the mean of large windows": |c| (AveragePool2d(window(LARGE_WINDOW, 1)), [ones(c, &LARGE_IMAGE)?]);
    "a gradient of the mean of long windows": |c| {
        (AveragePool2dGradient { window: window(LONG_WINDOW, 1), input: shape(&LONG_ROW) }, [ones(c, &LONG_POOLED)?])
    };
    "a gradient of the mean of large windows": |c| {
        (AveragePool2dGradient { window: window(LARGE_WINDOW, 1), input: shape(&LARGE_IMAGE) }, [ones(c, &LARGE_POOLED)?])
    };
    "the mean of a column for each of a row": |c| (AdaptiveAveragePool2d { height: 1, width: 16 * M - 1 }, [ones(c, &COLUMN)?]);
    "the mean of an image": |c| (AdaptiveAveragePool2d { height: 1, width: 1 }, [ones(c, &[1, 1, 60, M])?]);
    "a gradient of the mean of a column": |c| (AdaptiveAveragePool2dGradient { input: shape(&COLUMN) }, [ones(c, &ROW)?]);
    "the largest of a column for each of a row": |c| (AdaptiveMaxPool2d { height: 1, width: 16 * M - 1 }, [ones(c, &COLUMN)?]);
    "a gradient of the largest of a column": |c| (AdaptiveMaxPool2dGradient, [ones(c, &COLUMN)?, ones(c, &ROW)?]);
    // normalization
    "a batch of many images": |c| {
        (BatchNorm { epsilon: 1e-5, activation: None }, [ones(c, &[HALF, 1])?, ones(c, &[1])?, ones(c, &[1])?])
    };
    "a batch of a large image": |c| {
        (BatchNorm { epsilon: 1e-5, activation: None }, [ones(c, &[1, 1, HALF])?, ones(c, &[1])?, ones(c, &[1])?])
    };
    "a gradient of a batch of many images": |c| {
        let op = BatchNormGradient { epsilon: 1e-5, activation: None, statistics: Statistics::OfBatch };
        let one = ones(c, &[1])?;
        (op, [ones(c, &[20 * M, 1])?, one.clone(), one.clone(), one, ones(c, &[20 * M, 1])?])
    };
    "a gradient of a batch of a large image": |c| {
        let op = BatchNormGradient { epsilon: 1e-5, activation: None, statistics: Statistics::OfBatch };
        let one = ones(c, &[1])?;
        (op, [ones(c, &[1, 1, 20 * M])?, one.clone(), one.clone(), one, ones(c, &[1, 1, 20 * M])?])
    };
    "a batch by given statistics": |c| {
        let one = ones(c, &[1])?;
        let inputs = [ones(c, &[HALF, 1])?, one.clone(), one.clone(), one.clone(), one];
        (BatchNormInference { epsilon: 1e-5, activation: None }, inputs)
    };
    "a long layer": |c| {
        (LayerNorm { epsilon: 1e-5 }, [ones(c, &[1, 15 * M])?, ones(c, &[15 * M])?, ones(c, &[15 * M])?])
    };
    "a gradient of a long layer": |c| {
        let one = ones(c, &[1])?;
        (LayerNormGradient, [ones(c, &[1, 7 * M])?, ones(c, &[7 * M])?, one.clone(), one, ones(c, &[1, 7 * M])?])
    };
    "all channels as neighbours": |c| {
        (LocalResponseNorm { size: 16 * M, alpha: 1.0, beta: 0.75, k: 1.0 }, [ones(c, &[1, 16 * M, 1])?])
    };
    "many channels as neighbours": |c| {
        (LocalResponseNorm { size: M, alpha: 1.0, beta: 0.75, k: 1.0 }, [ones(c, &[1, M, 1, 4])?])
    };
    "a gradient of all channels as neighbours": |c| {
        let op = LocalResponseNorm { size: u32::MAX as usize, alpha: 1.0, beta: 0.75, k: 1.0 };
        (LocalResponseNormGradient(op), [ones(c, &[1, 8 * M, 1])?, ones(c, &[1, 8 * M, 1])?])
    };
    "probabilities of a long row": |c| (Softmax, [ones(c, &[HALF])?]);
    "logarithms of probabilities of a long row": |c| (LogSoftmax, [ones(c, &[HALF])?]);
    "masked probabilities of a long row": |c| {
        (MaskedSoftmax, [ones(c, &[27 * M])?, c.full(&[27 * M], DType::U8, 1.0)?])
    };
    "a gradient of probabilities": |c| (SoftmaxGradient, [ones(c, &[20 * M])?, ones(c, &[20 * M])?]);
    "a gradient of their logarithms": |c| (LogSoftmaxGradient, [ones(c, &[20 * M])?, ones(c, &[20 * M])?]);
    // loss
    "a loss over many classes": |c| {
        let kind = LossKind::SoftmaxCrossEntropy { smoothing: 0.1 };
        (Loss { kind, reduction: Reduction::Mean }, [ones(c, &[1, HALF])?, zeros(c, &[1], DType::U32)?])
    };
    "a loss of many elements": |c| {
        let kind = LossKind::BinaryCrossEntropyWithLogits;
        (Loss { kind, reduction: Reduction::Mean }, [ones(c, &[20 * M])?, ones(c, &[20 * M])?])
    };
    "a loss of a few of many probabilities": |c| {
        (Loss { kind: LossKind::Nll, reduction: Reduction::Mean }, [ones(c, &[1, HALF])?, zeros(c, &[1], DType::U32)?])
    };
    "a loss of many rows": |c| {
        (Loss { kind: LossKind::Nll, reduction: Reduction::Sum }, [ones(c, &[20 * M, 1])?, zeros(c, &[20 * M], DType::U32)?])
    };
    "a loss of signs": |c| {
        (Loss { kind: LossKind::Hinge, reduction: Reduction::Mean }, [ones(c, &[20 * M])?, ones(c, &[20 * M])?])
    };
    // sparse
    "a long sparse row times a wide matrix": |c| {
        let [offsets, columns, values] = one_row(c, 4 * M)?;
        (CsrMatMul, [offsets, columns, values, ones(c, &[1, 16 * M])?])
    };
    "a long sparse row times a vector": |c| {
        let [offsets, columns, values] = one_row(c, 30 * M)?;
        (CsrMatMul, [offsets, columns, values, ones(c, &[1])?])
    };
    "a long sparse column times a wide matrix": |c| {
        let [offsets, columns, values] = one_row(c, 4 * M)?;
        (CsrTransposedMatMul { columns: 1 }, [offsets, columns, values, ones(c, &[1, 16 * M])?])
    };
    "a long sparse row times a matrix without columns": |c| {
        let [offsets, columns, values] = one_row(c, 30 * M)?;
        (CsrMatMul, [offsets, columns, values, ones(c, &[1, 0])?])
    };
    "a long sparse column times a narrow matrix": |c| {
        let [offsets, columns, values] = one_row(c, 28 * M)?;
        (CsrTransposedMatMul { columns: 1 }, [offsets, columns, values, ones(c, &[1, 12])?])
    };
    "a gradient of a long sparse row": |c| {
        let [offsets, columns, _] = one_row(c, 4 * M)?;
        (CsrValuesGradient, [offsets, columns, ones(c, &[1, 16 * M])?, ones(c, &[1, 16 * M])?])
    };
    "points and as many centroids": |c| (KMeansAssign, [ones(c, &[4096, 2048])?, ones(c, &[4096, 2048])?]);
    "points of many dimensions": |c| (KMeansAssign, [ones(c, &[5, 2 * M])?, ones(c, &[9, 2 * M])?]);
    "points that nothing is near to": |c| {
        (KMeansAssign, [ones(c, &[4096, 2048])?, c.full(&[4096, 2048], DType::F32, f64::NAN)?])
    };
    "points and centroids of no dimensions": |c| {
        (KMeansAssign, [ones(c, &[1 << 16, 0])?, ones(c, &[u32::MAX as usize, 0])?])
    };
    "sums of points of many dimensions": |c| {
        (KMeansAccumulate { clusters: 1 }, [ones(c, &[2, 10 * M])?, zeros(c, &[2], DType::U32)?])
    };
    "sums of many points": |c| {
        (KMeansAccumulate { clusters: 3 }, [ones(c, &[20 * M, 2])?, zeros(c, &[20 * M], DType::U32)?])
    };
    "sums of the points of millions of clusters": |c| {
        (KMeansAccumulate { clusters: 4 * M + 1 }, [ones(c, &[16 * M, 1])?, zeros(c, &[16 * M], DType::U32)?])
    };
    // arena
    "an assignment": |c| (Assign, [ones(c, &[MOST])?, repeated(c, &[MOST])?]);
    "an accumulation": |c| (Accumulate { scale: 0.5 }, [ones(c, &[HALF])?, ones(c, &[HALF])?]);
    "a blend": |c| (Blend { amount: 0.5 }, [ones(c, &[HALF])?, ones(c, &[HALF])?]);
    "a step of Adam": |c| {
        let op = Optimize { optimizer: Optimizer::Adam(Adam::default()), rate: 0.1, step: 2 };
        (op, [ones(c, &[15 * M])?, ones(c, &[15 * M])?, ones(c, &[15 * M])?, ones(c, &[15 * M])?])
    };
    "a clipped norm": |c| (ClipNorm { limit: 0.5 }, [ones(c, &[MOST])?, c.full(&[], DType::F32, 4.0)?]);
    "an ADMM gradient": |c| {
        (AdmmGradient { rho: 0.5 }, [ones(c, &[15 * M])?, ones(c, &[15 * M])?, ones(c, &[15 * M])?, ones(c, &[15 * M])?])
    };
    "an ADMM dual": |c| (AdmmDual, [ones(c, &[20 * M])?, ones(c, &[20 * M])?, ones(c, &[20 * M])?]);
    // codec
    "a cast that saturates": |c| (CastSaturating, [ones(c, &[40 * M])?]);
    "quantized elements": |c| (Quantize { bits: 8, bucket: M, stream: STREAM }, [ones(c, &[48 * M])?]);
    "elements from their levels": |c| {
        let op = Dequantize { bits: 8, bucket: M, elements: 48 * M };
        (op, [ones(c, &[48])?, zeros(c, &[12 * M], DType::U32)?])
    };
    "the largest in size": |c| (Largest { count: 20 * M }, [ones(c, &[22 * M])?]);
    "significant changes": |c| (Significant { threshold: 0.01 }, [ones(c, &[20 * M])?, ones(c, &[20 * M])?]);
    "sums at many places": |c| {
        let places = c.run_one(Iota { count: 20 * M, dtype: DType::U32, start: 0, step: 1 }, &[])?;
        (AddAt { scale: 0.5 }, [ones(c, &[20 * M])?, ones(c, &[20 * M])?, places])
    };
}
