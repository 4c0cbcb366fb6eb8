//! Autograd: what was done to parameters and what came of it, and the way back.
//!
//! An operation on a tensor that descends from a parameter becomes a node; its results hold it, and it holds the nodes
//! of its inputs. So what nothing leads to any more is freed at once, with all that it kept. [`Tensor::backward`] walks
//! from the loss, latest operation first, and lets go of each node's tensors as soon as its gradient is done. The
//! gradient operations themselves are not recorded: there is no second derivative.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

use crate::context::{Context, Tensors};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::op::{Accumulate, Binary, Fill, Meta, Op, Reduce, Reducer};
use crate::shape::{Axes, Shape};
use crate::tensor::Tensor;

/// Where a tensor comes from.
#[derive(Clone)]
pub(crate) enum History {
    Leaf(Arc<Leaf>),
    Result { node: Arc<Node>, output: usize },
}

impl History {
    pub(crate) fn leaf(&self) -> Option<&Leaf> {
        match self {
            Self::Leaf(leaf) => Some(leaf),
            Self::Result { .. } => None,
        }
    }
}

/// A parameter's gradient.
pub(crate) struct Leaf(Mutex<LeafGradient>);

struct LeafGradient {
    tensor: Option<Tensor>,
    /// Whether `tensor` holds what a backward put there.
    filled: bool,
}

impl Leaf {
    pub(crate) fn new(slot: Option<Tensor>) -> Self {
        Self(Mutex::new(LeafGradient { tensor: slot, filled: false }))
    }

    pub(crate) fn gradient(&self) -> Option<Tensor> {
        let gradient = self.lock();
        gradient.tensor.clone().filter(|_| gradient.filled)
    }

    pub(crate) fn clear(&self) {
        self.lock().filled = false;
    }

    /// Makes the gradient zero if nothing has reached it.
    pub(crate) fn settle(&self, context: &Context) -> Result<()> {
        let mut gradient = self.lock();
        if let (Some(slot), false) = (&gradient.tensor, gradient.filled) {
            let zeros = Fill { shape: slot.shape(), dtype: DType::F32, value: 0.0 };
            context.execute_into(&Op::Fill(zeros), &[], slot)?;
            gradient.filled = true;
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, LeafGradient> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds what an operation gives.
    fn receive(&self, context: &Context, op: &Op, inputs: &[&Tensor]) -> Result<()> {
        let mut gradient = self.lock();
        if let (Some(slot), false) = (&gradient.tensor, gradient.filled) {
            context.execute_into(op, inputs, slot)?;
            gradient.filled = true;
            return Ok(());
        }
        drop(gradient);
        let result = first(op, context.execute(op, inputs)?)?;
        self.add(context, result)
    }

    /// Adds a tensor.
    fn add(&self, context: &Context, tensor: Tensor) -> Result<()> {
        let mut gradient = self.lock();
        match (&gradient.tensor, gradient.filled) {
            (Some(slot), true) => {
                context.execute(&Op::Accumulate(Accumulate { scale: 1.0 }), &[slot, &tensor])?;
            }
            (Some(slot), false) => context.execute_into(&Op::Copy(crate::op::Copy), &[&tensor], slot)?,
            // The tensor may be someone else's too, and this one will be written: it needs memory of its own.
            (None, _) => {
                let owned = tensor.owns_storage() && tensor.layout().is_contiguous();
                let own =
                    if owned { tensor } else { first_of(context.execute(&Op::Copy(crate::op::Copy), &[&tensor])?)? };
                gradient.tensor = Some(own);
            }
        }
        gradient.filled = true;
        Ok(())
    }
}

fn first(op: &Op, tensors: Tensors) -> Result<Tensor> {
    tensors.into_iter().next().ok_or_else(|| Error::argument(op.name(), "it gives nothing"))
}

fn first_of(tensors: Tensors) -> Result<Tensor> {
    first(&Op::Copy(crate::op::Copy), tensors)
}

/// One recorded operation.
pub(crate) struct Node {
    id: u64,
    op: Op,
    inputs: SmallVec<[(Meta, Option<History>); 4]>,
    outputs: SmallVec<[Meta; 3]>,
    /// What the gradient needs, until it is computed.
    saved: Mutex<Option<Saved>>,
    count: Arc<AtomicUsize>,
}

struct Saved {
    inputs: SmallVec<[Option<Kept>; 4]>,
    outputs: SmallVec<[Option<Kept>; 3]>,
}

/// A tensor and how often it had been written when it was kept.
struct Kept {
    tensor: Tensor,
    version: u64,
}

impl Kept {
    fn new(tensor: &Tensor) -> Self {
        Self { version: tensor.version(), tensor: tensor.detach() }
    }
}

impl Node {
    /// Makes the outputs descend from the inputs.
    pub(crate) fn record(id: u64, op: Op, inputs: &[&Tensor], outputs: &mut Tensors, count: &Arc<AtomicUsize>) {
        let wanted = inputs.iter().enumerate().fold(0_u32, |wanted, (index, input)| {
            if input.history().is_some() { wanted | 1_u32.checked_shl(index as u32).unwrap_or(0) } else { wanted }
        });
        let saves = op.spec().saves(wanted);
        let keep = |mask: u32, index: usize| mask.checked_shr(index as u32).unwrap_or(0) & 1 != 0;
        let saved = Saved {
            inputs: inputs.iter().enumerate().map(|(i, t)| keep(saves.inputs, i).then(|| Kept::new(t))).collect(),
            outputs: outputs.iter().enumerate().map(|(i, t)| keep(saves.outputs, i).then(|| Kept::new(t))).collect(),
        };
        count.fetch_add(1, Ordering::Relaxed);
        let node = Arc::new(Self {
            id,
            op,
            inputs: inputs.iter().map(|input| (input.meta(), input.history().cloned())).collect(),
            outputs: outputs.iter().map(Tensor::meta).collect(),
            saved: Mutex::new(Some(saved)),
            count: Arc::clone(count),
        });
        for (index, output) in outputs.iter_mut().enumerate() {
            if output.dtype().is_float() {
                output.set_history(History::Result { node: Arc::clone(&node), output: index });
            }
        }
    }
}

/// A chain of nodes may be very long: it is taken apart in a loop, not by recursion.
impl Drop for Node {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
        let mut loose: Vec<History> = self.inputs.iter_mut().filter_map(|(_, history)| history.take()).collect();
        while let Some(history) = loose.pop() {
            if let History::Result { node, .. } = history
                && let Some(mut node) = Arc::into_inner(node)
            {
                loose.extend(node.inputs.iter_mut().filter_map(|(_, history)| history.take()));
            }
        }
    }
}

/// A node that gradients have reached.
struct Reached {
    node: Arc<Node>,
    gradients: SmallVec<[Option<Tensor>; 3]>,
    /// Whether the gradient is the implicit 1 of the loss itself.
    is_loss: bool,
}

/// Nodes by the order in which they ran: the latest is always the next.
type Frontier = BTreeMap<u64, Reached>;

/// Fills the gradients of all parameters that a tensor descends from: of a loss, or weighted by `gradient`.
pub(crate) fn backward(from: &Tensor, gradient: Option<Tensor>) -> Result<()> {
    let context = from.context();
    let is_loss = gradient.is_none();
    let seed = match gradient {
        Some(gradient) => gradient,
        None if from.shape().elements() == 1 => {
            let ones = Fill { shape: from.shape(), dtype: DType::F32, value: 1.0 };
            first_of(context.execute(&Op::Fill(ones), &[])?)?
        }
        None => return Err(Error::NoGradient { reason: format!("this one is {:?}", from.shape()) }),
    };
    let mut frontier = Frontier::new();
    match from.history() {
        None => return Err(Error::NoGradient { reason: "this one does not".into() }),
        Some(History::Leaf(leaf)) => return leaf.add(context, seed),
        Some(History::Result { node, output }) => {
            let mut gradients: SmallVec<[Option<Tensor>; 3]> = node.outputs.iter().map(|_| None).collect();
            gradients[*output] = Some(seed);
            frontier.insert(node.id, Reached { node: Arc::clone(node), gradients, is_loss });
        }
    }
    while let Some((_, reached)) = frontier.pop_last() {
        let saved = reached.node.saved.lock().unwrap_or_else(PoisonError::into_inner).take();
        let op = &reached.node.op;
        let Some(saved) = saved else {
            return Err(Error::AlreadyBackward { op: op.name() });
        };
        let mut step = Backward {
            context,
            node: &reached.node,
            saved,
            gradients: reached.gradients,
            is_loss: reached.is_loss,
            frontier: &mut frontier,
        };
        op.spec().gradient(&mut step)?;
    }
    Ok(())
}

/// What the gradient rule of an operation ([`Spec::gradient`](crate::op::Spec::gradient)) works with: the gradients of
/// its outputs, what it has saved, and where the gradients of its inputs go.
pub struct Backward<'a> {
    context: &'a Context,
    node: &'a Node,
    saved: Saved,
    gradients: SmallVec<[Option<Tensor>; 3]>,
    is_loss: bool,
    frontier: &'a mut Frontier,
}

impl Backward<'_> {
    /// Whether anyone needs the gradient of this input.
    pub fn wants(&self, input: usize) -> bool {
        self.node.inputs.get(input).is_some_and(|(_, history)| history.is_some())
    }

    /// How many inputs the operation had.
    pub fn inputs(&self) -> usize {
        self.node.inputs.len()
    }

    /// The shape of an input, which is that of its gradient.
    pub fn input_shape(&self, input: usize) -> Shape {
        self.node.inputs[input].0.shape
    }

    /// The gradient that reached an output; zeros if none did.
    pub fn gradient(&self, output: usize) -> Result<Tensor> {
        match &self.gradients[output] {
            Some(gradient) => Ok(gradient.clone()),
            None => self.run(Fill { shape: self.node.outputs[output].shape, dtype: DType::F32, value: 0.0 }, &[]),
        }
    }

    /// Whether a gradient reached an output.
    pub fn reached(&self, output: usize) -> bool {
        self.gradients.get(output).is_some_and(Option::is_some)
    }

    /// Whether the gradient is exactly 1, because this operation gave the loss itself.
    pub fn is_loss(&self) -> bool {
        self.is_loss
    }

    /// An input that the operation has saved.
    pub fn input(&self, input: usize) -> Result<Tensor> {
        self.kept(self.saved.inputs.get(input))
    }

    /// An output that the operation has saved.
    pub fn output(&self, output: usize) -> Result<Tensor> {
        self.kept(self.saved.outputs.get(output))
    }

    fn kept(&self, kept: Option<&Option<Kept>>) -> Result<Tensor> {
        let op = self.node.op.name();
        let Some(Some(kept)) = kept else {
            return Err(Error::Internal { op, reason: "its gradient needs a tensor that it has not saved".into() });
        };
        let found = kept.tensor.version();
        if found != kept.version {
            return Err(Error::Overwritten { op, needed: kept.version, found });
        }
        Ok(kept.tensor.clone())
    }

    /// Runs an operation, not recorded, and gives its first result.
    pub fn run(&self, op: impl Into<Op>, inputs: &[&Tensor]) -> Result<Tensor> {
        let op = op.into();
        first(&op, self.context.execute(&op, inputs)?)
    }

    /// Runs an operation, not recorded, and gives all its results.
    pub fn run_all(&self, op: impl Into<Op>, inputs: &[&Tensor]) -> Result<Tensors> {
        self.context.execute(&op.into(), inputs)
    }

    /// The gradient of an input is what this operation gives. Nothing is done if nobody wants it.
    pub fn emit(&mut self, input: usize, op: impl Into<Op>, inputs: &[&Tensor]) -> Result<()> {
        let op = op.into();
        match &self.node.inputs[input].1 {
            None => Ok(()),
            Some(History::Leaf(leaf)) => leaf.receive(self.context, &op, inputs),
            Some(History::Result { .. }) => {
                let result = self.run(op, inputs)?;
                self.pass(input, result)
            }
        }
    }

    /// Like [`Self::emit`], summed over the axes along which the input was broadcast.
    pub fn emit_reduced(&mut self, input: usize, op: impl Into<Op>, inputs: &[&Tensor]) -> Result<()> {
        if !self.wants(input) {
            return Ok(());
        }
        let op = op.into();
        let metas: SmallVec<[Meta; 4]> = inputs.iter().map(|input| input.meta()).collect();
        if op.infer(&metas)?.first().is_some_and(|meta| meta.shape == self.input_shape(input)) {
            return self.emit(input, op, inputs);
        }
        let result = self.run(op, inputs)?;
        self.pass_reduced(input, &result)
    }

    /// The gradient of an input is this tensor.
    pub fn pass(&mut self, input: usize, gradient: Tensor) -> Result<()> {
        match &self.node.inputs[input].1 {
            None => Ok(()),
            Some(History::Leaf(leaf)) => leaf.add(self.context, gradient),
            Some(History::Result { node, output }) => {
                let reached = self.frontier.entry(node.id).or_insert_with(|| Reached {
                    node: Arc::clone(node),
                    gradients: node.outputs.iter().map(|_| None).collect(),
                    is_loss: false,
                });
                let sum = match reached.gradients[*output].take() {
                    None => gradient,
                    Some(earlier) => add(self.context, earlier, gradient)?,
                };
                reached.gradients[*output] = Some(sum);
                Ok(())
            }
        }
    }

    /// The gradient of an input is this tensor, summed over the axes along which the input was broadcast.
    pub fn pass_reduced(&mut self, input: usize, gradient: &Tensor) -> Result<()> {
        if !self.wants(input) {
            return Ok(());
        }
        let (from, to) = (gradient.shape(), self.input_shape(input));
        if from == to {
            return self.pass(input, gradient.clone());
        }
        let missing = from.rank().saturating_sub(to.rank());
        let axes: SmallVec<[usize; 8]> =
            (0..from.rank()).filter(|&axis| axis < missing || to[axis - missing] != from[axis]).collect();
        let axes = Axes::new(&axes)?;
        let sum = self.run(Reduce { reducer: Reducer::Sum, axes, keep: true }, &[gradient])?;
        self.emit(input, crate::op::Reshape(to), &[&sum])
    }
}

/// The sum of two gradients, in place where one of them is nobody else's.
fn add(context: &Context, a: Tensor, b: Tensor) -> Result<Tensor> {
    let accumulate = Op::Accumulate(Accumulate { scale: 1.0 });
    if a.owns_storage() && a.layout().is_contiguous() {
        context.execute(&accumulate, &[&a, &b])?;
        return Ok(a);
    }
    if b.owns_storage() && b.layout().is_contiguous() {
        context.execute(&accumulate, &[&b, &a])?;
        return Ok(b);
    }
    first_of(context.execute(&Op::Binary(Binary::Add), &[&a, &b])?)
}
