//! Tapes of any length: nothing recurses over them.

use weft_gpu::{Context, Limits, Tensor};

use crate::{context_with, gradient, one, parameter};

const LENGTH: usize = 200_000;

/// Recursion over the chain would overflow this at once.
fn on_a_small_stack(test: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(128 << 10).spawn(test).unwrap().join().unwrap();
}

fn chain(context: &Context, weight: &Tensor) -> Tensor {
    let step = one(context, 1.0);
    let mut y = weight.clone();
    for _ in 0..LENGTH {
        y = y.add(&step).unwrap();
    }
    assert_eq!(context.tape_nodes(), LENGTH);
    y
}

#[test]
fn are_dropped_without_recursion() {
    on_a_small_stack(|| {
        let context = context_with(1, Limits::default());
        let weight = parameter(&context, &[1, 1], 1.0);
        drop(chain(&context, &weight));
        assert_eq!(context.tape_nodes(), 0);
    });
}

#[test]
fn are_walked_without_recursion() {
    on_a_small_stack(|| {
        let context = context_with(1, Limits::default());
        let weight = parameter(&context, &[1, 1], 1.0);
        let y = chain(&context, &weight);
        y.backward().unwrap();
        drop(y);
        assert_eq!((gradient(&weight), context.tape_nodes()), (vec![1.0], 0));
    });
}

#[test]
fn that_fork_at_every_step_are_dropped_without_recursion() {
    on_a_small_stack(|| {
        let context = context_with(1, Limits::default());
        let weight = parameter(&context, &[1, 1], 0.0);
        let mut y = weight.clone();
        for _ in 0..LENGTH {
            y = y.add(&y).unwrap();
        }
        drop(y);
        assert_eq!(context.tape_nodes(), 0);
    });
}
