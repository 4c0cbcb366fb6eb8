//! Layers as the models use them.
//!
//! A model first declares its layers with a [`Builder`], which notes every parameter's name and shape; then all
//! parameters are laid out in one arena. A layer holds only the numbers of its parameters and finds them through the
//! [`Pass`] that it is run in.

use crate::arena::{Arena, ArenaBuilder, OptimizerState};
use crate::context::Context;
use crate::dtype::DType;
use crate::error::Result;
use crate::op::{Conv2d, Optimizer, Sgd, Stream, Unary, Window};
use crate::tensor::Tensor;

use super::{Mode, initial};

/// A model's way from samples to outputs.
pub(super) trait Network: Send + Sync {
    fn forward(&self, x: &Tensor, pass: &mut Pass<'_>) -> Result<Tensor>;
}

/// Which parameter: the number under which it was declared.
#[derive(Clone, Copy)]
struct Parameter(usize);

/// Collects what a model consists of, before any memory is taken.
#[derive(Default)]
pub(super) struct Builder {
    parameters: Vec<(String, Vec<usize>)>,
    /// The norm's path and its channels.
    statistics: Vec<(String, usize)>,
}

impl Builder {
    fn parameter(&mut self, name: String, shape: &[usize]) -> Parameter {
        self.parameters.push((name, shape.to_vec()));
        Parameter(self.parameters.len() - 1)
    }

    /// How many numbers will be trained.
    #[cfg(test)]
    pub(super) fn parameters(&self) -> usize {
        self.parameters.iter().map(|(_, shape)| shape.iter().product::<usize>()).sum()
    }

    pub(super) fn linear(&mut self, path: &str, from: usize, to: usize) -> Linear {
        Linear {
            weight: self.parameter(join(path, "weight"), &[to, from]),
            bias: self.parameter(join(path, "bias"), &[to]),
        }
    }

    /// Linear layers on one input that PyTorch keeps as one: all their weights come first, then all biases.
    pub(super) fn linear_parts<const N: usize>(
        &mut self,
        path: &str,
        parts: [&str; N],
        from: usize,
        to: usize,
    ) -> [Linear; N] {
        let weights = parts.map(|part| self.parameter(format!("{path}.in_proj_weight.{part}"), &[to, from]));
        let biases = parts.map(|part| self.parameter(format!("{path}.in_proj_bias.{part}"), &[to]));
        std::array::from_fn(|part| Linear { weight: weights[part], bias: biases[part] })
    }

    /// `sizes`: channels out, channels in, and the side of the square kernel.
    pub(super) fn conv(&mut self, path: &str, sizes: [usize; 3], conv: Conv2d, bias: bool) -> Conv {
        let [to, from, kernel] = sizes;
        Conv {
            weight: self.parameter(join(path, "weight"), &[to, from / conv.groups, kernel, kernel]),
            bias: bias.then(|| self.parameter(join(path, "bias"), &[to])),
            conv,
        }
    }

    /// `amount`: how far the running statistics go towards those of each batch.
    pub(super) fn batch_norm(&mut self, path: &str, channels: usize, epsilon: f32, amount: f32) -> BatchNorm {
        self.statistics.push((path.to_owned(), channels));
        BatchNorm {
            scale: self.parameter(join(path, "weight"), &[channels]),
            shift: self.parameter(join(path, "bias"), &[channels]),
            statistics: self.statistics.len() - 1,
            epsilon,
            amount,
        }
    }

    pub(super) fn layer_norm(&mut self, path: &str, width: usize) -> LayerNorm {
        LayerNorm {
            scale: self.parameter(join(path, "weight"), &[width]),
            shift: self.parameter(join(path, "bias"), &[width]),
        }
    }

    pub(super) fn embedding(&mut self, path: &str, count: usize, width: usize) -> Embedding {
        Embedding(self.parameter(join(path, "weight"), &[count, width]))
    }

    /// Takes the memory and fills it.
    pub(super) fn build(self, context: &Context, seed: u32) -> Result<Declared> {
        let mut arena = ArenaBuilder::new();
        for (name, shape) in &self.parameters {
            arena.add(name, shape)?;
        }
        let arena = arena.build(context)?;
        let parameters = (0..arena.len()).map(|index| arena.parameter(index)).collect::<Result<Vec<Tensor>>>()?;
        for (number, (tensor, (name, _))) in parameters.iter().zip(&self.parameters).enumerate() {
            let values = initial::parameter(seed, number as u32, name, &tensor.shape());
            tensor.write(0, bytemuck::cast_slice(&values))?;
        }
        let statistics = self
            .statistics
            .iter()
            .map(|(_, channels)| {
                Ok(Statistics {
                    mean: context.zeros(&[*channels])?,
                    variance: context.full(&[*channels], DType::F32, 1.0)?,
                })
            })
            .collect::<Result<Vec<_>>>()?;
        let optimizer = arena.optimizer(Optimizer::Sgd(Sgd { momentum: 0.9, weight_decay: 1e-4, ..Sgd::default() }))?;
        Ok(Declared {
            statistics_paths: self.statistics.into_iter().map(|(path, _)| path).collect(),
            statistics,
            arena,
            parameters,
            optimizer,
        })
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// The running statistics of one batch normalization.
struct Statistics {
    mean: Tensor,
    variance: Tensor,
}

/// What a model consists of, in memory.
pub(super) struct Declared {
    arena: Arena,
    parameters: Vec<Tensor>,
    optimizer: OptimizerState,
    statistics: Vec<Statistics>,
    statistics_paths: Vec<String>,
}

impl Declared {
    pub(super) fn arena(&self) -> &Arena {
        &self.arena
    }

    pub(super) fn statistic(&self, name: &str) -> Option<&Tensor> {
        let (path, which) = name.rsplit_once('.')?;
        let statistics = self.statistics.get(self.statistics_paths.iter().position(|known| known == path)?)?;
        match which {
            "running_mean" => Some(&statistics.mean),
            "running_var" => Some(&statistics.variance),
            _ => None,
        }
    }

    /// One step of the optimizer.
    pub(super) fn descend(&mut self, rate: f32) -> Result<()> {
        self.optimizer.step(&self.arena, rate)
    }
}

/// Where dropout's random numbers come from: a stream of its own for every use.
pub(super) struct Draws(Stream);

impl Draws {
    pub(super) fn new(seed: u32) -> Self {
        Self(Stream { seed: u64::from(seed), offset: 0 })
    }

    fn next(&mut self) -> Stream {
        self.0.offset += 1;
        self.0
    }
}

/// One run of a network.
pub(super) struct Pass<'a> {
    declared: &'a Declared,
    mode: Mode,
    draws: Option<&'a mut Draws>,
}

impl<'a> Pass<'a> {
    /// Without `draws` nothing is dropped.
    pub(super) fn new(declared: &'a Declared, mode: Mode, draws: Option<&'a mut Draws>) -> Self {
        Self { declared, mode, draws }
    }

    fn parameter(&self, parameter: Parameter) -> &'a Tensor {
        &self.declared.parameters[parameter.0]
    }

    pub(super) fn dropout(&mut self, x: &Tensor, rate: f32) -> Result<Tensor> {
        match &mut self.draws {
            Some(draws) if self.mode == Mode::Training => x.dropout(rate, draws.next()),
            _ => Ok(x.clone()),
        }
    }
}

/// `x W^T + b`
pub(super) struct Linear {
    weight: Parameter,
    bias: Parameter,
}

impl Linear {
    pub(super) fn forward(&self, x: &Tensor, activation: Option<Unary>, pass: &Pass<'_>) -> Result<Tensor> {
        x.linear(pass.parameter(self.weight), Some(pass.parameter(self.bias)), activation)
    }
}

/// A convolution with a square kernel.
pub(super) struct Conv {
    weight: Parameter,
    bias: Option<Parameter>,
    conv: Conv2d,
}

impl Conv {
    pub(super) fn forward(&self, x: &Tensor, pass: &Pass<'_>) -> Result<Tensor> {
        x.conv2d(pass.parameter(self.weight), self.bias.map(|bias| pass.parameter(bias)), self.conv)
    }
}

/// Channels normalized over batch and places.
pub(super) struct BatchNorm {
    scale: Parameter,
    shift: Parameter,
    statistics: usize,
    epsilon: f32,
    amount: f32,
}

impl BatchNorm {
    /// The activation is one of those that normalization does on the way: relu, relu6 or hard-swish.
    pub(super) fn forward(&self, x: &Tensor, activation: Option<Unary>, pass: &Pass<'_>) -> Result<Tensor> {
        let (scale, shift) = (pass.parameter(self.scale), pass.parameter(self.shift));
        let running = &pass.declared.statistics[self.statistics];
        if pass.mode == Mode::Evaluation {
            return x.batch_norm_inference(
                [scale, shift],
                [&running.mean, &running.variance],
                self.epsilon,
                activation,
            );
        }
        let (y, mean, variance) = x.batch_norm(scale, shift, self.epsilon, activation)?;
        let count = (x.shape().elements() / scale.shape().elements()) as f32;
        // The batch is normalized by its biased variance, but the running one follows the unbiased.
        let unbiased = Unary::Affine { scale: count / (count - 1.0).max(1.0), offset: 0.0 };
        running.mean.blend(&mean, self.amount)?;
        running.variance.blend(&variance.unary(unbiased)?, self.amount)?;
        Ok(y)
    }
}

/// Normalization over the last axis.
pub(super) struct LayerNorm {
    scale: Parameter,
    shift: Parameter,
}

impl LayerNorm {
    pub(super) fn forward(&self, x: &Tensor, pass: &Pass<'_>) -> Result<Tensor> {
        x.layer_norm(pass.parameter(self.scale), pass.parameter(self.shift), 1e-5)
    }
}

/// A table of rows.
pub(super) struct Embedding(Parameter);

impl Embedding {
    pub(super) fn forward(&self, index: &Tensor, pass: &Pass<'_>) -> Result<Tensor> {
        self.table(pass).gather_rows(index)
    }

    pub(super) fn table<'a>(&self, pass: &Pass<'a>) -> &'a Tensor {
        pass.parameter(self.0)
    }
}

/// Images of half the side: the largest of each 2x2.
pub(super) fn halve(x: &Tensor) -> Result<Tensor> {
    x.max_pool2d(Window::square(2))
}

/// Maxima of 3x3 at every second place, the last window hanging over the edge where it must.
pub(super) fn halve_overlapping(x: &Tensor) -> Result<Tensor> {
    x.max_pool2d(Window { stride: [2, 2], ceil: true, ..Window::square(3) })
}

/// `[n, c, h, w]` to `[n, c]`.
pub(super) fn mean_of_places(x: &Tensor) -> Result<Tensor> {
    let shape = x.shape();
    x.adaptive_average_pool2d(1, 1)?.reshape(&shape[..2])
}

pub(super) fn concat_channels(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    a.context().concat(&[a, b], 1)
}
