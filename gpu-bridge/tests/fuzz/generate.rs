//! Bytes to programs.
//!
//! The generator knows what every register will be, because [`Op::infer`] says so for all devices. So it makes mostly
//! calls that are accepted, chains them, and keeps them small; and now and then it spoils one.

use weft_gpu::op::{Expand, Meta, Op, Permute, Reduce, Reducer, Slice};
use weft_gpu::{Axes, DType, Layout, Limits, Shape};

use crate::bytes::Bytes;
use crate::calls::{Kind, Make, Want, optimizer, order};
use crate::contents::Contents;
use crate::program::{CONTEXTS, Method, Program, ROOM, Register, Step};

/// The most steps of a program, and of each branch.
const STEPS: usize = 60;

/// The most work of one call: a few milliseconds.
const MOST_FLOPS: u64 = 4_000_000;
const MOST_BYTES: usize = 1 << 20;

/// What the generator knows of a register.
#[derive(Clone)]
struct Slot {
    meta: Meta,
    context: usize,
    /// Whether it likely descends from a parameter.
    tracked: bool,
    is_parameter: bool,
    dropped: bool,
}

struct Build<'b> {
    bytes: Bytes<'b>,
    slots: Vec<Slot>,
    steps: Vec<Step>,
}

/// The program that these bytes say.
pub fn program(data: &[u8], branches: bool) -> Program {
    let mut build = Build { bytes: Bytes::new(data), slots: Vec::new(), steps: Vec::new() };
    let limits = [(); CONTEXTS].map(|()| build.limits());
    build.fill(STEPS);
    let (steps, slots) = (std::mem::take(&mut build.steps), build.slots.clone());
    let branches = [branches; 2].map(|wanted| {
        build.slots.clone_from(&slots);
        if wanted {
            build.fill(STEPS);
        }
        std::mem::take(&mut build.steps)
    });
    Program { limits, steps, branches }
}

/// An operation on what would suit it, without tensors: any sizes will do, as nothing is computed.
pub fn spec(data: &[u8]) -> Option<(Op, Vec<Meta>)> {
    let mut bytes = Bytes::new(data);
    let kind = bytes.pick(Kind::ALL);
    let mut call = kind.call(&mut Make { bytes: &mut bytes, known: &[] })?;
    // One size becomes another everywhere, so that sizes that belong together still do.
    for _ in 0..bytes.below(4) {
        let sizes: Vec<usize> = call.inputs.iter().flat_map(|want| want.meta.shape.to_vec()).collect();
        let (from, to) = (*sizes.get(bytes.below(sizes.len()))?, 1_usize << bytes.below(41));
        for want in &mut call.inputs {
            let grown: Vec<usize> = want.meta.shape.iter().map(|&size| if size == from { to } else { size }).collect();
            want.meta.shape = Shape::new(&grown).ok()?;
        }
    }
    Some((call.op, call.inputs.into_iter().map(|want| want.meta).collect()))
}

impl Build<'_> {
    fn limits(&mut self) -> Limits {
        let device_memory = if self.bytes.once_in(6) { self.bytes.below(1 << 16) } else { ROOM };
        let tape_nodes = if self.bytes.once_in(8) { self.bytes.below(12) } else { 1 << 20 };
        Limits { device_memory, tape_nodes }
    }

    fn fill(&mut self, steps: usize) {
        while self.steps.len() < steps && !self.bytes.is_empty() {
            self.step();
        }
    }

    fn step(&mut self) {
        let context = self.context();
        match self.bytes.below(100) {
            0..62 => self.call(context),
            62..70 => self.backward(context),
            70..73 => self.gradient(),
            73..76 => self.method(),
            76..79 => self.transfer(),
            79..86 => self.drop_one(),
            86..88 => self.detach(),
            88..90 => self.steps.push(Step::NoGrad { context, on: self.bytes.once_in(3) }),
            // Set for one step, mostly: else nothing else would be tested.
            90 => {
                self.steps.push(Step::Cancel { context, on: true });
                self.call(context);
                self.steps.push(Step::Cancel { context, on: false });
            }
            91..94 => {
                let count = self.bytes.pick(&[1, 2, 3, 0, usize::MAX]);
                self.steps.push(Step::Threads { context, count });
            }
            94 => self.steps.push(Step::Trim { context }),
            95 => self.train(context),
            _ => self.parameter(),
        }
    }

    fn context(&mut self) -> usize {
        usize::from(self.bytes.once_in(12))
    }

    fn add(&mut self, meta: Meta, context: usize, tracked: bool) -> Register {
        self.slots.push(Slot { meta, context, tracked, is_parameter: false, dropped: false });
        self.slots.len() - 1
    }

    /// Any register; mostly one that was filled lately, of the right context.
    fn any(&mut self) -> Option<Register> {
        let back = if self.bytes.once_in(4) { self.bytes.below(self.slots.len()) } else { self.bytes.below(8) };
        let last = self.slots.len().checked_sub(1)?;
        Some(last.saturating_sub(back))
    }

    fn find(&mut self, fits: impl Fn(&Slot) -> bool) -> Option<Register> {
        let fit: Vec<Register> = (0..self.slots.len()).filter(|&index| fits(&self.slots[index])).collect();
        let back = self.bytes.below(fit.len().min(8));
        fit.get(fit.len().wrapping_sub(1 + back)).copied()
    }

    fn call(&mut self, context: usize) {
        let kind = self.bytes.pick(Kind::ALL);
        let known: Vec<Meta> = self.slots.iter().filter(|slot| !slot.dropped).map(|slot| slot.meta).collect();
        let Some(call) = kind.call(&mut Make { bytes: &mut self.bytes, known: &known }) else { return };
        let mut inputs: Vec<Register> = Vec::new();
        for want in call.inputs {
            let register = self.supply(want, context);
            inputs.push(register);
        }
        self.spoil(&mut inputs);
        self.run(call.op, inputs, context);
    }

    /// Sometimes the inputs are not what the operation would take.
    fn spoil(&mut self, inputs: &mut Vec<Register>) {
        if !self.bytes.once_in(12) || inputs.is_empty() {
            return;
        }
        let place = self.bytes.below(inputs.len());
        match self.bytes.below(4) {
            0 => drop(inputs.remove(place)),
            1 => inputs.push(inputs[place]),
            _ => {
                if let Some(other) = self.any() {
                    inputs[place] = other;
                }
            }
        }
    }

    /// A register with such a tensor: one that there is, or a new one.
    fn supply(&mut self, want: Want, context: usize) -> Register {
        if !self.bytes.once_in(4)
            && let Some(found) = self.find(|slot| slot.meta == want.meta && slot.context == context && !slot.dropped)
        {
            return found;
        }
        let register = self.create(&want, context);
        if want.meta.dtype == DType::F32 && self.bytes.once_in(3) {
            return self.as_parameter(register);
        }
        register
    }

    fn as_parameter(&mut self, of: Register) -> Register {
        let Slot { meta, context, .. } = self.slots[of];
        let gradient = match self.bytes.below(8) {
            0 => self.find(|slot| slot.meta == meta && slot.context == context && !slot.dropped),
            1 if meta.bytes() <= MOST_BYTES => {
                Some(self.create_plain(&Want { meta, contents: Contents::Hostile(0) }, context))
            }
            _ => None,
        };
        let into = self.add(meta, context, true);
        self.slots[into].is_parameter = true;
        self.steps.push(Step::Parameter { into, of, gradient });
        into
    }

    /// A new tensor: as it is, or a view of one.
    fn create(&mut self, want: &Want, context: usize) -> Register {
        let shape = want.meta.shape;
        if want.meta.bytes() > MOST_BYTES {
            // It is to be refused, or at least not to be filled: one element that is repeated will do.
            let repeated = self.create_as(want, &[], Expand(shape).into(), context);
            return repeated.unwrap_or_else(|| self.create_plain(want, context));
        }
        let small = shape.iter().all(|&size| size <= 2_000) && shape.rank() > 0;
        match self.bytes.below(8) {
            0 if small => self.create_permuted(want, context),
            1 if small => self.create_sliced(want, context),
            2 if small => self.create_expanded(want, context),
            _ => None,
        }
        .unwrap_or_else(|| self.create_plain(want, context))
    }

    fn create_plain(&mut self, want: &Want, context: usize) -> Register {
        let into = self.add(want.meta, context, false);
        self.steps.push(Step::Create { into, context, meta: want.meta, contents: want.contents });
        into
    }

    fn create_as(&mut self, want: &Want, shape: &[usize], view: Op, context: usize) -> Option<Register> {
        let stored = Want { meta: Meta::new(Shape::new(shape).ok()?, want.meta.dtype), contents: want.contents };
        let register = self.create_plain(&stored, context);
        let first = self.run(view, vec![register], context)?;
        (self.slots[first].meta == want.meta).then_some(first)
    }

    fn create_permuted(&mut self, want: &Want, context: usize) -> Option<Register> {
        let order = order(&mut Make { bytes: &mut self.bytes, known: &[] }, want.meta.shape.rank());
        let mut stored = vec![0; order.len()];
        for (to, &from) in order.iter().enumerate() {
            stored[from] = want.meta.shape[to];
        }
        self.create_as(want, &stored, Permute::new(&order).ok()?.into(), context)
    }

    fn create_sliced(&mut self, want: &Want, context: usize) -> Option<Register> {
        let rank = want.meta.shape.rank();
        let (mut stored, mut starts, mut steps) = (want.meta.shape.to_vec(), vec![0; rank], vec![1; rank]);
        let axis = self.bytes.below(rank);
        (stored[axis], starts[axis], steps[axis]) = (2 * stored[axis] + 1, 1, 2);
        let view = Slice { starts: Shape::new(&starts).ok()?, sizes: want.meta.shape, steps: Shape::new(&steps).ok()? };
        self.create_as(want, &stored, view.into(), context)
    }

    fn create_expanded(&mut self, want: &Want, context: usize) -> Option<Register> {
        let mut stored = want.meta.shape.to_vec();
        stored[self.bytes.below(want.meta.shape.rank())] = 1;
        self.create_as(want, &stored, Expand(want.meta.shape).into(), context)
    }

    /// A call on registers, with new registers for its results. Says which is the first of these.
    fn run(&mut self, op: Op, inputs: Vec<Register>, context: usize) -> Option<Register> {
        let metas: Vec<Meta> = inputs.iter().map(|&input| self.slots[input].meta).collect();
        let outputs = op.infer(&metas).unwrap_or_default();
        if !is_reasonable(&op, &metas, &outputs) {
            return None;
        }
        let tracked = op.spec().differentiable() && inputs.iter().any(|&input| self.slots[input].tracked);
        let into = self.slots.len();
        for meta in &outputs {
            self.add(*meta, context, tracked && meta.dtype.is_float());
        }
        self.steps.push(Step::Call { into, context, op, inputs });
        (!outputs.is_empty()).then_some(into)
    }

    fn backward(&mut self, context: usize) {
        let found = if self.bytes.once_in(8) { self.any() } else { self.find(|slot| slot.tracked && !slot.dropped) };
        let Some(mut of) = found else { return };
        let Slot { meta, context: own, .. } = self.slots[of];
        let context = if self.bytes.once_in(16) { context } else { own };
        let mut gradient = None;
        match self.bytes.below(8) {
            0 => gradient = self.any(),
            1..4 => {
                let want = Make { bytes: &mut self.bytes, known: &[] }.of(&meta.shape, DType::F32);
                gradient = want.filter(|_| meta.bytes() <= MOST_BYTES).map(|want| self.supply(want, context));
            }
            4 => {}
            _ => {
                let axes = Axes::all(meta.shape.rank());
                let sum = Reduce { reducer: Reducer::Sum, axes, keep: self.bytes.flip() };
                of = self.run(sum.into(), vec![of], context).unwrap_or(of);
            }
        }
        self.steps.push(Step::Backward { of, gradient });
        if self.bytes.once_in(8) {
            self.steps.push(Step::Backward { of, gradient });
        }
    }

    fn gradient(&mut self) {
        let found = if self.bytes.once_in(8) { self.any() } else { self.find(|slot| slot.is_parameter) };
        let Some(of) = found else { return };
        if self.bytes.once_in(3) {
            self.steps.push(Step::ClearGradient { of });
        }
        let Slot { meta, context, .. } = self.slots[of];
        let into = self.add(meta, context, false);
        self.steps.push(Step::Gradient { into, of });
    }

    fn parameter(&mut self) {
        if let Some(of) = self.any() {
            self.as_parameter(of);
        }
    }

    fn detach(&mut self) {
        if let Some(of) = self.any() {
            let Slot { meta, context, .. } = self.slots[of];
            let into = self.add(meta, context, false);
            self.steps.push(Step::Detach { into, of });
        }
    }

    fn drop_one(&mut self) {
        if let Some(register) = self.any() {
            self.slots[register].dropped = true;
            self.steps.push(Step::Drop { register });
        }
    }

    /// Bytes in and out, of ranges that mostly fit.
    fn transfer(&mut self) {
        let Some(of) = self.any() else { return };
        let meta = self.slots[of].meta;
        let elements = meta.shape.elements().min(5_000);
        let start = self.bytes.below(elements + 1);
        let count = self.bytes.below(elements - start + 1);
        let element = self.bytes.size(start);
        let bytes = if self.bytes.once_in(16) { self.bytes.below(1 << 16) } else { count * meta.dtype.size() };
        self.steps.push(match self.bytes.below(3) {
            0 => Step::Write { of, element, bytes },
            1 => Step::Read { of, element, bytes },
            _ => Step::ReadAll { of },
        });
    }

    fn train(&mut self, context: usize) {
        let mut make = Make { bytes: &mut self.bytes, known: &[] };
        let shapes = (0..make.bytes.below(4)).map(|_| make.shape(0, 3)).collect();
        let optimizer = optimizer(&mut make);
        let rate = make.bytes.float(0.0, 1.0);
        let resume = make.bytes.pick(&[0, 0, 5, u64::MAX]);
        self.steps.push(Step::Train { context, shapes, optimizer, rate, resume });
    }

    /// Something for each of so many axes, mostly.
    fn per_axis(&mut self, rank: usize, usual: impl Fn(usize) -> usize) -> Vec<usize> {
        let rank = (rank + usize::from(self.bytes.once_in(16))).saturating_sub(usize::from(self.bytes.once_in(16)));
        (0..rank).map(|axis| self.bytes.size(usual(axis))).collect()
    }

    fn method(&mut self) {
        let Some(of) = self.any() else { return };
        let shape = self.slots[of].meta.shape;
        let rank = shape.rank();
        let size = |axis: usize| shape.get(axis).copied().unwrap_or(1);
        let back = |axis: usize| rank.saturating_sub(1 + axis);
        let method = match self.bytes.below(9) {
            0 => {
                let axis = self.bytes.below(rank);
                let start = self.bytes.below(size(axis).min(100));
                let length = self.bytes.size((size(axis) - start) / 2);
                Method::Narrow { axis: self.bytes.size(axis), start: self.bytes.size(start), size: length }
            }
            1 => Method::Transposed,
            2 => Method::Permute { order: self.per_axis(rank, back) },
            3 => Method::Slice {
                starts: self.per_axis(rank, |_| 0),
                sizes: self.per_axis(rank, |axis| size(axis) / 2),
                steps: self.per_axis(rank, |_| 1),
            },
            4 => Method::Reshape { sizes: self.per_axis(rank, |axis| size(back(axis))) },
            5 => Method::Expand { sizes: self.per_axis(rank, size) },
            6 => Method::Pad { before: self.per_axis(rank, |_| 1), after: self.per_axis(rank, |_| 0), value: 1.0 },
            7 => Method::SumOver { axes: self.per_axis(rank, |axis| axis), keep: self.bytes.flip() },
            _ => Method::TopK { count: self.bytes.size(size(back(0)).min(3)) },
        };
        self.steps.push(Step::Method { of, method });
    }
}

/// Whether a call is quick: it is small, moves nothing, or cannot have the memory that it needs.
fn is_reasonable(op: &Op, inputs: &[Meta], outputs: &[Meta]) -> bool {
    let spec = op.spec();
    if let [input] = inputs
        && !outputs.is_empty()
        && spec.view(&Layout::contiguous(input.shape)).is_some()
    {
        return true;
    }
    let too_large = |metas: &[Meta]| metas.iter().any(|meta| meta.bytes() > ROOM);
    if too_large(outputs) || (!spec.strided() && too_large(inputs)) {
        return true;
    }
    outputs.is_empty() && spec.writes() == 0
        || op.cost(inputs, outputs).flops <= MOST_FLOPS
            && inputs.iter().chain(outputs).all(|meta| meta.bytes() <= MOST_BYTES)
}
