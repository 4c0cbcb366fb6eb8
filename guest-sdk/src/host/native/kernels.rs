//! `wit/kernels.wit`.

use weft_gpu::op;

use super::tensor::Tensor;
use super::{context, dtype, made, refused, sizes, stream};
use crate::bindings::weft::train::kernels::{BinaryOp, Comparison, Reducer, Reduction, Resampling, UnaryOp};
use crate::bindings::weft::train::tensor::TensorType;
use crate::{Error, Result};

type Pair = (u32, u32);

fn pair((down, across): Pair) -> [usize; 2] {
    [down as usize, across as usize]
}

fn both(tensors: weft_gpu::Result<(weft_gpu::Tensor, weft_gpu::Tensor)>) -> Result<(Tensor, Tensor)> {
    tensors.map(|(first, second)| (Tensor(first), Tensor(second))).map_err(refused)
}

fn function(op: UnaryOp) -> op::Unary {
    match op {
        UnaryOp::Neg => op::Unary::Neg,
        UnaryOp::Exp => op::Unary::Exp,
        UnaryOp::Log => op::Unary::Log,
        UnaryOp::Sqrt => op::Unary::Sqrt,
        UnaryOp::Rsqrt => op::Unary::Rsqrt,
        UnaryOp::Abs => op::Unary::Abs,
        UnaryOp::Sign => op::Unary::Sign,
        UnaryOp::Tanh => op::Unary::Tanh,
        UnaryOp::Sigmoid => op::Unary::Sigmoid,
        UnaryOp::Relu => op::Unary::Relu,
        UnaryOp::Relu6 => op::Unary::Relu6,
        UnaryOp::Gelu => op::Unary::Gelu,
        UnaryOp::Silu => op::Unary::Silu,
        UnaryOp::HardSwish => op::Unary::HardSwish,
        UnaryOp::HardSigmoid => op::Unary::HardSigmoid,
    }
}

pub fn unary(op: UnaryOp, x: &Tensor) -> Result<Tensor> {
    made(x.0.unary(function(op)))
}

pub fn binary(op: BinaryOp, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let op = match op {
        BinaryOp::Add => op::Binary::Add,
        BinaryOp::Sub => op::Binary::Sub,
        BinaryOp::Mul => op::Binary::Mul,
        BinaryOp::Div => op::Binary::Div,
        BinaryOp::Maximum => op::Binary::Maximum,
        BinaryOp::Minimum => op::Binary::Minimum,
        BinaryOp::Pow => op::Binary::Pow,
    };
    made(a.0.binary(op, &b.0))
}

pub fn compare(op: Comparison, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let op = match op {
        Comparison::Equal => op::Comparison::Eq,
        Comparison::NotEqual => op::Comparison::Ne,
        Comparison::Less => op::Comparison::Lt,
        Comparison::LessOrEqual => op::Comparison::Le,
        Comparison::Greater => op::Comparison::Gt,
        Comparison::GreaterOrEqual => op::Comparison::Ge,
    };
    made(a.0.compare(op, &b.0))
}

pub fn select(condition: &Tensor, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    made(condition.0.select(&a.0, &b.0))
}

pub fn cast(x: &Tensor, ty: TensorType) -> Result<Tensor> {
    made(x.0.cast(dtype(ty)))
}

pub fn affine(x: &Tensor, scale: f32, offset: f32) -> Result<Tensor> {
    made(x.0.affine(scale, offset))
}

pub fn clamp(x: &Tensor, low: f32, high: f32) -> Result<Tensor> {
    made(x.0.clamp(low, high))
}

pub fn leaky_relu(x: &Tensor, slope: f32) -> Result<Tensor> {
    made(x.0.leaky(slope))
}

pub fn power(x: &Tensor, exponent: f32) -> Result<Tensor> {
    made(x.0.powf(exponent))
}

pub fn soft_threshold(x: &Tensor, threshold: f32) -> Result<Tensor> {
    made(x.0.soft_threshold(threshold))
}

/// The axes whose bits are set.
fn axes(bits: u32) -> Vec<usize> {
    (0..u32::BITS).filter(|axis| bits & (1 << axis) != 0).map(|axis| axis as usize).collect()
}

pub fn reduce(op: Reducer, x: &Tensor, over: u32, keep: bool) -> Result<Tensor> {
    let op = match op {
        Reducer::Sum => op::Reducer::Sum,
        Reducer::Mean => op::Reducer::Mean,
        Reducer::Max => op::Reducer::Max,
        Reducer::Min => op::Reducer::Min,
        Reducer::SumSquares => op::Reducer::SumSquares,
    };
    made(x.0.reduce(op, &axes(over), keep))
}

pub fn variance(x: &Tensor, over: u32, correction: u32, keep: bool) -> Result<Tensor> {
    made(x.0.reduce(op::Reducer::Variance { correction }, &axes(over), keep))
}

pub fn arg_max(x: &Tensor, axis: u32, keep: bool) -> Result<Tensor> {
    made(x.0.arg_max(axis as usize, keep))
}

pub fn arg_min(x: &Tensor, axis: u32, keep: bool) -> Result<Tensor> {
    made(x.0.arg_min(axis as usize, keep))
}

pub fn top_k(x: &Tensor, count: u32) -> Result<(Tensor, Tensor)> {
    both(x.0.top_k(count as usize))
}

pub fn reshape(x: &Tensor, dimensions: &[u32]) -> Result<Tensor> {
    made(x.0.reshape(&sizes(dimensions)))
}

pub fn permute(x: &Tensor, order: &[u32]) -> Result<Tensor> {
    made(x.0.permute(&sizes(order)))
}

pub fn transpose(x: &Tensor) -> Result<Tensor> {
    made(x.0.transposed())
}

pub fn expand(x: &Tensor, dimensions: &[u32]) -> Result<Tensor> {
    made(x.0.expand(&sizes(dimensions)))
}

pub fn slice(x: &Tensor, starts: &[u32], counts: &[u32], steps: &[u32]) -> Result<Tensor> {
    made(x.0.slice(&sizes(starts), &sizes(counts), &sizes(steps)))
}

pub fn narrow(x: &Tensor, axis: u32, start: u32, size: u32) -> Result<Tensor> {
    made(x.0.narrow(axis as usize, start as usize, size as usize))
}

pub fn pad(x: &Tensor, before: &[u32], after: &[u32], value: f32) -> Result<Tensor> {
    made(x.0.pad(&sizes(before), &sizes(after), value))
}

pub fn concat(tensors: &[&Tensor], axis: u32) -> Result<Tensor> {
    let tensors: Vec<_> = tensors.iter().map(|tensor| &tensor.0).collect();
    made(context().concat(&tensors, axis as usize))
}

pub fn gather_rows(x: &Tensor, index: &Tensor) -> Result<Tensor> {
    made(x.0.gather_rows(&index.0))
}

pub fn scatter_add_rows(x: &Tensor, index: &Tensor, count: u32) -> Result<Tensor> {
    made(x.0.scatter_add_rows(&index.0, count as usize))
}

pub fn embedding(table: &Tensor, tokens: &Tensor) -> Result<Tensor> {
    made(table.0.embedding(&tokens.0))
}

pub fn one_hot(x: &Tensor, classes: u32) -> Result<Tensor> {
    made(x.0.one_hot(classes as usize))
}

pub fn resize(x: &Tensor, mode: Resampling, height: u32, width: u32) -> Result<Tensor> {
    let mode = match mode {
        Resampling::Nearest => op::Resampling::Nearest,
        Resampling::Bilinear => op::Resampling::Bilinear,
    };
    made(x.0.resize(mode, height as usize, width as usize))
}

pub fn iota(ty: TensorType, count: u32, start: i32, step: i32) -> Result<Tensor> {
    made(context().iota(count as usize, dtype(ty), start, step))
}

pub fn uniform(dimensions: &[u32], low: f32, high: f32) -> Result<Tensor> {
    made(context().uniform(&sizes(dimensions), low, high, stream()))
}

pub fn normal(dimensions: &[u32], mean: f32, deviation: f32) -> Result<Tensor> {
    made(context().normal(&sizes(dimensions), mean, deviation, stream()))
}

pub fn dropout(x: &Tensor, rate: f32) -> Result<Tensor> {
    made(x.0.dropout(rate, stream()))
}

pub fn matmul(a: &Tensor, b: &Tensor, scale: f32) -> Result<Tensor> {
    made(a.0.scaled_matmul(&b.0, scale))
}

pub fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, activation: Option<UnaryOp>) -> Result<Tensor> {
    made(x.0.linear(&weight.0, bias.map(|bias| &bias.0), activation.map(function)))
}

pub fn conv2d(
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: u32,
) -> Result<Tensor> {
    let how =
        op::Conv2d { stride: pair(stride), padding: pair(padding), dilation: pair(dilation), groups: groups as usize };
    made(x.0.conv2d(&weight.0, bias.map(|bias| &bias.0), how))
}

pub fn csr_matmul(values: &Tensor, offsets: &Tensor, columns: &Tensor, x: &Tensor) -> Result<Tensor> {
    made(values.0.csr_matmul(&offsets.0, &columns.0, &x.0))
}

pub fn csr_transposed_matmul(
    values: &Tensor,
    offsets: &Tensor,
    columns: &Tensor,
    x: &Tensor,
    width: u32,
) -> Result<Tensor> {
    made(values.0.csr_transposed_matmul(&offsets.0, &columns.0, &x.0, width as usize))
}

pub fn max_pool2d(x: &Tensor, kernel: Pair, stride: Pair, padding: Pair, ceil: bool) -> Result<Tensor> {
    let (kernel, stride, padding) = (pair(kernel), pair(stride), pair(padding));
    made(x.0.max_pool2d(op::Window { kernel, stride, padding, ceil, count_padding: false }))
}

pub fn average_pool2d(
    x: &Tensor,
    kernel: Pair,
    stride: Pair,
    padding: Pair,
    ceil: bool,
    count_padding: bool,
) -> Result<Tensor> {
    let (kernel, stride, padding) = (pair(kernel), pair(stride), pair(padding));
    made(x.0.average_pool2d(op::Window { kernel, stride, padding, ceil, count_padding }))
}

pub fn adaptive_average_pool2d(x: &Tensor, height: u32, width: u32) -> Result<Tensor> {
    made(x.0.adaptive_average_pool2d(height as usize, width as usize))
}

pub fn adaptive_max_pool2d(x: &Tensor, height: u32, width: u32) -> Result<Tensor> {
    made(x.0.adaptive_max_pool2d(height as usize, width as usize))
}

pub fn softmax(x: &Tensor) -> Result<Tensor> {
    made(x.0.softmax())
}

pub fn log_softmax(x: &Tensor) -> Result<Tensor> {
    made(x.0.log_softmax())
}

pub fn masked_softmax(x: &Tensor, mask: &Tensor) -> Result<Tensor> {
    made(x.0.masked_softmax(&mask.0))
}

#[expect(clippy::too_many_arguments, reason = "the contract's own")]
pub fn batch_norm(
    x: &Tensor,
    scale: &Tensor,
    shift: &Tensor,
    running_mean: &Tensor,
    running_variance: &Tensor,
    momentum: f32,
    epsilon: f32,
    activation: Option<UnaryOp>,
) -> Result<Tensor> {
    let count = x.0.shape().elements() / scale.0.shape().elements().max(1);
    if count < 2 {
        return Err(Error::bad_shape("`batch-norm`: one value per channel has no variance"));
    }
    let (y, mean, variance) = x.0.batch_norm(&scale.0, &shift.0, epsilon, activation.map(function)).map_err(refused)?;
    // The batch is normalized by its biased variance, but the running one follows the unbiased.
    let unbiased = variance.affine(count as f32 / (count - 1) as f32, 0.0).map_err(refused)?;
    running_mean.0.blend(&mean, momentum).map_err(refused)?;
    running_variance.0.blend(&unbiased, momentum).map_err(refused)?;
    made(Ok(y))
}

pub fn batch_norm_inference(
    x: &Tensor,
    scale: &Tensor,
    shift: &Tensor,
    mean: &Tensor,
    variance: &Tensor,
    epsilon: f32,
    activation: Option<UnaryOp>,
) -> Result<Tensor> {
    let (parameters, statistics) = ([&scale.0, &shift.0], [&mean.0, &variance.0]);
    made(x.0.batch_norm_inference(parameters, statistics, epsilon, activation.map(function)))
}

pub fn layer_norm(x: &Tensor, scale: &Tensor, shift: &Tensor, epsilon: f32) -> Result<Tensor> {
    made(x.0.layer_norm(&scale.0, &shift.0, epsilon))
}

pub fn local_response_norm(x: &Tensor, size: u32, alpha: f32, beta: f32, k: f32) -> Result<Tensor> {
    made(x.0.local_response_norm(size as usize, alpha, beta, k))
}

fn loss(kind: op::LossKind, reduction: Reduction, x: &Tensor, target: &Tensor) -> Result<Tensor> {
    let reduction = match reduction {
        Reduction::Mean => op::Reduction::Mean,
        Reduction::Sum => op::Reduction::Sum,
    };
    made(x.0.loss(kind, reduction, &target.0))
}

pub fn cross_entropy(logits: &Tensor, labels: &Tensor, smoothing: f32, reduction: Reduction) -> Result<Tensor> {
    loss(op::LossKind::SoftmaxCrossEntropy { smoothing }, reduction, logits, labels)
}

pub fn nll(log_probabilities: &Tensor, labels: &Tensor, reduction: Reduction) -> Result<Tensor> {
    loss(op::LossKind::Nll, reduction, log_probabilities, labels)
}

pub fn binary_cross_entropy(logits: &Tensor, targets: &Tensor, reduction: Reduction) -> Result<Tensor> {
    loss(op::LossKind::BinaryCrossEntropyWithLogits, reduction, logits, targets)
}

pub fn hinge(predictions: &Tensor, targets: &Tensor, reduction: Reduction) -> Result<Tensor> {
    loss(op::LossKind::Hinge, reduction, predictions, targets)
}

pub fn mse(predictions: &Tensor, targets: &Tensor, reduction: Reduction) -> Result<Tensor> {
    loss(op::LossKind::Mse, reduction, predictions, targets)
}

pub fn kmeans_assign(x: &Tensor, centroids: &Tensor) -> Result<(Tensor, Tensor)> {
    both(x.0.kmeans_assign(&centroids.0))
}

pub fn kmeans_accumulate(x: &Tensor, assignment: &Tensor, clusters: u32) -> Result<(Tensor, Tensor)> {
    both(x.0.kmeans_accumulate(&assignment.0, clusters as usize))
}

pub fn assign(into: &Tensor, x: &Tensor) -> Result<()> {
    into.0.assign(&x.0).map_err(refused)
}

pub fn accumulate(into: &Tensor, x: &Tensor, scale: f32) -> Result<()> {
    into.0.accumulate(&x.0, scale).map_err(refused)
}

pub fn blend(into: &Tensor, x: &Tensor, amount: f32) -> Result<()> {
    into.0.blend(&x.0, amount).map_err(refused)
}

#[expect(clippy::unnecessary_wraps, reason = "the host can refuse")]
pub fn detach(x: &Tensor) -> Result<Tensor> {
    Ok(Tensor(x.0.detach()))
}

pub fn backward(loss: &Tensor) -> Result<()> {
    loss.0.backward().map_err(refused)
}

#[expect(clippy::unnecessary_wraps, reason = "the host can refuse")]
pub fn gradient(weight: &Tensor) -> Result<Option<Tensor>> {
    Ok(weight.0.gradient().map(Tensor))
}
