//! Random operations: shapes from nothing to all that a lease holds, inputs that are permuted, repeated or both, and
//! attributes from the least to the most extreme.
//!
//! Every third attribute is as extreme as it can be, so many operations are refused, or find no room for what comes out:
//! that is an end too. A seed makes the same operation every time.

use weft_gpu::op::*;
use weft_gpu::{Axes, Context, DType, Result, Shape, Tensor};

use crate::Call;

/// Bytes of what takes memory among the inputs of one operation.
const MEMORY: usize = 256 << 20;

/// SplitMix64.
pub struct Chance {
    state: u64,
    /// Bytes that inputs may still take.
    left: usize,
}

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self { state: seed, left: MEMORY }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    /// From 1 to `most`, of any order of size alike, and often `most` itself.
    fn size(&mut self, most: usize) -> usize {
        if self.below(3) == 0 {
            return most.max(1);
        }
        let bits = most.max(1).ilog2() as usize;
        let magnitude = 1 << self.below(bits + 1);
        (magnitude + self.below(magnitude)).min(most.max(1))
    }

    /// An attribute that may be anything.
    fn extreme(&mut self, usual: usize) -> usize {
        match self.below(6) {
            0 => u32::MAX as usize,
            1 => 0,
            2 => 1 << self.below(32),
            _ => self.size(usual),
        }
    }

    /// So many axes, with so many elements at most.
    fn shape(&mut self, rank: usize, most: usize) -> Vec<usize> {
        let mut left = most;
        let mut sizes: Vec<usize> = (0..rank)
            .map(|axis| {
                let size = if axis + 1 == rank { self.size(left) } else { self.size(left).min(1 << self.below(25)) };
                left = (left / size).max(1);
                size
            })
            .collect();
        for axis in (1..rank).rev() {
            sizes.swap(axis, self.below(axis + 1));
        }
        sizes
    }

    fn filled(&mut self, context: &Context, sizes: &[usize], dtype: DType) -> Result<Tensor> {
        context.full(sizes, dtype, if dtype == DType::F32 { 0.75 } else { 0.0 })
    }

    /// A tensor whose elements lie in any order, repeated along any axes; all of them one element where no room is left.
    fn tensor(&mut self, context: &Context, sizes: &[usize], dtype: DType) -> Result<Tensor> {
        let mut lies: Vec<usize> = sizes.to_vec();
        if self.below(3) == 0 {
            for size in &mut lies {
                if self.below(2) == 0 {
                    *size = 1;
                }
            }
        }
        let bytes = lies.iter().try_fold(dtype.size(), |bytes, &size| bytes.checked_mul(size));
        match bytes.filter(|&bytes| bytes <= self.left) {
            Some(bytes) => self.left -= bytes,
            None => lies.fill(1),
        }
        let mut order: Vec<usize> = (0..lies.len()).collect();
        if self.below(2) == 0 {
            for axis in (1..order.len()).rev() {
                order.swap(axis, self.below(axis + 1));
            }
        }
        // Axis `a` of what comes out is axis `order[a]` of what is made.
        let mut made = vec![0; lies.len()];
        for (axis, &from) in order.iter().enumerate() {
            made[from] = lies[axis];
        }
        self.filled(context, &made, dtype)?.permute(&order)?.expand(sizes)
    }

    fn floats(&mut self, context: &Context, sizes: &[usize]) -> Result<Tensor> {
        self.tensor(context, sizes, DType::F32)
    }

    /// Indices of a row, a class or a cluster, all of them the first.
    fn indices(&mut self, context: &Context, count: usize) -> Result<Tensor> {
        self.tensor(context, &[count], DType::U32)
    }

    /// Elements that an input of such a number of them has: mostly what memory holds, sometimes far more by repetition.
    fn elements(&mut self) -> usize {
        let most = if self.below(4) == 0 { 1 << 32 } else { MEMORY / 4 };
        self.size(most)
    }

    fn axes(&mut self, rank: usize) -> Result<Axes> {
        let mut axes: Vec<usize> = (0..rank).filter(|_| self.below(2) == 0).collect();
        if axes.is_empty() {
            axes.push(0);
        }
        Axes::new(&axes)
    }

    fn image(&mut self) -> [usize; 4] {
        let elements = self.elements();
        let sizes = self.shape(4, elements);
        [sizes[0], sizes[1], sizes[2], sizes[3]]
    }

    fn window(&mut self, height: usize, width: usize) -> Window {
        let kernel = [self.extreme(height), self.extreme(width)];
        let stride = [self.size(height), self.pick(&[1, 1, width])];
        let padding = [self.below(kernel[0] / 2 + 1), self.below(kernel[1] / 2 + 1)];
        Window { kernel, stride, padding, ceil: self.below(2) == 0, count_padding: self.below(2) == 0 }
    }

    /// A convolution, with the shapes of its images and of its weight.
    fn convolution(&mut self) -> (Conv2d, [usize; 4], [usize; 4]) {
        let [images, channels, height, width] = self.image();
        let groups = self.pick(&[1, 1, channels]);
        let kernel = [self.size(height), self.size(width)];
        let per_group = channels / groups;
        let most = (MEMORY / 8 / (per_group * kernel[0] * kernel[1]).max(1)).clamp(1, 4096);
        let out = self.size(most).next_multiple_of(groups);
        let padding = [self.below(kernel[0] + 1), self.below(kernel[1] + 1)];
        let stride = [self.size(height).min(1 << self.below(20)), self.pick(&[1, 1, 2, width])];
        let dilation = self.pick(&[[1, 1], [1, 1], [2, 3]]);
        let conv = Conv2d { stride, padding, dilation, groups };
        (conv, [images, channels, height, width], [out, per_group, kernel[0], kernel[1]])
    }

    /// Sparse rows: offsets, columns and values, of which one row has nearly all.
    fn sparse(&mut self, context: &Context, rows: usize, stored: usize) -> Result<[Tensor; 3]> {
        let mut offsets = vec![stored as u32; rows + 1];
        let long = self.below(rows);
        offsets[..=long].fill(0);
        self.left = self.left.saturating_sub(8 * stored);
        let columns = context.full(&[stored], DType::U32, 0.0)?;
        Ok([context.tensor(&[rows + 1], &offsets)?, columns, context.full(&[stored], DType::F32, 0.5)?])
    }

    /// An operation and its inputs.
    pub fn call(&mut self, context: &Context) -> Result<Call> {
        type Make = fn(&mut Chance, &Context) -> Result<Call>;
        const FAMILIES: [Make; 11] = [
            elementwise,
            reduction,
            layout,
            rows,
            resizing,
            products,
            convolutions,
            pooling,
            normalization,
            losses,
            sparse,
        ];
        let family = self.below(FAMILIES.len());
        FAMILIES[family](self, context)
    }
}

fn made(op: impl Into<Op>, inputs: impl IntoIterator<Item = Tensor>) -> Result<Call> {
    Ok((op.into(), inputs.into_iter().collect()))
}

fn any_shape(chance: &mut Chance) -> Vec<usize> {
    let (rank, elements) = (1 + chance.below(5), chance.elements());
    chance.shape(rank, elements)
}

fn elementwise(chance: &mut Chance, c: &Context) -> Result<Call> {
    let sizes = any_shape(chance);
    let x = chance.floats(c, &sizes)?;
    match chance.below(6) {
        0 => made(chance.pick(&[Unary::Gelu, Unary::Tanh, Unary::Exp, Unary::Relu]), [x]),
        1 => made(UnaryGradient(Unary::Gelu), [x, chance.floats(c, &sizes)?]),
        2 => made(chance.pick(&[Binary::Pow, Binary::Add, Binary::Div]), [x, chance.floats(c, &sizes)?]),
        3 => made(Compare(Comparison::Lt), [x, chance.floats(c, &sizes)?]),
        4 => made(Select, [chance.tensor(c, &sizes, DType::U8)?, x, chance.floats(c, &sizes)?]),
        _ => made(Cast(chance.pick(&[DType::F16, DType::I32, DType::U8])), [x]),
    }
}

fn reduction(chance: &mut Chance, c: &Context) -> Result<Call> {
    let sizes = any_shape(chance);
    let x = chance.floats(c, &sizes)?;
    let keep = chance.below(2) == 0;
    if chance.below(4) == 0 {
        return made(ArgReduce { extreme: Extreme::Max, axis: chance.below(sizes.len()), keep }, [x]);
    }
    let reducer = match chance.below(4) {
        0 => Reducer::Variance { correction: chance.below(2) as u32 },
        1 => Reducer::SumSquares,
        2 => Reducer::Max,
        _ => Reducer::Sum,
    };
    made(Reduce { reducer, axes: chance.axes(sizes.len())?, keep }, [x])
}

fn layout(chance: &mut Chance, c: &Context) -> Result<Call> {
    let sizes = any_shape(chance);
    let x = chance.floats(c, &sizes)?;
    match chance.below(5) {
        0 => made(Reshape(Shape::new(&[sizes.iter().product()])?), [x]),
        1 => made(Copy, [x]),
        2 => {
            let starts: Vec<usize> = sizes.iter().map(|&size| chance.below(size)).collect();
            let steps: Vec<usize> = sizes.iter().map(|&size| chance.size(size)).collect();
            let taken: Vec<usize> =
                (0..sizes.len()).map(|axis| (sizes[axis] - starts[axis]).div_ceil(steps[axis])).collect();
            let op = Slice { starts: Shape::new(&starts)?, sizes: Shape::new(&taken)?, steps: Shape::new(&steps)? };
            made(op, [x])
        }
        3 => {
            let mut border = |most: usize| -> Result<Shape> {
                let sizes: Vec<usize> = sizes.iter().map(|_| chance.below(most)).collect();
                Shape::new(&sizes)
            };
            let (before, after) = (border(9)?, border(9)?);
            let steps = vec![1 + chance.below(3); sizes.len()];
            made(Pad { before, after, steps: Shape::new(&steps)?, value: 0.5 }, [x])
        }
        _ => {
            let copies = chance.pick(&[2, 3, 1000]);
            made(Concat { axis: chance.below(sizes.len()) }, vec![x; copies])
        }
    }
}

fn rows(chance: &mut Chance, c: &Context) -> Result<Call> {
    let count = chance.size(1 << 24);
    let width = chance.size(MEMORY / 8 / count);
    match chance.below(5) {
        0 => {
            let table = chance.floats(c, &[1 + chance.state as usize % 5, width])?;
            made(GatherRows, [table, chance.indices(c, count)?])
        }
        1 => {
            let rows = chance.floats(c, &[count, width])?;
            made(ScatterAddRows { count: chance.extreme(1 << 20) }, [rows, chance.indices(c, count)?])
        }
        2 => made(OneHot { classes: chance.extreme(width) }, [chance.indices(c, count)?]),
        3 => {
            let x = chance.floats(c, &[count, width])?;
            made(TopK { count: chance.extreme(width) }, [x])
        }
        _ => {
            let kept = chance.size(width);
            let index = chance.tensor(c, &[count, kept], DType::U32)?;
            made(TopKGradient { size: width }, [chance.floats(c, &[count, kept])?, index])
        }
    }
}

fn resizing(chance: &mut Chance, c: &Context) -> Result<Call> {
    let image = chance.image();
    let (height, width) = (chance.extreme(1 << 12), chance.extreme(1 << 12));
    let mode = chance.pick(&[Resampling::Bilinear, Resampling::Nearest]);
    let x = chance.floats(c, &image)?;
    match chance.below(2) {
        0 => made(Resize { mode, height, width }, [x]),
        _ => made(ResizeGradient { mode, height, width }, [x]),
    }
}

fn products(chance: &mut Chance, c: &Context) -> Result<Call> {
    let depth = chance.size(1 << 31);
    let (rows, columns, batch) = (chance.size(1 << 12), chance.size(1 << 12), chance.size(64));
    match chance.below(3) {
        0 => {
            let activation = chance.pick(&[None, Some(Unary::Gelu)]);
            made(Linear { activation }, [chance.floats(c, &[rows, depth])?, chance.floats(c, &[columns, depth])?])
        }
        _ => {
            let inputs = [chance.floats(c, &[batch, rows, depth])?, chance.floats(c, &[batch, depth, columns])?];
            made(MatMul { scale: 0.5 }, inputs)
        }
    }
}

fn convolutions(chance: &mut Chance, c: &Context) -> Result<Call> {
    let (conv, input, weight) = chance.convolution();
    let images = chance.floats(c, &input)?;
    let kernels = chance.floats(c, &weight)?;
    let forward: Op = conv.into();
    // The shape of what comes out, for its gradients; one that is refused is run as it is.
    let metas = [&input, &weight].map(|sizes| Shape::new(sizes).map(Meta::f32));
    let [Ok(x), Ok(w)] = metas else { return made(forward, [images, kernels]) };
    let Ok(outputs) = forward.infer(&[x, w]) else { return made(forward, [images, kernels]) };
    let sizes: Vec<usize> = (0..4).map(|axis| outputs[0].shape[axis]).collect();
    match chance.below(3) {
        0 => made(forward, [images, kernels]),
        1 => {
            let op = Conv2dGradientInput { conv, input: Shape::new(&input)? };
            made(op, [chance.floats(c, &sizes)?, kernels])
        }
        _ => {
            let op = Conv2dGradientWeight { conv, weight: Shape::new(&weight)? };
            made(op, [images, chance.floats(c, &sizes)?])
        }
    }
}

fn pooling(chance: &mut Chance, c: &Context) -> Result<Call> {
    let image = chance.image();
    let x = chance.floats(c, &image)?;
    let window = chance.window(image[2], image[3]);
    let (height, width) = (chance.extreme(image[2]), chance.extreme(image[3]));
    match chance.below(4) {
        0 => made(MaxPool2d(window), [x]),
        1 => made(AveragePool2d(window), [x]),
        2 => made(AdaptiveAveragePool2d { height, width }, [x]),
        _ => made(AdaptiveMaxPool2d { height, width }, [x]),
    }
}

fn normalization(chance: &mut Chance, c: &Context) -> Result<Call> {
    let elements = chance.elements();
    let sizes = chance.shape(3, elements);
    let x = chance.floats(c, &sizes)?;
    let (channels, last) = (sizes[1], sizes[2]);
    match chance.below(5) {
        0 => {
            let inputs = [x, chance.floats(c, &[channels])?, chance.floats(c, &[channels])?];
            made(BatchNorm { epsilon: 1e-5, activation: None }, inputs)
        }
        1 => made(LayerNorm { epsilon: 1e-5 }, [x, chance.floats(c, &[last])?, chance.floats(c, &[last])?]),
        2 => made(LocalResponseNorm { size: chance.extreme(channels), alpha: 1.0, beta: 0.75, k: 1.0 }, [x]),
        3 => made(Softmax, [x]),
        _ => made(LogSoftmaxGradient, [x, chance.floats(c, &sizes)?]),
    }
}

fn losses(chance: &mut Chance, c: &Context) -> Result<Call> {
    let elements = chance.elements();
    let sizes = chance.shape(2, elements);
    let x = chance.floats(c, &sizes)?;
    let reduction = chance.pick(&[Reduction::Mean, Reduction::Sum]);
    match chance.below(2) {
        0 => {
            let kind = LossKind::SoftmaxCrossEntropy { smoothing: 0.1 };
            made(Loss { kind, reduction }, [x, chance.indices(c, sizes[0])?])
        }
        _ => made(Loss { kind: LossKind::Hinge, reduction }, [x, chance.floats(c, &sizes)?]),
    }
}

fn sparse(chance: &mut Chance, c: &Context) -> Result<Call> {
    let (rows, stored, width) = (chance.size(1 << 16), chance.size(1 << 23), chance.size(1 << 20));
    match chance.below(5) {
        0 => {
            let [offsets, columns, values] = chance.sparse(c, rows, stored)?;
            made(CsrMatMul, [offsets, columns, values, chance.floats(c, &[1, width])?])
        }
        1 => {
            let [offsets, columns, values] = chance.sparse(c, rows, stored)?;
            let count = chance.size(1 << 16);
            made(CsrTransposedMatMul { columns: count }, [offsets, columns, values, chance.floats(c, &[rows, width])?])
        }
        2 => {
            let [offsets, columns, _] = chance.sparse(c, rows, stored)?;
            made(
                CsrValuesGradient,
                [offsets, columns, chance.floats(c, &[rows, width])?, chance.floats(c, &[1, width])?],
            )
        }
        3 => {
            let dimensions = chance.size(1 << 12);
            let centroids = chance.size(1 << 16);
            made(KMeansAssign, [chance.floats(c, &[rows, dimensions])?, chance.floats(c, &[centroids, dimensions])?])
        }
        _ => {
            let clusters = chance.extreme(1 << 20);
            made(KMeansAccumulate { clusters }, [chance.floats(c, &[rows, width])?, chance.indices(c, rows)?])
        }
    }
}
