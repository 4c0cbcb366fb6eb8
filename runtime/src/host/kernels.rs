//! `weft:train/kernels`: the operations of `weft-gpu`, as a guest calls them.
//!
//! Every call is checked by the operation itself: shapes, types, indices. What it makes goes into the instance's tensors.

use wasmtime::Result;
use wasmtime::component::Resource;
use weft_gpu::op::{self, AdaptiveAveragePool2d, AdaptiveMaxPool2d, LossKind, Window};
use weft_gpu::{Axes, MAX_RANK, Tensor};

use super::HostState;
use super::bindings::weft::train::kernels::{
    BinaryOp, Comparison, Error, Host, Reducer, Reduction, Resampling, TensorType, UnaryOp,
};
use super::tensor::{Handle, Pair, sizes};

type Given = Result<Result<Resource<Handle>, Error>>;
type GivenPair = Result<Result<Pair, Error>>;
type Done = Result<Result<(), Error>>;
type Arg = Resource<Handle>;

impl From<UnaryOp> for op::Unary {
    fn from(op: UnaryOp) -> Self {
        match op {
            UnaryOp::Neg => Self::Neg,
            UnaryOp::Exp => Self::Exp,
            UnaryOp::Log => Self::Log,
            UnaryOp::Sqrt => Self::Sqrt,
            UnaryOp::Rsqrt => Self::Rsqrt,
            UnaryOp::Abs => Self::Abs,
            UnaryOp::Sign => Self::Sign,
            UnaryOp::Tanh => Self::Tanh,
            UnaryOp::Sigmoid => Self::Sigmoid,
            UnaryOp::Relu => Self::Relu,
            UnaryOp::Relu6 => Self::Relu6,
            UnaryOp::Gelu => Self::Gelu,
            UnaryOp::Silu => Self::Silu,
            UnaryOp::HardSwish => Self::HardSwish,
            UnaryOp::HardSigmoid => Self::HardSigmoid,
        }
    }
}

impl From<BinaryOp> for op::Binary {
    fn from(op: BinaryOp) -> Self {
        match op {
            BinaryOp::Add => Self::Add,
            BinaryOp::Sub => Self::Sub,
            BinaryOp::Mul => Self::Mul,
            BinaryOp::Div => Self::Div,
            BinaryOp::Maximum => Self::Maximum,
            BinaryOp::Minimum => Self::Minimum,
            BinaryOp::Pow => Self::Pow,
        }
    }
}

impl From<Comparison> for op::Comparison {
    fn from(op: Comparison) -> Self {
        match op {
            Comparison::Equal => Self::Eq,
            Comparison::NotEqual => Self::Ne,
            Comparison::Less => Self::Lt,
            Comparison::LessOrEqual => Self::Le,
            Comparison::Greater => Self::Gt,
            Comparison::GreaterOrEqual => Self::Ge,
        }
    }
}

impl From<Reducer> for op::Reducer {
    fn from(reducer: Reducer) -> Self {
        match reducer {
            Reducer::Sum => Self::Sum,
            Reducer::Mean => Self::Mean,
            Reducer::Max => Self::Max,
            Reducer::Min => Self::Min,
            Reducer::SumSquares => Self::SumSquares,
        }
    }
}

impl From<Reduction> for op::Reduction {
    fn from(reduction: Reduction) -> Self {
        match reduction {
            Reduction::Mean => Self::Mean,
            Reduction::Sum => Self::Sum,
        }
    }
}

impl From<Resampling> for op::Resampling {
    fn from(mode: Resampling) -> Self {
        match mode {
            Resampling::Nearest => Self::Nearest,
            Resampling::Bilinear => Self::Bilinear,
        }
    }
}

fn pair((down, across): (u32, u32)) -> [usize; 2] {
    [down as usize, across as usize]
}

fn axes(bits: u32) -> Result<Axes, Error> {
    if bits >> MAX_RANK != 0 {
        return Err(Error::BadShape(format!("axes {bits:#b}: a tensor has at most {MAX_RANK}")));
    }
    let named: smallvec::SmallVec<[usize; MAX_RANK]> = (0..MAX_RANK).filter(|axis| bits >> axis & 1 == 1).collect();
    Ok(Axes::new(&named)?)
}

fn window(kernel: (u32, u32), stride: (u32, u32), padding: (u32, u32), ceil: bool, count_padding: bool) -> Window {
    Window { kernel: pair(kernel), stride: pair(stride), padding: pair(padding), ceil, count_padding }
}

impl HostState {
    /// Gives what an operation on one tensor makes.
    fn of(&mut self, x: &Arg, make: impl FnOnce(&Tensor) -> weft_gpu::Result<Tensor>) -> Given {
        self.give(|host| Ok(make(host.tensor(x)?)?))
    }

    /// Gives what an operation on two tensors makes.
    fn of_two(&mut self, a: &Arg, b: &Arg, make: impl FnOnce(&Tensor, &Tensor) -> weft_gpu::Result<Tensor>) -> Given {
        self.give(|host| Ok(make(host.tensor(a)?, host.tensor(b)?)?))
    }

    fn maybe(&self, x: Option<&Arg>) -> Result<Option<&Tensor>, Error> {
        x.map(|x| self.tensor(x)).transpose()
    }

    fn loss(&mut self, kind: LossKind, x: &Arg, target: &Arg, reduction: Reduction) -> Given {
        self.of_two(x, target, |x, target| x.loss(kind, reduction.into(), target))
    }
}

impl Host for HostState {
    fn unary(&mut self, op: UnaryOp, x: Arg) -> Given {
        self.of(&x, |x| x.unary(op.into()))
    }

    fn binary(&mut self, op: BinaryOp, a: Arg, b: Arg) -> Given {
        self.of_two(&a, &b, |a, b| a.binary(op.into(), b))
    }

    fn compare(&mut self, op: Comparison, a: Arg, b: Arg) -> Given {
        self.of_two(&a, &b, |a, b| a.compare(op.into(), b))
    }

    fn select(&mut self, condition: Arg, a: Arg, b: Arg) -> Given {
        self.give(|host| Ok(host.tensor(&condition)?.select(host.tensor(&a)?, host.tensor(&b)?)?))
    }

    fn cast(&mut self, x: Arg, ty: TensorType) -> Given {
        self.of(&x, |x| x.cast(ty.into()))
    }

    fn affine(&mut self, x: Arg, scale: f32, offset: f32) -> Given {
        self.of(&x, |x| x.affine(scale, offset))
    }

    fn clamp(&mut self, x: Arg, low: f32, high: f32) -> Given {
        self.of(&x, |x| x.clamp(low, high))
    }

    fn leaky_relu(&mut self, x: Arg, slope: f32) -> Given {
        self.of(&x, |x| x.leaky(slope))
    }

    fn power(&mut self, x: Arg, exponent: f32) -> Given {
        self.of(&x, |x| x.powf(exponent))
    }

    fn soft_threshold(&mut self, x: Arg, threshold: f32) -> Given {
        self.of(&x, |x| x.soft_threshold(threshold))
    }

    fn reduce(&mut self, op: Reducer, x: Arg, bits: u32, keep: bool) -> Given {
        self.give(|host| {
            let x = host.tensor(&x)?;
            Ok(x.context().run_one(op::Reduce { reducer: op.into(), axes: axes(bits)?, keep }, &[x])?)
        })
    }

    fn variance(&mut self, x: Arg, bits: u32, correction: u32, keep: bool) -> Given {
        self.give(|host| {
            let (x, reducer) = (host.tensor(&x)?, op::Reducer::Variance { correction });
            Ok(x.context().run_one(op::Reduce { reducer, axes: axes(bits)?, keep }, &[x])?)
        })
    }

    fn arg_max(&mut self, x: Arg, axis: u32, keep: bool) -> Given {
        self.of(&x, |x| x.arg_max(axis as usize, keep))
    }

    fn arg_min(&mut self, x: Arg, axis: u32, keep: bool) -> Given {
        self.of(&x, |x| x.arg_min(axis as usize, keep))
    }

    fn top_k(&mut self, x: Arg, count: u32) -> GivenPair {
        self.give_pair(|host| Ok(host.tensor(&x)?.top_k(count as usize)?))
    }

    fn reshape(&mut self, x: Arg, dimensions: Vec<u32>) -> Given {
        self.of(&x, |x| x.reshape(&sizes(&dimensions)))
    }

    fn permute(&mut self, x: Arg, order: Vec<u32>) -> Given {
        self.of(&x, |x| x.permute(&sizes(&order)))
    }

    fn transpose(&mut self, x: Arg) -> Given {
        self.of(&x, Tensor::transposed)
    }

    fn expand(&mut self, x: Arg, dimensions: Vec<u32>) -> Given {
        self.of(&x, |x| x.expand(&sizes(&dimensions)))
    }

    fn slice(&mut self, x: Arg, starts: Vec<u32>, counts: Vec<u32>, steps: Vec<u32>) -> Given {
        self.of(&x, |x| x.slice(&sizes(&starts), &sizes(&counts), &sizes(&steps)))
    }

    fn narrow(&mut self, x: Arg, axis: u32, start: u32, size: u32) -> Given {
        self.of(&x, |x| x.narrow(axis as usize, start as usize, size as usize))
    }

    fn pad(&mut self, x: Arg, before: Vec<u32>, after: Vec<u32>, value: f32) -> Given {
        self.of(&x, |x| x.pad(&sizes(&before), &sizes(&after), value))
    }

    fn concat(&mut self, tensors: Vec<Arg>, axis: u32) -> Given {
        self.give(|host| {
            let tensors = tensors.iter().map(|tensor| host.tensor(tensor)).collect::<Result<Vec<&Tensor>, Error>>()?;
            Ok(host.device()?.concat(&tensors, axis as usize)?)
        })
    }

    fn gather_rows(&mut self, x: Arg, index: Arg) -> Given {
        self.of_two(&x, &index, Tensor::gather_rows)
    }

    fn scatter_add_rows(&mut self, x: Arg, index: Arg, count: u32) -> Given {
        self.of_two(&x, &index, |x, index| x.scatter_add_rows(index, count as usize))
    }

    fn embedding(&mut self, table: Arg, tokens: Arg) -> Given {
        self.of_two(&table, &tokens, Tensor::embedding)
    }

    fn one_hot(&mut self, x: Arg, classes: u32) -> Given {
        self.of(&x, |x| x.one_hot(classes as usize))
    }

    fn resize(&mut self, x: Arg, mode: Resampling, height: u32, width: u32) -> Given {
        self.of(&x, |x| x.resize(mode.into(), height as usize, width as usize))
    }

    fn iota(&mut self, ty: TensorType, count: u32, start: i32, step: i32) -> Given {
        self.give(|host| Ok(host.device()?.iota(count as usize, ty.into(), start, step)?))
    }

    fn uniform(&mut self, dimensions: Vec<u32>, low: f32, high: f32) -> Given {
        let stream = self.compute.draws.draw();
        self.give(|host| Ok(host.device()?.uniform(&sizes(&dimensions), low, high, stream?)?))
    }

    fn normal(&mut self, dimensions: Vec<u32>, mean: f32, deviation: f32) -> Given {
        let stream = self.compute.draws.draw();
        self.give(|host| Ok(host.device()?.normal(&sizes(&dimensions), mean, deviation, stream?)?))
    }

    fn dropout(&mut self, x: Arg, rate: f32) -> Given {
        let stream = self.compute.draws.draw();
        self.give(|host| Ok(host.tensor(&x)?.dropout(rate, stream?)?))
    }

    fn matmul(&mut self, a: Arg, b: Arg, scale: f32) -> Given {
        self.of_two(&a, &b, |a, b| a.scaled_matmul(b, scale))
    }

    fn linear(&mut self, x: Arg, weight: Arg, bias: Option<Arg>, activation: Option<UnaryOp>) -> Given {
        self.give(|host| {
            let (x, weight, bias) = (host.tensor(&x)?, host.tensor(&weight)?, host.maybe(bias.as_ref())?);
            Ok(x.linear(weight, bias, activation.map(Into::into))?)
        })
    }

    fn conv2d(
        &mut self,
        x: Arg,
        weight: Arg,
        bias: Option<Arg>,
        stride: (u32, u32),
        padding: (u32, u32),
        dilation: (u32, u32),
        groups: u32,
    ) -> Given {
        let conv = op::Conv2d {
            stride: pair(stride),
            padding: pair(padding),
            dilation: pair(dilation),
            groups: groups as usize,
        };
        self.give(|host| Ok(host.tensor(&x)?.conv2d(host.tensor(&weight)?, host.maybe(bias.as_ref())?, conv)?))
    }

    fn csr_matmul(&mut self, values: Arg, offsets: Arg, columns: Arg, x: Arg) -> Given {
        self.give(|host| {
            let (offsets, columns) = (host.tensor(&offsets)?, host.tensor(&columns)?);
            Ok(host.tensor(&values)?.csr_matmul(offsets, columns, host.tensor(&x)?)?)
        })
    }

    fn csr_transposed_matmul(&mut self, values: Arg, offsets: Arg, columns: Arg, x: Arg, width: u32) -> Given {
        self.give(|host| {
            let (offsets, columns) = (host.tensor(&offsets)?, host.tensor(&columns)?);
            Ok(host.tensor(&values)?.csr_transposed_matmul(offsets, columns, host.tensor(&x)?, width as usize)?)
        })
    }

    fn max_pool2d(&mut self, x: Arg, kernel: (u32, u32), stride: (u32, u32), padding: (u32, u32), ceil: bool) -> Given {
        self.of(&x, |x| x.max_pool2d(window(kernel, stride, padding, ceil, false)))
    }

    fn average_pool2d(
        &mut self,
        x: Arg,
        kernel: (u32, u32),
        stride: (u32, u32),
        padding: (u32, u32),
        ceil: bool,
        count_padding: bool,
    ) -> Given {
        self.of(&x, |x| x.average_pool2d(window(kernel, stride, padding, ceil, count_padding)))
    }

    fn adaptive_average_pool2d(&mut self, x: Arg, height: u32, width: u32) -> Given {
        let op = AdaptiveAveragePool2d { height: height as usize, width: width as usize };
        self.of(&x, |x| x.context().run_one(op, &[x]))
    }

    fn adaptive_max_pool2d(&mut self, x: Arg, height: u32, width: u32) -> Given {
        let op = AdaptiveMaxPool2d { height: height as usize, width: width as usize };
        self.of(&x, |x| x.context().run_one(op, &[x]))
    }

    fn softmax(&mut self, x: Arg) -> Given {
        self.of(&x, Tensor::softmax)
    }

    fn log_softmax(&mut self, x: Arg) -> Given {
        self.of(&x, Tensor::log_softmax)
    }

    fn masked_softmax(&mut self, x: Arg, mask: Arg) -> Given {
        self.of_two(&x, &mask, Tensor::masked_softmax)
    }

    fn batch_norm(
        &mut self,
        x: Arg,
        scale: Arg,
        shift: Arg,
        running_mean: Arg,
        running_variance: Arg,
        momentum: f32,
        epsilon: f32,
        activation: Option<UnaryOp>,
    ) -> Given {
        self.give(|host| {
            let (x, scale, shift) = (host.tensor(&x)?, host.tensor(&scale)?, host.tensor(&shift)?);
            let (running_mean, running_variance) = (host.tensor(&running_mean)?, host.tensor(&running_variance)?);
            let (y, mean, variance) = x.batch_norm(scale, shift, epsilon, activation.map(Into::into))?;
            let count = x.shape().elements() as f32 / scale.shape().elements().max(1) as f32;
            running_mean.blend(&mean, momentum)?;
            // The batch is normalized by its biased variance, but the running one follows the unbiased.
            running_variance.blend(&variance.affine(count / (count - 1.0).max(1.0), 0.0)?, momentum)?;
            Ok(y)
        })
    }

    fn batch_norm_inference(
        &mut self,
        x: Arg,
        scale: Arg,
        shift: Arg,
        mean: Arg,
        variance: Arg,
        epsilon: f32,
        activation: Option<UnaryOp>,
    ) -> Given {
        self.give(|host| {
            let (scale, shift) = (host.tensor(&scale)?, host.tensor(&shift)?);
            let (mean, variance) = (host.tensor(&mean)?, host.tensor(&variance)?);
            let activation = activation.map(Into::into);
            Ok(host.tensor(&x)?.batch_norm_inference([scale, shift], [mean, variance], epsilon, activation)?)
        })
    }

    fn layer_norm(&mut self, x: Arg, scale: Arg, shift: Arg, epsilon: f32) -> Given {
        self.give(|host| Ok(host.tensor(&x)?.layer_norm(host.tensor(&scale)?, host.tensor(&shift)?, epsilon)?))
    }

    fn local_response_norm(&mut self, x: Arg, size: u32, alpha: f32, beta: f32, k: f32) -> Given {
        self.of(&x, |x| x.local_response_norm(size as usize, alpha, beta, k))
    }

    fn cross_entropy(&mut self, logits: Arg, labels: Arg, smoothing: f32, reduction: Reduction) -> Given {
        self.loss(LossKind::SoftmaxCrossEntropy { smoothing }, &logits, &labels, reduction)
    }

    fn nll(&mut self, log_probabilities: Arg, labels: Arg, reduction: Reduction) -> Given {
        self.loss(LossKind::Nll, &log_probabilities, &labels, reduction)
    }

    fn binary_cross_entropy(&mut self, logits: Arg, targets: Arg, reduction: Reduction) -> Given {
        self.loss(LossKind::BinaryCrossEntropyWithLogits, &logits, &targets, reduction)
    }

    fn hinge(&mut self, predictions: Arg, targets: Arg, reduction: Reduction) -> Given {
        self.loss(LossKind::Hinge, &predictions, &targets, reduction)
    }

    fn mse(&mut self, predictions: Arg, targets: Arg, reduction: Reduction) -> Given {
        self.loss(LossKind::Mse, &predictions, &targets, reduction)
    }

    fn kmeans_assign(&mut self, x: Arg, centroids: Arg) -> GivenPair {
        self.give_pair(|host| Ok(host.tensor(&x)?.kmeans_assign(host.tensor(&centroids)?)?))
    }

    fn kmeans_accumulate(&mut self, x: Arg, assignment: Arg, clusters: u32) -> GivenPair {
        self.give_pair(|host| Ok(host.tensor(&x)?.kmeans_accumulate(host.tensor(&assignment)?, clusters as usize)?))
    }

    fn assign(&mut self, into: Arg, x: Arg) -> Done {
        Ok(self.in_place(&into, &x, Tensor::assign))
    }

    fn accumulate(&mut self, into: Arg, x: Arg, scale: f32) -> Done {
        Ok(self.in_place(&into, &x, |into, x| into.accumulate(x, scale)))
    }

    fn blend(&mut self, into: Arg, x: Arg, amount: f32) -> Done {
        Ok(self.in_place(&into, &x, |into, x| into.blend(x, amount)))
    }

    fn detach(&mut self, x: Arg) -> Given {
        self.of(&x, |x| Ok(x.detach()))
    }

    fn backward(&mut self, loss: Arg) -> Done {
        Ok(self.on_device(|host| Ok(host.tensor(&loss)?.backward()?)))
    }

    fn gradient(&mut self, weight: Arg) -> Result<Result<Option<Resource<Handle>>, Error>> {
        let gradient = self.tensor(&weight).map(Tensor::gradient);
        Ok(gradient.and_then(|gradient| gradient.map(|gradient| self.compute.tensors.hold(gradient)).transpose()))
    }
}

impl HostState {
    fn in_place(
        &self,
        into: &Arg,
        x: &Arg,
        write: impl FnOnce(&Tensor, &Tensor) -> weft_gpu::Result<()>,
    ) -> Result<(), Error> {
        self.on_device(|host| Ok(write(host.tensor(into)?, host.tensor(x)?)?))
    }
}
