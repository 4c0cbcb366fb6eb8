//! Autograd: what was done to parameters and what came of it, and the way back.
//!
//! An operation on a tensor that descends from a parameter becomes a node; its results hold it, and it holds the nodes
//! of its inputs. So what nothing leads to any more is freed at once, with all that it kept. [`Tensor::backward`] walks
//! from the loss, latest operation first, and lets go of each node's tensors as soon as its gradient is done. The
//! gradient operations themselves are not recorded: there is no second derivative.
//!
//! Nodes are in the host's memory, also where tensors are not, and a node may describe a tensor that takes no memory at
//! all, such as a view. So their bytes are counted like those of tensors: against the budget of the heap, before the
//! operation runs, and until the node is gone.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

use crate::context::{Context, Tensors};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::heap::Heap;
use crate::op::{Accumulate, Binary, Fill, Meta, Op, Reduce, Reducer, Saves};
use crate::shape::{Axes, Layout, Shape};
use crate::tensor::{Storage, Tensor};

/// Where a tensor comes from.
#[derive(Clone)]
pub(crate) enum History {
    Leaf(Arc<Leaf>),
    Result { node: Arc<Node>, output: u32 },
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

/// What a heap's objects around one small tensor take, beside the bytes that the heap counts.
const TENSOR_OBJECTS: usize = 64;

/// The tape of a context: how many nodes there are, how many there may be, and who counts their bytes.
pub(crate) struct Tape {
    nodes: AtomicUsize,
    limit: usize,
    heap: Arc<Heap>,
}

impl Tape {
    pub(crate) fn new(limit: usize, heap: Arc<Heap>) -> Arc<Self> {
        Arc::new(Self { nodes: AtomicUsize::new(0), limit, heap })
    }

    /// How many operations are on it.
    pub(crate) fn nodes(&self) -> usize {
        self.nodes.load(Ordering::Relaxed)
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.nodes() < self.limit { Ok(()) } else { Err(Error::TapeFull { limit: self.limit }) }
    }

    /// Counts the node of this operation, and what it will take, before the operation is run.
    pub(crate) fn reserve(self: &Arc<Self>, op: &Op, inputs: &[&Tensor], outputs: usize) -> Result<Place> {
        let wanted = inputs
            .iter()
            .enumerate()
            .fold(0_u32, |wanted, (index, input)| if input.history().is_some() { wanted | bit(index) } else { wanted });
        let saves = op.spec().saves(wanted);
        let saves = Saves { inputs: saves.inputs & below(inputs.len()), outputs: saves.outputs & below(outputs) };
        let kept = (saves.inputs.count_ones() + saves.outputs.count_ones()) as usize;
        let spilled = if outputs > 1 { outputs * size_of::<Shape>() } else { 0 };
        // A node in an `Arc` has two counters beside it. Going back through the tape, it is in the frontier for a while.
        let node = size_of::<Node>() + 2 * size_of::<usize>() + size_of::<(u64, Reached)>() + spilled;
        let bytes = node + inputs.len() * size_of::<Input>() + kept * (size_of::<Kept>() + TENSOR_OBJECTS);
        self.heap.count(bytes)?;
        self.nodes.fetch_add(1, Ordering::Relaxed);
        Ok(Place { tape: Arc::clone(self), bytes, saves })
    }
}

/// A place on the tape, counted until it is dropped, and what its node keeps.
pub(crate) struct Place {
    tape: Arc<Tape>,
    bytes: usize,
    saves: Saves,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.tape.nodes.fetch_sub(1, Ordering::Relaxed);
        self.tape.heap.uncount(self.bytes);
    }
}

fn bit(index: usize) -> u32 {
    1_u32.checked_shl(index as u32).unwrap_or(0)
}

/// The bits of so many places.
fn below(count: usize) -> u32 {
    bit(count).wrapping_sub(1)
}

/// One recorded operation.
pub(crate) struct Node {
    id: u64,
    op: Op,
    inputs: Box<[Input]>,
    outputs: SmallVec<[Shape; 1]>,
    /// What the gradient needs, until it is computed.
    saved: Mutex<Option<Box<[Kept]>>>,
    /// Last, so that it is given back when all else is gone.
    _place: Place,
}

/// An input of a recorded operation.
struct Input {
    shape: Shape,
    history: Option<History>,
}

/// Which of an operation's tensors is kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slot {
    Input(u8),
    Output(u8),
}

/// A tensor, without its context and history, and how often it had been written when it was kept.
struct Kept {
    slot: Slot,
    dtype: DType,
    layout: Layout,
    storage: Arc<Storage>,
    version: u64,
}

impl Kept {
    fn new(slot: Slot, tensor: &Tensor) -> Self {
        let storage = Arc::clone(tensor.storage());
        Self { slot, dtype: tensor.dtype(), layout: *tensor.layout(), version: storage.version(), storage }
    }
}

impl Node {
    /// Makes the outputs descend from the inputs.
    pub(crate) fn record(id: u64, op: Op, inputs: &[&Tensor], outputs: &mut Tensors, place: Place) {
        let saves = place.saves;
        let count = (saves.inputs.count_ones() + saves.outputs.count_ones()) as usize;
        let mut kept = Vec::with_capacity(count);
        // Masks have no bits past the tensors that there are, and no more than 32.
        let slots = |mask: u32| (0..u32::BITS as u8).filter(move |&index| mask & bit(index.into()) != 0);
        kept.extend(slots(saves.inputs).map(|index| Kept::new(Slot::Input(index), inputs[usize::from(index)])));
        kept.extend(slots(saves.outputs).map(|index| Kept::new(Slot::Output(index), &outputs[usize::from(index)])));
        let of = |input: &&Tensor| Input { shape: input.shape(), history: input.history().cloned() };
        let node = Arc::new(Self {
            id,
            op,
            inputs: inputs.iter().map(of).collect(),
            outputs: outputs.iter().map(Tensor::shape).collect(),
            saved: Mutex::new(Some(kept.into_boxed_slice())),
            _place: place,
        });
        for (index, output) in outputs.iter_mut().enumerate() {
            if output.dtype().is_float() {
                output.set_history(History::Result { node: Arc::clone(&node), output: index as u32 });
            }
        }
    }
}

/// A chain of nodes may be very long: it is taken apart in a loop, not by recursion.
impl Drop for Node {
    fn drop(&mut self) {
        let mut loose: Vec<History> = self.inputs.iter_mut().filter_map(|input| input.history.take()).collect();
        while let Some(history) = loose.pop() {
            if let History::Result { node, .. } = history
                && let Some(mut node) = Arc::into_inner(node)
            {
                loose.extend(node.inputs.iter_mut().filter_map(|input| input.history.take()));
            }
        }
    }
}

/// The gradients of a node's outputs, as far as there are any.
type Gradients = SmallVec<[Option<Tensor>; 1]>;

/// A node that gradients have reached.
struct Reached {
    node: Arc<Node>,
    gradients: Gradients,
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
            let mut gradients: Gradients = node.outputs.iter().map(|_| None).collect();
            gradients[*output as usize] = Some(seed);
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
    saved: Box<[Kept]>,
    gradients: Gradients,
    is_loss: bool,
    frontier: &'a mut Frontier,
}

impl Backward<'_> {
    /// Whether anyone needs the gradient of this input.
    pub fn wants(&self, input: usize) -> bool {
        self.node.inputs.get(input).is_some_and(|input| input.history.is_some())
    }

    /// How many inputs the operation had.
    pub fn inputs(&self) -> usize {
        self.node.inputs.len()
    }

    /// The shape of an input, which is that of its gradient.
    pub fn input_shape(&self, input: usize) -> Shape {
        self.node.inputs[input].shape
    }

    /// The gradient that reached an output; zeros if none did.
    pub fn gradient(&self, output: usize) -> Result<Tensor> {
        match &self.gradients[output] {
            Some(gradient) => Ok(gradient.clone()),
            None => self.run(Fill { shape: self.node.outputs[output], dtype: DType::F32, value: 0.0 }, &[]),
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
        self.kept(|slot| matches!(slot, Slot::Input(index) if usize::from(index) == input))
    }

    /// An output that the operation has saved.
    pub fn output(&self, output: usize) -> Result<Tensor> {
        self.kept(|slot| matches!(slot, Slot::Output(index) if usize::from(index) == output))
    }

    fn kept(&self, is_it: impl Fn(Slot) -> bool) -> Result<Tensor> {
        let op = self.node.op.name();
        let Some(kept) = self.saved.iter().find(|kept| is_it(kept.slot)) else {
            return Err(Error::Internal { op, reason: "its gradient needs a tensor that it has not saved".into() });
        };
        let found = kept.storage.version();
        if found != kept.version {
            return Err(Error::Overwritten { op, needed: kept.version, found });
        }
        Ok(Tensor::new(self.context.clone(), Arc::clone(&kept.storage), kept.layout, kept.dtype))
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
        match &self.node.inputs[input].history {
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
        match &self.node.inputs[input].history {
            None => Ok(()),
            Some(History::Leaf(leaf)) => leaf.add(self.context, gradient),
            Some(History::Result { node, output }) => {
                let reached = self.frontier.entry(node.id).or_insert_with(|| Reached {
                    node: Arc::clone(node),
                    gradients: node.outputs.iter().map(|_| None).collect(),
                    is_loss: false,
                });
                let sum = match reached.gradients[*output as usize].take() {
                    None => gradient,
                    Some(earlier) => add(self.context, earlier, gradient)?,
                };
                reached.gradients[*output as usize] = Some(sum);
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
