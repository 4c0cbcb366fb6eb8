//! Where tensors live: a device, memory with a limit, threads, a cancel flag and a tape.
//!
//! A context is what one worker holds. Its tensors cannot be mixed with those of another.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use smallvec::SmallVec;

use crate::crew::Crew;
use crate::device::{Device, View};
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::heap::{Block, Heap};
use crate::op::{Assign, Copy, Fill, Meta, Op, Spec};
use crate::pool::Lease;
use crate::run::{Cancel, Run};
use crate::shape::{Layout, Shape};
use crate::tape::{Node, Tape};
use crate::tensor::{Storage, Tensor};

/// The results of an operation.
pub type Tensors = SmallVec<[Tensor; 1]>;

/// What a context may use. By default, any amount of memory and a tape of about a million operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of tensors, of what kernels work in, of what is kept for reuse, and of what the tape takes.
    pub device_memory: usize,
    /// Operations that are on the tape at one time.
    pub tape_nodes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { device_memory: usize::MAX, tape_nodes: 1 << 20 }
    }
}

/// A worker's view of a device. Clones are the same context.
#[derive(Clone)]
pub struct Context(Arc<Inner>);

pub(crate) struct Inner {
    device: Arc<dyn Device>,
    heap: Arc<Heap>,
    crew: Arc<Crew>,
    threads: AtomicUsize,
    cancel: Cancel,
    /// While not zero, nothing is recorded.
    paused: AtomicUsize,
    next_node: AtomicU64,
    tape: Arc<Tape>,
}

impl Context {
    /// Work is done by `crew`, on all its threads until [`Self::set_threads`] says otherwise.
    pub fn new(device: Arc<dyn Device>, crew: Arc<Crew>, limits: Limits) -> Self {
        let heap = Heap::new(Arc::clone(&device), limits.device_memory);
        Self::with(device, heap, crew, Cancel::default(), limits.tape_nodes)
    }

    /// A context on the device of a lease, within its bytes, which are shared with other contexts of the same lease. The
    /// lease's flag cancels it, and its bytes go back when the lease, its contexts and their tensors are all gone.
    pub fn leased(lease: &Lease, crew: Arc<Crew>, tape_nodes: usize) -> Self {
        let device = Arc::clone(lease.held().handle());
        Self::with(device, Heap::leased(lease), crew, lease.cancel().clone(), tape_nodes)
    }

    fn with(device: Arc<dyn Device>, heap: Arc<Heap>, crew: Arc<Crew>, cancel: Cancel, tape_nodes: usize) -> Self {
        let threads = AtomicUsize::new(crew.threads());
        Self(Arc::new(Inner {
            device,
            tape: Tape::new(tape_nodes, Arc::clone(&heap)),
            heap,
            crew,
            threads,
            cancel,
            paused: AtomicUsize::new(0),
            next_node: AtomicU64::new(0),
        }))
    }

    pub fn device(&self) -> &Arc<dyn Device> {
        &self.0.device
    }

    pub fn heap(&self) -> &Arc<Heap> {
        &self.0.heap
    }

    /// Stops what is running, and all that follows until it is cleared.
    pub fn cancel(&self) -> &Cancel {
        &self.0.cancel
    }

    /// How many threads the next calls may use, at most those of the crew. Results do not depend on it.
    pub fn set_threads(&self, threads: usize) {
        self.0.threads.store(threads.max(1), Ordering::Relaxed);
    }

    /// How many operations are on the tape.
    pub fn tape_nodes(&self) -> usize {
        self.0.tape.nodes()
    }

    /// Nothing is recorded while the guard lives, by any thread that uses this context.
    pub fn no_grad(&self) -> NoGrad {
        self.0.paused.fetch_add(1, Ordering::Relaxed);
        NoGrad(self.clone())
    }

    pub fn is_recording(&self) -> bool {
        self.0.paused.load(Ordering::Relaxed) == 0
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// A tensor with these elements, row after row.
    pub fn tensor<T: Element>(&self, shape: &[usize], elements: &[T]) -> Result<Tensor> {
        let shape = Shape::new(shape)?;
        if shape.elements() != elements.len() {
            return Err(Error::shape("tensor", format!("{} elements for {shape:?}", elements.len())));
        }
        let tensor = self.allocate(Meta::new(shape, T::DTYPE))?;
        tensor.write(0, bytemuck::cast_slice(elements))?;
        Ok(tensor)
    }

    /// A tensor whose elements `fill` writes, all of them, row after row: straight into the device's memory where the host
    /// can reach it. What `fill` finds there is zeros or left from an earlier tensor of this context.
    pub fn tensor_with<T: Element, E: From<Error>>(
        &self,
        shape: &[usize],
        fill: impl FnOnce(&mut [T]) -> Result<(), E>,
    ) -> Result<Tensor, E> {
        let meta = Meta::new(Shape::new(shape)?, T::DTYPE);
        let tensor = self.allocate(meta)?;
        let (mut fill, mut filled) = (Some(fill), Ok(()));
        tensor.write_with(|bytes| {
            if let Some(fill) = fill.take() {
                filled = fill(bytemuck::cast_slice_mut(bytes));
            }
        })?;
        filled.map(|()| tensor)
    }

    /// A tensor whose elements are all the same: the value cast to the type, as [`Fill`] does.
    pub fn full(&self, shape: &[usize], dtype: DType, value: f64) -> Result<Tensor> {
        self.run_one(Fill { shape: Shape::new(shape)?, dtype, value }, &[])
    }

    /// Zeros in f32. Memory that nobody has used yet holds them, and is not touched.
    pub fn zeros(&self, shape: &[usize]) -> Result<Tensor> {
        self.0.cancel.check()?;
        let (shape, dtype) = (Shape::new(shape)?, DType::F32);
        let meta = Meta::new(shape, dtype);
        let block = self.0.heap.take(meta.bytes())?;
        let is_fresh = block.is_fresh();
        let tensor = self.on(block, meta);
        if !is_fresh {
            self.dispatch(&Op::Fill(Fill { shape, dtype, value: 0.0 }), &[], &[&tensor])?;
        }
        Ok(tensor)
    }

    /// Runs an operation, and records it if an input descends from a parameter and recording is not paused. One that
    /// writes in place is never recorded and gives no results.
    pub fn run(&self, op: impl Into<Op>, inputs: &[&Tensor]) -> Result<Tensors> {
        self.run_op(op.into(), inputs)
    }

    fn run_op(&self, op: Op, inputs: &[&Tensor]) -> Result<Tensors> {
        if !self.is_recording() || inputs.iter().all(|input| input.history().is_none()) {
            return self.execute(&op, inputs);
        }
        let spec = op.spec();
        if spec.writes() > 0 {
            self.check_in_place(spec, inputs)?;
            return self.execute(&op, inputs);
        }
        self.0.tape.check()?;
        let inferred = self.infer(&op, inputs)?;
        if !inferred.iter().any(|output| output.dtype.is_float()) {
            return self.execute_as(&op, inputs, &inferred);
        }
        // Refused before it runs: what its kernels found would else be told to whoever reads next.
        if !spec.differentiable() {
            let input = inputs.iter().position(|input| input.history().is_some()).unwrap_or(0);
            return Err(Error::NotDifferentiable { op: op.name(), input });
        }
        let place = self.0.tape.reserve(&op, inputs, inferred.len())?;
        let mut outputs = self.execute_as(&op, inputs, &inferred)?;
        let id = self.0.next_node.fetch_add(1, Ordering::Relaxed);
        Node::record(id, op, inputs, &mut outputs, place);
        Ok(outputs)
    }

    /// Runs an operation and gives its first result.
    pub fn run_one(&self, op: impl Into<Op>, inputs: &[&Tensor]) -> Result<Tensor> {
        let op = op.into();
        let name = op.name();
        let mut outputs = self.run_op(op, inputs)?;
        outputs.truncate(1);
        outputs.pop().ok_or_else(|| Error::argument(name, "it writes in place and gives nothing"))
    }

    /// Runs an operation without recording it.
    pub(crate) fn execute(&self, op: &Op, inputs: &[&Tensor]) -> Result<Tensors> {
        let outputs = self.infer(op, inputs)?;
        self.execute_as(op, inputs, &outputs)
    }

    /// Runs an operation that gives `outputs`, as was found out before.
    fn execute_as(&self, op: &Op, inputs: &[&Tensor], outputs: &[Meta]) -> Result<Tensors> {
        let spec = op.spec();
        if spec.writes() > 0 {
            self.execute_in_place(op, inputs)?;
            return Ok(Tensors::new());
        }
        if let [input] = inputs
            && let Some(view) = self.view(spec, input)?
        {
            return Ok(smallvec::smallvec![view]);
        }
        // Pushed and not collected: a collected result is moved twice, which takes longer than adding two numbers.
        let mut results = Tensors::new();
        for meta in outputs {
            results.push(self.allocate(*meta)?);
        }
        match &results[..] {
            [result] => self.dispatch(op, inputs, &[result])?,
            several => self.dispatch(op, inputs, &several.iter().collect::<SmallVec<[&Tensor; 3]>>())?,
        }
        Ok(results)
    }

    /// Runs an operation that needs no inputs, and writes its result over `into`. It is not recorded.
    pub fn fill(&self, into: &Tensor, op: impl Into<Op>) -> Result<()> {
        self.execute_into(&op.into(), &[], into)
    }

    /// Runs an operation with one result, and writes that over `into`.
    pub(crate) fn execute_into(&self, op: &Op, inputs: &[&Tensor], into: &Tensor) -> Result<()> {
        let outputs = self.infer(op, inputs)?;
        let direct = into.layout().is_contiguous()
            && outputs.len() == 1
            && outputs[0] == into.meta()
            && !inputs.iter().any(|input| input.shares_storage(into));
        if let [input] = inputs
            && let Some(view) = self.view(op.spec(), input)?
        {
            return self.execute_in_place(&Op::Assign(Assign), &[into, &view]);
        }
        if !direct {
            let result = self.execute(op, inputs)?;
            let result = result.first().ok_or_else(|| Error::argument(op.name(), "it has no result to keep"))?;
            return self.execute_in_place(&Op::Assign(Assign), &[into, result]);
        }
        into.storage().touch();
        self.dispatch(op, inputs, &[into])
    }

    fn infer(&self, op: &Op, inputs: &[&Tensor]) -> Result<crate::op::Outputs> {
        if inputs.iter().any(|input| !input.context().is(self)) {
            return Err(Error::ForeignTensor);
        }
        self.0.cancel.check()?;
        let metas: SmallVec<[Meta; 4]> = inputs.iter().map(|input| input.meta()).collect();
        op.infer(&metas)
    }

    /// The same bytes under another layout, for an operation that is no more than that.
    fn view(&self, spec: &dyn Spec, input: &Tensor) -> Result<Option<Tensor>> {
        if let Some(layout) = spec.view(input.layout()) {
            return Ok(Some(input.with_layout(layout)));
        }
        if spec.view(&Layout::contiguous(input.shape())).is_none() {
            return Ok(None);
        }
        let contiguous = self.contiguous(input)?;
        Ok(spec.view(contiguous.layout()).map(|layout| contiguous.with_layout(layout)))
    }

    fn execute_in_place(&self, op: &Op, inputs: &[&Tensor]) -> Result<()> {
        let (written, read) = inputs.split_at(op.spec().writes().min(inputs.len()));
        // What is written shares memory with nothing that is read: such an input is copied first.
        let mut apart: SmallVec<[Tensor; 4]> = SmallVec::new();
        for (index, target) in written.iter().enumerate() {
            if written[..index].iter().any(|earlier| earlier.shares_storage(target)) {
                return Err(Error::argument(op.name(), "two tensors that it writes share their memory"));
            }
            if !target.layout().is_contiguous() {
                return Err(Error::shape(op.name(), "a tensor that is written in place must be contiguous"));
            }
        }
        for input in read {
            let shared = written.iter().any(|target| target.shares_storage(input));
            apart.push(if shared { self.copy(input)? } else { input.detach() });
        }
        let read: SmallVec<[&Tensor; 4]> = apart.iter().collect();
        for target in written {
            target.storage().touch();
        }
        self.dispatch(op, &read, written)
    }

    fn dispatch(&self, op: &Op, inputs: &[&Tensor], outputs: &[&Tensor]) -> Result<()> {
        // Without an element, axes may still be long: kernels need not find out that there is nothing to do. But indices
        // that are out of range are refused even so.
        let is_empty = |tensor: &&Tensor| tensor.shape().elements() == 0;
        let is_index = |tensor: &&Tensor| tensor.dtype().is_index() && !is_empty(tensor);
        if outputs.iter().all(is_empty) && !inputs.iter().any(is_index) {
            return Ok(());
        }
        let run = Run {
            crew: &self.0.crew,
            threads: self.0.threads.load(Ordering::Relaxed).min(self.0.crew.threads()),
            cancel: &self.0.cancel,
            heap: &self.0.heap,
            turn: None,
        };
        if op.spec().strided() || inputs.iter().all(|input| input.layout().is_contiguous()) {
            return self.0.device.run(op, &views(inputs), &views(outputs), &run);
        }
        let inputs = inputs.iter().map(|input| self.contiguous(input)).collect::<Result<SmallVec<[Tensor; 4]>>>()?;
        self.0.device.run(op, &views(&inputs.iter().collect::<SmallVec<[&Tensor; 4]>>()), &views(outputs), &run)
    }

    fn contiguous(&self, tensor: &Tensor) -> Result<Tensor> {
        if tensor.layout().is_contiguous() { Ok(tensor.detach()) } else { self.copy(tensor) }
    }

    fn copy(&self, tensor: &Tensor) -> Result<Tensor> {
        let copy = self.allocate(tensor.meta())?;
        self.dispatch(&Op::Copy(Copy), &[tensor], &[&copy])?;
        Ok(copy)
    }

    fn allocate(&self, meta: Meta) -> Result<Tensor> {
        Ok(self.on(self.0.heap.take(meta.bytes())?, meta))
    }

    fn on(&self, block: Block, meta: Meta) -> Tensor {
        Tensor::new(self.clone(), Arc::new(Storage::new(block)), Layout::contiguous(meta.shape), meta.dtype)
    }

    /// Writing in place is not recorded, so while recording it must not touch what the tape describes.
    fn check_in_place(&self, spec: &dyn Spec, inputs: &[&Tensor]) -> Result<()> {
        let writes = spec.writes();
        let recorded = inputs.iter().enumerate().position(|(index, input)| {
            input.history().is_some_and(|history| index >= writes || history.leaf().is_none())
        });
        match recorded {
            Some(input) => Err(Error::NotDifferentiable { op: spec.name(), input }),
            None => Ok(()),
        }
    }
}

/// Pushed and not collected, as above.
fn views<'a>(tensors: &[&'a Tensor]) -> SmallVec<[View<'a>; 4]> {
    let mut views = SmallVec::new();
    for tensor in tensors {
        views.push(tensor.view());
    }
    views
}

/// While it lives, its context records nothing.
pub struct NoGrad(Context);

impl Drop for NoGrad {
    fn drop(&mut self) {
        self.0.0.paused.fetch_sub(1, Ordering::Relaxed);
    }
}
