//! Programs on devices: runs them, and checks after every step what must always hold.

use std::collections::HashSet;
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_gpu::device::Device;
use weft_gpu::op::{Meta, Op, Optimizer, Reducer};
use weft_gpu::{ArenaBuilder, Context, Crew, Error, NoGrad, Result, Tensor};

use crate::calls::Kind;
use crate::program::{CONTEXTS, Method, Program, ROOM, Register, Step};
use crate::shadow::Shadow;

/// The most elements of a tensor that is compared at the end.
const COMPARED: usize = 20_000;

/// How long a step may take: thousands of times what they do, as the machine may have other things to do.
const PATIENCE: Duration = Duration::from_secs(30);

/// What came of a program, to be compared with what came of it elsewhere.
#[derive(Default)]
pub struct Trace {
    outcomes: Vec<Outcome>,
    /// What the registers held at the end.
    registers: Vec<Option<Vec<u8>>>,
    /// Which operations did not fail.
    pub succeeded: HashSet<Kind>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    /// A register that it needs is empty.
    Skipped,
    Done,
    Failed(Discriminant<Error>),
}

/// Runs a program on fresh contexts of a device, and checks that everything is given back. On so many threads, or on as
/// many as it says itself.
pub fn run(device: &Arc<dyn Device>, crew: &Arc<Crew>, threads: Option<usize>, program: &Program) -> Trace {
    let contexts = program.limits.map(|limits| Context::new(Arc::clone(device), Arc::clone(crew), limits));
    contexts.iter().for_each(|context| context.set_threads(threads.unwrap_or(usize::MAX)));
    let mut machine = Machine {
        program,
        contexts: &contexts,
        registers: Vec::new(),
        guards: Vec::new(),
        trace: Trace::default(),
        shared: false,
        threads,
        shadow: device.info().kind.is_gpu().then(|| Shadow::new(crew)),
    };
    program.steps.iter().for_each(|step| machine.step(step));
    machine.keep_registers();
    if program.branches.iter().any(|branch| !branch.is_empty()) {
        machine.branch();
    }
    let trace = machine.trace;
    drop((machine.registers, machine.guards));
    for context in &contexts {
        let heap = context.heap();
        assert_eq!(heap.used(), heap.kept(), "memory was not given back");
        heap.trim();
        assert_eq!(heap.used(), 0, "memory was not let go");
        assert_eq!(context.tape_nodes(), 0, "the tape was not given back");
        assert!(context.is_recording());
    }
    trace
}

/// Both did and gave the same, up to where one of them ran out of memory: how much an operation takes to work in is a
/// device's own affair. `same` compares the bytes of a register.
pub fn compare(a: &Trace, b: &Trace, program: &Program, same: impl Fn(&[u8], &[u8]) -> bool) {
    let full = discriminant(&Error::OutOfMemory { wanted: 0, used: 0, limit: 0 });
    for (index, (a, b)) in a.outcomes.iter().zip(&b.outcomes).enumerate() {
        if [a, b].contains(&&Outcome::Failed(full)) {
            return;
        }
        assert_eq!(a, b, "step {index} differs: {:?}", program.steps.get(index));
    }
    for (register, pair) in a.registers.iter().zip(&b.registers).enumerate() {
        if let (Some(a), Some(b)) = pair {
            assert!(same(a, b), "register {register} differs, which comes from {:?}", program.source(register));
        }
    }
}

struct Machine<'a> {
    program: &'a Program,
    contexts: &'a [Context; CONTEXTS],
    registers: Vec<Option<Tensor>>,
    guards: Vec<(usize, NoGrad)>,
    trace: Trace,
    /// Whether another thread uses the same contexts.
    shared: bool,
    threads: Option<usize>,
    /// Where every call of a GPU is done again.
    shadow: Option<Shadow>,
}

/// Says which step it was if something panics.
struct Doing<'a>(&'a Step);

impl Drop for Doing<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("it was in {:?}", self.0);
        }
    }
}

impl Machine<'_> {
    /// Two threads with the same tensors at the same time.
    fn branch(&self) {
        std::thread::scope(|scope| {
            for branch in &self.program.branches {
                let mut machine = Machine {
                    program: self.program,
                    contexts: self.contexts,
                    registers: self.registers.clone(),
                    guards: Vec::new(),
                    trace: Trace::default(),
                    shared: true,
                    threads: self.threads,
                    shadow: None,
                };
                scope.spawn(move || branch.iter().for_each(|step| machine.step(step)));
            }
        });
    }

    fn keep_registers(&mut self) {
        let kept = |tensor: &Option<Tensor>| {
            let tensor = tensor.as_ref().filter(|tensor| tensor.shape().elements() <= COMPARED)?;
            let mut bytes = vec![0; tensor.meta().bytes()];
            tensor.read(0, &mut bytes).ok().map(|()| bytes)
        };
        self.trace.registers = self.registers.iter().map(kept).collect();
    }

    fn step(&mut self, step: &Step) {
        let _doing = Doing(step);
        let begin = Instant::now();
        let performed = self.perform(step);
        assert!(begin.elapsed() < PATIENCE, "a step of this size took {:?}", begin.elapsed());
        let outcome = match performed {
            None => Outcome::Skipped,
            Some(Ok(())) => Outcome::Done,
            Some(Err(error)) => {
                assert!(!matches!(error, Error::Internal { .. } | Error::DeviceLost { .. }), "{error}");
                Outcome::Failed(discriminant(&error))
            }
        };
        self.trace.outcomes.push(outcome);
        for (context, limits) in self.contexts.iter().zip(&self.program.limits) {
            assert!(context.heap().peak() <= limits.device_memory, "more memory than the limit");
            // Two threads may both find the last place free.
            assert!(context.tape_nodes() <= limits.tape_nodes + usize::from(self.shared), "more tape than the limit");
        }
    }

    /// Nothing if a register that the step needs is empty.
    fn perform(&mut self, step: &Step) -> Option<Result<()>> {
        Some(match step {
            Step::Create { into, context, meta, contents } => {
                contents.upload(&self.contexts[*context], meta).map(|tensor| self.set(*into, tensor))
            }
            Step::Call { into, context, op, inputs } => {
                let inputs: Option<Vec<Tensor>> = inputs.iter().map(|&input| self.get(input).cloned()).collect();
                self.call(*into, &self.contexts[*context].clone(), op, &inputs?)
            }
            Step::Method { of, method } => run_method(self.get(*of)?, method),
            Step::Parameter { into, of, gradient } => {
                let gradient = match gradient {
                    Some(gradient) => Some(self.get(*gradient)?),
                    None => None,
                };
                self.get(*of)?.parameter(gradient).map(|tensor| self.set(*into, tensor))
            }
            Step::Detach { into, of } => {
                let tensor = self.get(*of)?.detach();
                self.set(*into, tensor);
                Ok(())
            }
            Step::Backward { of, gradient } => {
                let of = self.get(*of)?;
                match gradient {
                    Some(gradient) => self.check_backward(of, Some(self.get(*gradient)?)),
                    None => self.check_backward(of, None),
                }
            }
            Step::Gradient { into, of } => {
                let gradient = self.get(*of)?.gradient()?;
                self.set(*into, gradient);
                Ok(())
            }
            Step::ClearGradient { of } => {
                self.get(*of)?.clear_gradient();
                Ok(())
            }
            Step::Write { of, element, bytes } => self.get(*of)?.write(*element, &vec![0; *bytes]),
            Step::Read { of, element, bytes } => self.get(*of)?.read(*element, &mut vec![0; *bytes]),
            Step::ReadAll { of } => self.get(*of)?.to_vec::<f32>().map(drop),
            Step::Drop { register } => {
                *self.registers.get_mut(*register)? = None;
                Ok(())
            }
            Step::NoGrad { context, on } => {
                if *on {
                    self.guards.push((*context, self.contexts[*context].no_grad()));
                } else {
                    self.guards.retain(|(guarded, _)| guarded != context);
                }
                Ok(())
            }
            Step::Cancel { context, on } => {
                let cancel = self.contexts[*context].cancel();
                if *on {
                    cancel.cancel()
                } else {
                    cancel.clear()
                }
                Ok(())
            }
            Step::Threads { context, count } => {
                self.contexts[*context].set_threads(self.threads.unwrap_or(*count));
                Ok(())
            }
            Step::Trim { context } => {
                self.contexts[*context].heap().trim();
                Ok(())
            }
            Step::Train { context, shapes, optimizer, rate, resume } => {
                train(&self.contexts[*context], shapes, *optimizer, *rate, *resume)
            }
        })
    }

    fn get(&self, register: Register) -> Option<&Tensor> {
        self.registers.get(register)?.as_ref()
    }

    fn set(&mut self, register: Register, tensor: Tensor) {
        if self.registers.len() <= register {
            self.registers.resize(register + 1, None);
        }
        self.registers[register] = Some(tensor);
    }

    fn call(&mut self, into: Register, context: &Context, op: &Op, inputs: &[Tensor]) -> Result<()> {
        let metas: Vec<Meta> = inputs.iter().map(Tensor::meta).collect();
        let inferred = op.infer(&metas);
        let before = self.shadow.as_ref().and_then(|shadow| shadow.copies(inputs));
        let result = context.run(op.clone(), &inputs.iter().collect::<Vec<_>>()).and_then(|outputs| {
            // What only shows while it runs is told by the next read.
            outputs.iter().chain(inputs).try_for_each(|tensor| tensor.read(0, &mut []))?;
            Ok(outputs)
        });
        if let (Some(shadow), Some(before), Ok(outputs)) = (&self.shadow, before, &result) {
            shadow.compare(op, &before, inputs, outputs);
        }
        match (&inferred, &result) {
            (Ok(want), Ok(got)) => {
                assert_eq!(
                    want.to_vec(),
                    got.iter().map(Tensor::meta).collect::<Vec<_>>(),
                    "it is not what was inferred"
                );
            }
            (Ok(outputs), Err(error)) => {
                assert!(self.may_fail(context, op, inputs, outputs, error), "of {metas:?}: {error}");
            }
            (Err(refused), Ok(_)) => panic!("of {metas:?} it was not refused, though {refused}"),
            (Err(_), Err(_)) => {}
        }
        let outputs = result?;
        self.trace.succeeded.insert(Kind::of(op));
        for (index, output) in outputs.into_iter().enumerate() {
            self.set(into + index, output);
        }
        Ok(())
    }

    /// Whether this is an error that an operation may give whose inputs and attributes are right.
    fn may_fail(&self, context: &Context, op: &Op, inputs: &[Tensor], outputs: &[Meta], error: &Error) -> bool {
        let writes = op.spec().writes() > 0;
        match error {
            Error::ForeignTensor => {
                inputs.iter().any(|input| !std::ptr::eq(context.device(), input.context().device()))
            }
            Error::Cancelled => self.shared || context.cancel().is_cancelled(),
            Error::Busy { .. } => self.shared,
            Error::OutOfMemory { limit, .. } => {
                *limit < ROOM
                    || self.shared
                    || outputs
                        .iter()
                        .chain(&inputs.iter().map(Tensor::meta).collect::<Vec<_>>())
                        .any(|meta| meta.bytes() > ROOM / 8)
            }
            Error::TapeFull { limit } => *limit < ROOM,
            Error::NotDifferentiable { .. } => context.is_recording() || self.shared,
            // What the other thread did may be told to this one.
            Error::IndexOutOfRange { .. } => self.shared || inputs.iter().any(|input| input.dtype().is_index()),
            // What is written must be contiguous, and written once.
            Error::BadShape { reason, .. } => writes && reason.contains("contiguous"),
            Error::BadArgument { reason, .. } => {
                (writes && reason.contains("share their memory"))
                    || ((is_sparse(op) || self.shared) && reason.contains("offset"))
                    || ((matches!(op, Op::AddAt(_)) || self.shared) && reason.contains("indices must rise"))
            }
            _ => false,
        }
    }

    fn check_backward(&self, of: &Tensor, gradient: Option<&Tensor>) -> Result<()> {
        let result = match gradient {
            Some(gradient) => of.backward_from(gradient),
            None => of.backward(),
        };
        let Err(error) = &result else {
            for parameter in self.registers.iter().flatten() {
                if let Some(gradient) = parameter.gradient() {
                    assert_eq!(gradient.meta(), parameter.meta(), "a gradient is like its parameter");
                }
            }
            return result;
        };
        let context = of.context();
        let may_fail = match error {
            Error::NoGradient { .. } | Error::AlreadyBackward { .. } | Error::Overwritten { .. } => true,
            Error::NotDifferentiable { .. } | Error::IndexOutOfRange { .. } => true,
            Error::ForeignTensor | Error::BadShape { .. } | Error::BadType { .. } => gradient.is_some(),
            Error::BadArgument { reason, .. } => reason.contains("gradients flow through") || reason.contains("offset"),
            Error::OutOfMemory { .. } => true,
            Error::Cancelled => self.shared || context.cancel().is_cancelled(),
            Error::Busy { .. } => self.shared,
            _ => false,
        };
        assert!(may_fail, "{error}");
        result
    }
}

fn is_sparse(op: &Op) -> bool {
    matches!(op, Op::CsrMatMul(_) | Op::CsrTransposedMatMul(_) | Op::CsrValuesGradient(_))
}

fn run_method(tensor: &Tensor, method: &Method) -> Result<()> {
    match method {
        Method::Narrow { axis, start, size } => tensor.narrow(*axis, *start, *size).map(drop),
        Method::Transposed => tensor.transposed().map(drop),
        Method::Permute { order } => tensor.permute(order).map(drop),
        Method::Slice { starts, sizes, steps } => tensor.slice(starts, sizes, steps).map(drop),
        Method::Reshape { sizes } => tensor.reshape(sizes).map(drop),
        Method::Expand { sizes } => tensor.expand(sizes).map(drop),
        Method::Pad { before, after, value } => tensor.pad(before, after, *value).map(drop),
        Method::SumOver { axes, keep } => tensor.reduce(Reducer::Sum, axes, *keep).map(drop),
        Method::TopK { count } => tensor.top_k(*count).map(drop),
    }
}

/// Two steps of an optimizer on parameters that all go into one loss.
fn train(context: &Context, shapes: &[Vec<usize>], optimizer: Optimizer, rate: f32, resume: u64) -> Result<()> {
    let mut builder = ArenaBuilder::new();
    for (index, shape) in shapes.iter().enumerate() {
        builder.add(&index.to_string(), shape)?;
    }
    let arena = builder.build(context)?;
    let mut state = arena.optimizer(optimizer)?;
    state.resume(resume);
    for _ in 0..2 {
        for index in 0..arena.len() {
            let parameter = arena.parameter(index)?;
            let loss = parameter.mul(&parameter)?.sum()?;
            if context.is_recording() {
                loss.backward()?;
            }
        }
        state.step(&arena, rate)?;
        arena.clear_gradients();
    }
    Ok(())
}
