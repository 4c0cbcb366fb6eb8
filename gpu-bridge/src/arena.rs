//! All parameters of a model in one flat buffer, and their gradients in another.
//!
//! An optimizer step, the norm of all gradients or a message to other workers is then one operation on one
//! tensor, however many layers there are. Parameters are views; backward writes into their places in the flat gradients.
//! A parameter starts at a multiple of [`ALIGNMENT`] elements. What lies between two of them is zero and stays so under
//! every optimizer, so it adds nothing to a norm.
//!
//! Autograd counts writes by buffer: writing to one parameter between forward and backward counts as writing to all. So
//! what is written in a forward pass, such as running statistics, does not belong into the arena of the parameters.
//!
//! ```
//! # use std::sync::Arc;
//! # use weft_gpu::{Context, Crew, Limits, device::cpu::Cpu};
//! use weft_gpu::ArenaBuilder;
//! use weft_gpu::op::{Optimizer, Sgd};
//!
//! # let context = Context::new(Arc::new(Cpu::new()), Arc::new(Crew::new(1)), Limits::default());
//! let mut builder = ArenaBuilder::new();
//! let weight = builder.add("weight", &[2, 1])?;
//! let arena = builder.build(&context)?;
//! let mut optimizer = arena.optimizer(Optimizer::Sgd(Sgd::default()))?;
//!
//! let x = context.tensor(&[1, 2], &[1.0_f32, 2.0])?;
//! let y = x.matmul(&arena.parameter(weight)?)?;
//! y.backward()?;
//! optimizer.step(&arena, 0.5)?;
//! assert_eq!(arena.parameter(weight)?.to_vec::<f32>()?, [-0.5, -1.0]);
//! # Ok::<(), weft_gpu::Error>(())
//! ```

use crate::context::Context;
use crate::error::{Error, Result};
use crate::op::{Optimize, Optimizer};
use crate::shape::{Layout, MAX_ELEMENTS, Shape};
use crate::tensor::Tensor;

/// A parameter starts at a multiple of this many elements: a cache line.
pub const ALIGNMENT: usize = 16;

/// Where a parameter lies.
#[derive(Clone, Debug)]
struct Slot {
    name: String,
    layout: Layout,
}

/// Collects the parameters of a model before there is memory for them.
#[derive(Clone, Debug, Default)]
pub struct ArenaBuilder {
    slots: Vec<Slot>,
    /// One past the last element, padding included.
    end: usize,
}

impl ArenaBuilder {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a parameter and says its index. Refuses a name that is taken.
    pub fn add(&mut self, name: &str, shape: &[usize]) -> Result<usize> {
        let shape = Shape::new(shape)?;
        if self.slots.iter().any(|slot| slot.name == name) {
            return Err(Error::argument("arena", format!("there are two parameters `{name}`")));
        }
        // Both are at most `MAX_ELEMENTS`.
        let end = (self.end + shape.elements()).next_multiple_of(ALIGNMENT);
        if end > MAX_ELEMENTS {
            return Err(Error::too_large(format!("an arena of more than {MAX_ELEMENTS} elements, with `{name}`")));
        }
        self.slots.push(Slot { name: name.into(), layout: Layout::contiguous_at(shape, self.end) });
        self.end = end;
        Ok(self.slots.len() - 1)
    }

    /// Makes the arena. All values are zero: whoever made it writes the first ones, to [`Arena::values`] or parameter
    /// by parameter.
    pub fn build(self, context: &Context) -> Result<Arena> {
        let values = context.zeros(&[self.end])?;
        let gradients = context.zeros(&[self.end])?;
        let parameters = self
            .slots
            .iter()
            .map(|slot| values.with_layout(slot.layout).parameter(Some(&gradients.with_layout(slot.layout))))
            .collect::<Result<Vec<Tensor>>>()?;
        Ok(Arena { slots: self.slots, parameters, values, gradients })
    }
}

/// The parameters of a model. See the [module](self).
pub struct Arena {
    slots: Vec<Slot>,
    parameters: Vec<Tensor>,
    values: Tensor,
    gradients: Tensor,
}

impl Arena {
    /// How many parameters there are.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// How many elements they have, without padding.
    pub fn elements(&self) -> usize {
        self.slots.iter().map(|slot| slot.layout.shape.elements()).sum()
    }

    /// The names of the parameters, in order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.slots.iter().map(|slot| slot.name.as_str())
    }

    /// Where each parameter starts in the flat tensors, in order.
    pub fn offsets(&self) -> impl ExactSizeIterator<Item = usize> {
        self.slots.iter().map(|slot| slot.layout.offset)
    }

    /// A parameter by its index. Backward writes its gradient into the arena.
    pub fn parameter(&self, index: usize) -> Result<Tensor> {
        self.parameters.get(index).cloned().ok_or(Error::IndexOutOfRange {
            op: "arena",
            what: "parameter",
            index: index as i64,
            count: self.len(),
        })
    }

    /// A parameter by its name.
    pub fn named(&self, name: &str) -> Result<Tensor> {
        match self.slots.iter().position(|slot| slot.name == name) {
            Some(index) => self.parameter(index),
            None => Err(Error::argument("arena", format!("there is no parameter `{name}`"))),
        }
    }

    /// All values, padding included, as one tensor. Writing to it writes to the parameters.
    pub fn values(&self) -> &Tensor {
        &self.values
    }

    /// All gradients, padding included, as one tensor. Those that no backward has reached since they were cleared are
    /// made zero first, and count as reached from now on: what is written here, say an average of workers, stays.
    pub fn gradients(&self) -> Result<&Tensor> {
        self.parameters.iter().try_for_each(Tensor::settle_gradient)?;
        Ok(&self.gradients)
    }

    /// All gradients as they lie, those that no backward has reached with whatever is there.
    pub fn raw_gradients(&self) -> &Tensor {
        &self.gradients
    }

    /// Forgets all gradients: the next backward starts anew. Writes no memory.
    pub fn clear_gradients(&self) {
        self.parameters.iter().for_each(Tensor::clear_gradient);
    }

    /// An optimizer for this arena, at its start.
    pub fn optimizer(&self, optimizer: Optimizer) -> Result<OptimizerState> {
        let shape = self.values.shape();
        let context = self.values.context();
        let states = (0..optimizer.states()).map(|_| context.zeros(&shape)).collect::<Result<Vec<Tensor>>>()?;
        Ok(OptimizerState { optimizer, states, steps: 0 })
    }
}

/// An optimizer with what it remembers from step to step.
pub struct OptimizerState {
    optimizer: Optimizer,
    states: Vec<Tensor>,
    steps: u64,
}

impl OptimizerState {
    /// One step against the gradients of the arena, which stay as they are: clear them before the next backward with
    /// [`Arena::clear_gradients`], or it adds to them. A parameter that no backward has reached takes part with a
    /// gradient of zero.
    pub fn step(&mut self, arena: &Arena, rate: f32) -> Result<()> {
        let step = Optimize { optimizer: self.optimizer, rate, step: self.steps.saturating_add(1) };
        let states: Vec<&Tensor> = self.states.iter().collect();
        arena.values.optimize(step, &states, arena.gradients()?)?;
        self.steps = step.step;
        Ok(())
    }

    /// How many steps were done.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// What it remembers besides: tensors as large as the arena, to be saved or written.
    pub fn states(&self) -> &[Tensor] {
        &self.states
    }

    /// Goes on as if this many steps were done, for an optimizer that was saved.
    pub fn resume(&mut self, steps: u64) {
        self.steps = steps;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::crew::Crew;
    use crate::device::cpu::Cpu;
    use crate::op::{Adagrad, Adam, RmsProp, Sgd};
    use crate::{DType, Limits};

    fn context() -> Context {
        Context::new(Arc::new(Cpu::new()), Arc::new(Crew::new(2)), Limits::default())
    }

    /// `a [2, 3]`, `b [1]`, `c [3, 7]`
    fn three(context: &Context) -> Arena {
        let mut builder = ArenaBuilder::new();
        for (index, (name, shape)) in [("a", &[2, 3][..]), ("b", &[1]), ("c", &[3, 7])].into_iter().enumerate() {
            assert_eq!(builder.add(name, shape).unwrap(), index);
        }
        builder.build(context).unwrap()
    }

    fn fill(tensor: &Tensor, value: f32) {
        tensor.assign(&tensor.context().full(&[], DType::F32, f64::from(value)).unwrap()).unwrap();
    }

    fn all(tensor: &Tensor) -> Vec<f32> {
        tensor.to_vec().unwrap()
    }

    #[test]
    fn parameters_start_aligned_and_are_counted_without_padding() {
        let arena = three(&context());
        assert_eq!(arena.offsets().collect::<Vec<_>>(), [0, 16, 32]);
        assert_eq!(arena.names().collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!((arena.len(), arena.elements(), arena.values().shape().elements()), (3, 28, 64));
        assert_eq!(*arena.named("c").unwrap().shape(), [3, 7]);
        assert_eq!(*arena.parameter(0).unwrap().shape(), [2, 3]);
    }

    #[test]
    fn a_name_is_refused_twice_and_the_builder_goes_on() {
        let mut builder = ArenaBuilder::new();
        builder.add("a", &[2]).unwrap();
        assert!(builder.add("a", &[3]).unwrap_err().to_string().contains("two parameters `a`"));
        assert_eq!(builder.add("b", &[3]).unwrap(), 1);
    }

    #[test]
    fn an_arena_that_is_too_large_is_refused() {
        let mut builder = ArenaBuilder::new();
        builder.add("a", &[MAX_ELEMENTS]).unwrap();
        assert!(matches!(builder.add("b", &[1]), Err(Error::TooLarge { .. })));
        assert!(matches!(builder.add("c", &[MAX_ELEMENTS, 2]), Err(Error::TooLarge { .. })));
    }

    #[test]
    fn an_empty_arena_and_an_empty_parameter_take_a_step() {
        let context = context();
        for names in [&[][..], &["nothing"]] {
            let mut builder = ArenaBuilder::new();
            for name in names {
                builder.add(name, &[0, 4]).unwrap();
            }
            let arena = builder.build(&context).unwrap();
            assert_eq!((arena.len(), arena.elements(), arena.is_empty()), (names.len(), 0, names.is_empty()));
            arena.optimizer(Optimizer::Adam(Adam::default())).unwrap().step(&arena, 0.1).unwrap();
        }
    }

    #[test]
    fn an_unknown_parameter_is_refused() {
        let arena = three(&context());
        assert!(arena.named("d").unwrap_err().to_string().contains("no parameter `d`"));
        assert!(matches!(arena.parameter(3), Err(Error::IndexOutOfRange { index: 3, count: 3, .. })));
    }

    #[test]
    fn parameters_are_views_of_the_values() {
        let arena = three(&context());
        fill(&arena.named("b").unwrap(), 5.0);
        let values = all(arena.values());
        assert_eq!(values[16], 5.0);
        assert_eq!(values.iter().sum::<f32>(), 5.0);
    }

    #[test]
    fn backward_writes_into_the_flat_gradients() {
        let context = context();
        let arena = three(&context);
        let (b, c) = (arena.named("b").unwrap(), arena.named("c").unwrap());
        let backward = |parameter: &Tensor, value: f64| {
            let seed = context.full(&parameter.shape(), DType::F32, value).unwrap();
            parameter.add(&parameter.detach()).unwrap().backward_from(&seed).unwrap();
        };
        backward(&b, 2.0);
        backward(&c, 3.0);
        backward(&c, 4.0);
        let gradients = all(arena.gradients().unwrap());
        assert_eq!(gradients[16], 2.0);
        assert_eq!(gradients[32..53], [7.0; 21]);
        assert_eq!(gradients.iter().sum::<f32>(), 2.0 + 21.0 * 7.0);
        assert_eq!(all(&c.gradient().unwrap()), [7.0; 21]);
    }

    #[test]
    fn gradients_that_were_cleared_are_zero_until_backward_reaches_them() {
        let context = context();
        let arena = three(&context);
        fill(arena.gradients().unwrap(), 9.0);
        arena.clear_gradients();
        let b = arena.named("b").unwrap();
        assert!(b.gradient().is_none());
        b.add(&b).unwrap().backward_from(&context.full(&[1], DType::F32, 1.0).unwrap()).unwrap();
        assert_eq!(all(&b.gradient().unwrap()), [2.0]);
        assert!(arena.named("a").unwrap().gradient().is_none());
        let gradients = all(arena.gradients().unwrap());
        assert_eq!((&gradients[..6], gradients[16], &gradients[32..53]), (&[0.0; 6][..], 2.0, &[0.0; 21][..]));
    }

    #[test]
    fn gradients_that_were_written_from_outside_stay() {
        let arena = three(&context());
        fill(arena.gradients().unwrap(), 9.0);
        assert_eq!(all(arena.gradients().unwrap()), [9.0; 64]);
        assert_eq!(all(&arena.named("b").unwrap().gradient().unwrap()), [9.0]);
    }

    #[test]
    fn padding_stays_zero_under_every_optimizer() {
        let context = context();
        let sgd = Sgd { momentum: 0.9, nesterov: true, weight_decay: 0.1, dampening: 0.0 };
        for optimizer in [
            Optimizer::Sgd(Sgd::default()),
            Optimizer::Sgd(sgd),
            Optimizer::Adam(Adam { weight_decay: 0.1, ..Adam::default() }),
            Optimizer::AdamW(Adam { weight_decay: 0.1, ..Adam::default() }),
            Optimizer::RmsProp(RmsProp { momentum: 0.9, weight_decay: 0.1, ..RmsProp::default() }),
            Optimizer::Adagrad(Adagrad { weight_decay: 0.1, ..Adagrad::default() }),
        ] {
            let arena = three(&context);
            for name in ["a", "b", "c"] {
                let parameter = arena.named(name).unwrap();
                fill(&parameter, 1.0);
                let ones = context.full(&parameter.shape(), DType::F32, 1.0).unwrap();
                parameter.backward_from(&ones).unwrap();
            }
            let mut state = arena.optimizer(optimizer).unwrap();
            for _ in 0..3 {
                state.step(&arena, 0.1).unwrap();
            }
            assert_eq!(state.steps(), 3);
            let used = |index: usize| matches!(index, 0..6 | 16 | 32..53);
            for tensor in [arena.values(), arena.gradients().unwrap()].into_iter().chain(state.states()) {
                for (index, value) in all(tensor).into_iter().enumerate() {
                    assert_eq!(value == 0.0, !used(index), "{optimizer:?}: {value} at {index}");
                    assert!(value.is_finite());
                }
            }
        }
    }

    #[test]
    fn an_optimizer_that_was_saved_goes_on_as_if_it_had_not_been() {
        let context = context();
        let run = |save_at: u64| {
            let arena = three(&context);
            fill(arena.gradients().unwrap(), 0.5);
            let mut state = arena.optimizer(Optimizer::Adam(Adam::default())).unwrap();
            for step in 0..4 {
                if step == save_at {
                    let saved: Vec<Vec<f32>> = state.states().iter().map(all).collect();
                    let steps = state.steps();
                    state = arena.optimizer(Optimizer::Adam(Adam::default())).unwrap();
                    for (tensor, saved) in state.states().iter().zip(&saved) {
                        tensor.write(0, bytemuck::cast_slice(saved)).unwrap();
                    }
                    state.resume(steps);
                }
                fill(arena.gradients().unwrap(), step as f32 - 1.5);
                state.step(&arena, 0.1).unwrap();
            }
            all(arena.values())
        };
        assert_eq!(run(2), run(9));
    }

    #[test]
    fn a_step_that_is_refused_does_not_count() {
        let context = context();
        let arena = three(&context);
        let mut state = arena.optimizer(Optimizer::Sgd(Sgd::default())).unwrap();
        assert!(state.step(&arena, f32::NAN).is_err());
        assert_eq!(state.steps(), 0);
        let other = ArenaBuilder::new().build(&context).unwrap();
        let mut adam = arena.optimizer(Optimizer::Adam(Adam::default())).unwrap();
        assert!(matches!(adam.step(&other, 0.1), Err(Error::BadShape { .. })));
    }
}
