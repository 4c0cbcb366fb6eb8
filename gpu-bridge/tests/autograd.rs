//! What autograd, contexts, memory and crews promise, whatever the operations are.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use weft_gpu::device::cpu::Cpu;
use weft_gpu::op::{Accumulate, Unary};
use weft_gpu::{Context, Crew, DType, Error, Limits, Tensor};

fn context_with(threads: usize, limits: Limits) -> Context {
    Context::new(Arc::new(Cpu::new()), Arc::new(Crew::new(threads)), limits)
}

fn context() -> Context {
    context_with(2, Limits::default())
}

fn full(context: &Context, shape: &[usize], value: f64) -> Tensor {
    context.full(shape, DType::F32, value).unwrap()
}

/// A matrix of one element.
fn one(context: &Context, value: f64) -> Tensor {
    full(context, &[1, 1], value)
}

fn parameter(context: &Context, shape: &[usize], value: f64) -> Tensor {
    full(context, shape, value).parameter(None).unwrap()
}

fn gradient(parameter: &Tensor) -> Vec<f32> {
    parameter.gradient().expect("a gradient").to_vec().unwrap()
}

/// Bytes that tensors hold.
fn live(context: &Context) -> usize {
    context.heap().used() - context.heap().kept()
}

mod gradients {
    use super::*;

    #[test]
    fn add_up_over_backwards_of_separate_losses() {
        let context = context();
        let weight = parameter(&context, &[1, 1], 2.0);
        one(&context, 3.0).matmul(&weight).unwrap().backward().unwrap();
        one(&context, 5.0).matmul(&weight).unwrap().backward().unwrap();
        assert_eq!(gradient(&weight), [8.0]);
    }

    #[test]
    fn start_anew_after_they_are_cleared() {
        let context = context();
        for slot in [None, Some(one(&context, 99.0))] {
            let weight = one(&context, 2.0).parameter(slot.as_ref()).unwrap();
            assert!(weight.gradient().is_none());
            one(&context, 3.0).matmul(&weight).unwrap().backward().unwrap();
            weight.clear_gradient();
            assert!(weight.gradient().is_none());
            one(&context, 5.0).matmul(&weight).unwrap().backward().unwrap();
            assert_eq!(gradient(&weight), [5.0]);
            assert!(slot.is_none_or(|slot| slot.to_vec::<f32>().unwrap() == [5.0]));
        }
    }

    #[test]
    fn reach_a_parameter_that_is_used_twice_by_one_operation() {
        let context = context();
        let weight = parameter(&context, &[1, 1], 3.0);
        weight.matmul(&weight).unwrap().backward().unwrap();
        assert_eq!(gradient(&weight), [6.0]);
    }

    #[test]
    fn of_a_parameter_itself_are_what_is_passed() {
        let context = context();
        let weight = parameter(&context, &[2], 3.0);
        let seed = context.tensor(&[2], &[1.0_f32, 2.0]).unwrap();
        weight.backward_from(&seed).unwrap();
        weight.backward_from(&seed).unwrap();
        assert_eq!(gradient(&weight), [2.0, 4.0]);
        // The seed is its owner's, and was not added to.
        assert_eq!(seed.to_vec::<f32>().unwrap(), [1.0, 2.0]);
    }

    #[test]
    fn of_half_precision_are_f32() {
        let context = context();
        let weight = parameter(&context, &[2], 3.0);
        let half = weight.cast(DType::F16).unwrap();
        let seed = full(&context, &[2], 1.0);
        assert!(matches!(half.backward_from(&seed.cast(DType::F16).unwrap()), Err(Error::BadType { .. })));
        half.backward_from(&seed).unwrap();
        assert_eq!(gradient(&weight), [1.0, 1.0]);
    }

    #[test]
    fn of_a_layer_without_outputs_are_zeros_like_its_inputs() {
        let context = context();
        for shape in [&[3, 4][..], &[2, 3, 4], &[4]] {
            let (x, weight) = (parameter(&context, shape, 1.0), parameter(&context, &[0, 4], 1.0));
            let y = x.linear(&weight, None, None).unwrap();
            y.backward_from(&full(&context, &y.shape(), 1.0)).unwrap();
            assert_eq!(x.gradient().unwrap().meta(), x.meta());
            assert!(gradient(&x).iter().all(|&dx| dx == 0.0));
            assert_eq!(weight.gradient().unwrap().meta(), weight.meta());
        }
    }

    #[test]
    fn do_not_write_into_each_other() {
        let context = context();
        let (a, b) = (parameter(&context, &[2], 1.0), parameter(&context, &[2], 1.0));
        let seed = full(&context, &[2], 1.0);
        // Addition passes the same tensor to both; each then gets more of its own.
        a.add(&b).unwrap().backward_from(&seed).unwrap();
        a.add(&a).unwrap().backward_from(&seed).unwrap();
        assert_eq!((gradient(&a), gradient(&b)), (vec![3.0; 2], vec![1.0; 2]));
    }

    #[test]
    fn of_a_diamond_are_summed_latest_operation_first() {
        for threads in 1..=4 {
            let context = context_with(threads, Limits::default());
            let weight = parameter(&context, &[1, 1], 1.0);
            let h = one(&context, 1.0).matmul(&weight).unwrap();
            let branch = |value| h.matmul(&one(&context, value)).unwrap();
            let (a, b, c) = (branch(1.0), branch(1e8), branch(-1e8));
            a.add(&b).unwrap().add(&c).unwrap().backward().unwrap();
            // In f32 the other order would be `(1 + 1e8) - 1e8 = 0`.
            assert_eq!(gradient(&weight), [1.0]);
        }
    }

    #[test]
    fn stop_where_a_tensor_is_detached() {
        let context = context();
        let (w, v) = (parameter(&context, &[1, 1], 2.0), parameter(&context, &[1, 1], 5.0));
        let h = one(&context, 3.0).matmul(&w).unwrap();
        h.detach().matmul(&v).unwrap().backward().unwrap();
        assert_eq!(gradient(&v), [6.0]);
        assert!(w.gradient().is_none());
        let cut = h.detach().matmul(&one(&context, 1.0)).unwrap();
        assert!(matches!(cut.backward(), Err(Error::NoGradient { .. })));
    }

    #[test]
    fn go_through_views() {
        let context = context();
        let weight = parameter(&context, &[2, 3], 1.0);
        let x = context.tensor(&[1, 2], &[1.0_f32, 10.0]).unwrap();
        let y = x.matmul(&weight.transposed().unwrap().reshape(&[2, 3]).unwrap()).unwrap();
        y.backward_from(&context.tensor(&[1, 3], &[1.0_f32, 2.0, 3.0]).unwrap()).unwrap();
        // The reshaped transpose reads 00 10 01 | 11 02 12.
        assert_eq!(gradient(&weight), [1.0, 3.0, 20.0, 2.0, 10.0, 30.0]);
    }
}

mod recording {
    use super::*;

    #[test]
    fn is_off_while_any_guard_lives() {
        let context = context();
        let weight = parameter(&context, &[1, 1], 2.0);
        let outer = context.no_grad();
        drop(context.no_grad());
        assert!(!context.is_recording());
        let y = one(&context, 3.0).matmul(&weight).unwrap();
        assert_eq!(context.tape_nodes(), 0);
        drop(outer);
        assert!(context.is_recording());
        assert!(matches!(y.backward(), Err(Error::NoGradient { .. })));
        let _y = one(&context, 3.0).matmul(&weight).unwrap();
        assert_eq!(context.tape_nodes(), 1);
    }

    #[test]
    fn needs_a_parameter_among_the_inputs() {
        let context = context();
        let _y = one(&context, 3.0).matmul(&one(&context, 2.0)).unwrap();
        assert_eq!(context.tape_nodes(), 0);
    }

    #[test]
    fn stops_at_the_tape_limit_and_goes_on_when_there_is_room() {
        let context = context_with(1, Limits { tape_nodes: 3, ..Limits::default() });
        let weight = parameter(&context, &[1, 1], 1.0);
        let mut y = weight.clone();
        for _ in 0..3 {
            y = y.add(&weight).unwrap();
        }
        let error = y.add(&weight).unwrap_err();
        assert_eq!(error, Error::TapeFull { limit: 3 });
        assert!(error.to_string().contains("limit `tape_nodes`"));
        // What needs no tape goes on.
        y.detach().add(&y.detach()).unwrap();
        y.backward().unwrap();
        drop(y);
        assert_eq!(context.tape_nodes(), 0);
        weight.add(&weight).unwrap();
    }

    #[test]
    fn refuses_what_has_no_gradient() {
        let context = context();
        let weight = parameter(&context, &[2], 1.0);
        let error = Tensor::weighted_average(&[&full(&context, &[2], 1.0), &weight], &[0.5, 0.5]).unwrap_err();
        assert_eq!(error, Error::NotDifferentiable { op: "weighted-average", input: 1 });
        assert_eq!(context.tape_nodes(), 0);
        Tensor::weighted_average(&[&weight.detach()], &[1.0]).unwrap();
    }

    #[test]
    fn refuses_parameters_that_cannot_have_a_gradient() {
        let context = context();
        let integers = context.tensor(&[2], &[0_u8, 1]).unwrap();
        assert!(matches!(integers.parameter(None), Err(Error::BadType { .. })));
        let weight = full(&context, &[2, 3], 1.0);
        let slot = full(&context, &[3, 2], 0.0);
        assert!(matches!(weight.parameter(Some(&slot)), Err(Error::BadShape { .. })));
        for slot in [weight.clone(), slot.transposed().unwrap(), full(&super::context(), &[2, 3], 0.0)] {
            assert!(matches!(weight.parameter(Some(&slot)), Err(Error::BadArgument { .. })));
        }
    }
}

mod backward {
    use super::*;

    #[test]
    fn of_many_elements_or_of_nothing_recorded_is_refused() {
        let context = context();
        let weight = parameter(&context, &[2, 2], 1.0);
        let y = full(&context, &[2, 2], 1.0).matmul(&weight).unwrap();
        let error = y.backward().unwrap_err().to_string();
        assert!(error.contains("loss of one element") && error.contains("[2, 2]"), "{error}");
        assert!(matches!(one(&context, 1.0).backward(), Err(Error::NoGradient { .. })));
        assert!(matches!(y.backward_from(&full(&context, &[4], 1.0)), Err(Error::BadShape { .. })));
        // None of this has used it up.
        y.backward_from(&full(&context, &[2, 2], 1.0)).unwrap();
    }

    #[test]
    fn is_refused_the_second_time() {
        let context = context();
        let weight = parameter(&context, &[1, 1], 2.0);
        let h = one(&context, 3.0).matmul(&weight).unwrap();
        let (y, z) = (h.add(&h).unwrap(), h.matmul(&one(&context, 1.0)).unwrap());
        y.backward().unwrap();
        assert_eq!(y.backward().unwrap_err(), Error::AlreadyBackward { op: "add" });
        // Another loss finds what they share used up, too.
        assert_eq!(z.backward().unwrap_err(), Error::AlreadyBackward { op: "matmul" });
        assert_eq!(gradient(&weight), [6.0]);
    }

    #[test]
    fn notices_that_a_tensor_was_written_after_it_was_used() {
        let context = context();
        let weight = parameter(&context, &[1, 1], 2.0);
        let writes: [&dyn Fn(&Tensor); 3] =
            [&|x| x.write(0, &1.0_f32.to_le_bytes()).unwrap(), &|x| x.accumulate(&x.detach(), 1.0).unwrap(), &|x| {
                x.reshape(&[1]).unwrap().assign(&full(x.context(), &[], 1.0)).unwrap()
            }];
        for write in writes {
            let x = one(&context, 3.0);
            let y = x.matmul(&weight).unwrap();
            write(&x);
            let error = y.backward().unwrap_err();
            assert!(matches!(error, Error::Overwritten { op: "matmul", .. }), "{error}");
            assert!(error.to_string().contains("backward of `matmul`"));
        }
    }

    #[test]
    fn does_not_mind_that_what_it_does_not_need_was_written() {
        let context = context();
        let weight = parameter(&context, &[1, 1], 2.0);
        let x = one(&context, 3.0);
        let (y, z) = (x.add(&weight).unwrap(), x.detach().matmul(&weight).unwrap());
        // The gradient of the product needs `x`, not the weight.
        weight.write(0, &7.0_f32.to_le_bytes()).unwrap();
        z.backward().unwrap();
        x.write(0, &7.0_f32.to_le_bytes()).unwrap();
        y.backward().unwrap();
        assert_eq!(gradient(&weight), [4.0]);
    }
}

mod in_place {
    use super::*;

    #[test]
    fn is_refused_for_what_the_tape_describes() {
        let context = context();
        let weight = parameter(&context, &[1, 1], 2.0);
        let y = one(&context, 3.0).matmul(&weight).unwrap();
        let plain = one(&context, 1.0);
        let write = |into: &Tensor, from: &Tensor| context.run(Accumulate { scale: 1.0 }, &[into, from]).map(drop);
        assert_eq!(write(&y, &plain), Err(Error::NotDifferentiable { op: "accumulate", input: 0 }));
        assert_eq!(write(&plain, &y), Err(Error::NotDifferentiable { op: "accumulate", input: 1 }));
        assert_eq!(write(&plain, &weight), Err(Error::NotDifferentiable { op: "accumulate", input: 1 }));
        // A parameter may be written, and everything may while nothing is recorded.
        write(&weight, &plain).unwrap();
        let guard = context.no_grad();
        write(&plain, &weight).unwrap();
        write(&y, &plain).unwrap();
        drop(guard);
        assert_eq!((plain.item().unwrap(), y.item().unwrap()), (4.0, 10.0));
        y.backward().unwrap();
    }

    #[test]
    fn reads_what_it_writes_as_it_was_before() {
        let context = context();
        let x = context.tensor(&[2, 2], &[1.0_f32, 2.0, 3.0, 4.0]).unwrap();
        x.assign(&x.transposed().unwrap()).unwrap();
        assert_eq!(x.to_vec::<f32>().unwrap(), [1.0, 3.0, 2.0, 4.0]);
    }

    #[test]
    fn needs_elements_that_lie_together() {
        let context = context();
        let x = full(&context, &[2, 3], 1.0);
        let error = x.transposed().unwrap().assign(&full(&context, &[], 0.0)).unwrap_err();
        assert!(error.to_string().contains("must be contiguous"), "{error}");
    }
}

mod memory {
    use super::*;

    const SIDE: usize = 64;
    const MATRIX: usize = SIDE * SIDE * 4;

    #[test]
    fn of_what_no_gradient_needs_is_freed_while_going_forward() {
        let context = context();
        let weight = parameter(&context, &[SIDE, SIDE], 1.0);
        let mut y = weight.clone();
        for _ in 0..10 {
            y = y.add(&weight).unwrap();
        }
        // Addition keeps nothing: there are the weight and the last sum.
        assert_eq!(live(&context), 2 * MATRIX);
        assert_eq!(context.tape_nodes(), 10);
        drop(y);
        assert_eq!((live(&context), context.tape_nodes()), (MATRIX, 0));
    }

    #[test]
    fn of_activations_is_freed_as_backward_passes_them() {
        let context = context();
        let layers = 12;
        let weights: Vec<Tensor> = (0..layers).map(|_| parameter(&context, &[SIDE, SIDE], 1e-3)).collect();
        let seed = full(&context, &[SIDE, SIDE], 1.0);
        let before = live(&context);
        let mut y = seed.detach();
        for weight in &weights {
            y = y.matmul(weight).unwrap();
        }
        // Every product but the last is kept for the gradient of the next layer's weight.
        assert_eq!(live(&context), before + layers * MATRIX);
        let at_loss = context.heap().peak();
        y.backward_from(&seed).unwrap();
        // Each step needs its own gradient and what it passes on, while it frees an activation for a weight's gradient.
        assert!(context.heap().peak() <= at_loss + 3 * MATRIX, "{} after {at_loss}", context.heap().peak());
        // Gradients have come, and of the activations only the result is left, which is still held here.
        assert_eq!(live(&context), before + (layers + 1) * MATRIX);
        drop(y);
        assert_eq!((live(&context), context.tape_nodes()), (before + layers * MATRIX, 0));
    }

    #[test]
    fn of_a_graph_that_is_never_walked_is_freed_with_its_result() {
        let context = context();
        let weight = parameter(&context, &[SIDE, SIDE], 1.0);
        let x = full(&context, &[SIDE, SIDE], 1.0);
        let y = x.matmul(&weight).unwrap().matmul(&weight).unwrap();
        drop(x);
        assert_eq!(live(&context), 4 * MATRIX);
        drop(y);
        assert_eq!((live(&context), context.tape_nodes()), (MATRIX, 0));
    }

    #[test]
    fn of_one_step_serves_the_next() {
        let context = context();
        let weight = parameter(&context, &[SIDE, SIDE], 1.0);
        let x = full(&context, &[SIDE, SIDE], 1.0);
        let step = || {
            weight.clear_gradient();
            x.matmul(&weight).unwrap().matmul(&weight).unwrap().backward_from(&x).unwrap();
        };
        step();
        let used = context.heap().used();
        (0..5).for_each(|_| step());
        assert_eq!((context.heap().used(), context.heap().peak()), (used, used));
    }

    #[test]
    fn beyond_the_limit_is_refused_and_nothing_is_lost() {
        let limit = 8 * MATRIX;
        let context = context_with(2, Limits { device_memory: limit, ..Limits::default() });
        let mut held: Vec<Tensor> = Vec::new();
        let error = loop {
            match context.full(&[SIDE, SIDE], DType::F32, held.len() as f64) {
                Ok(tensor) => held.push(tensor),
                Err(error) => break error,
            }
        };
        assert_eq!(error, Error::OutOfMemory { wanted: MATRIX, used: limit, limit });
        assert!(error.to_string().contains(&format!("of {limit} in use (limit `device_memory`)")), "{error}");
        for (index, tensor) in held.iter().enumerate() {
            assert!(tensor.to_vec::<f32>().unwrap().iter().all(|&x| x == index as f32));
        }
        // Room for another size is made from what is kept.
        held.truncate(4);
        let large = full(&context, &[2, SIDE, SIDE], 1.0);
        assert!(matches!(context.zeros(&[4, SIDE, SIDE]), Err(Error::OutOfMemory { .. })));
        drop((held, large));
        assert_eq!(live(&context), 0);
        full(&context, &[8, SIDE, SIDE], 1.0);
    }

    #[test]
    fn is_not_taken_by_views_and_reading_one_that_repeats_without_end_is_refused() {
        let context = context_with(1, Limits { device_memory: 1 << 20, ..Limits::default() });
        let endless = full(&context, &[1], 1.0).expand(&[1 << 40]).unwrap();
        assert!(matches!(endless.to_vec::<f32>(), Err(Error::OutOfMemory { .. })));
        assert_eq!(endless.narrow(0, 1 << 39, 2).unwrap().to_vec::<f32>().unwrap(), [1.0; 2]);
    }

    /// Seconds, or terabytes to work in, if kernels walked along axes that hold nothing.
    #[test]
    fn and_time_are_not_taken_by_long_axes_without_elements() {
        let context = context_with(2, Limits { device_memory: 1 << 20, ..Limits::default() });
        let x = parameter(&context, &[1 << 36, 3, 0], 1.0);
        let [scale, shift, mean, variance] = [1.0; 4].map(|value| parameter(&context, &[3], value));
        let y = x.batch_norm_inference([&scale, &shift], [&mean.detach(), &variance.detach()], 0.1, None).unwrap();
        y.backward_from(&y.detach()).unwrap();
        assert_eq!((gradient(&scale), gradient(&shift)), (vec![0.0; 3], vec![0.0; 3]));
        let wide = parameter(&context, &[0, 1 << 36, 4], 1.0);
        wide.local_response_norm(5, 1.0, 1.0, 1.0).unwrap().backward_from(&wide.detach()).unwrap();
        assert!(gradient(&wide).is_empty());
        assert!(x.softmax().unwrap().to_vec::<f32>().unwrap().is_empty());
        assert_eq!(x.sum().unwrap().item().unwrap(), 0.0);
    }

    #[test]
    fn that_runs_out_in_a_training_step_leaves_the_context_usable() {
        let context = context_with(1, Limits { device_memory: 5 * MATRIX, ..Limits::default() });
        let weight = parameter(&context, &[SIDE, SIDE], 1.0);
        let x = full(&context, &[SIDE, SIDE], 1.0);
        for _ in 0..3 {
            let mut y = x.detach();
            let error = loop {
                match y.matmul(&weight) {
                    Ok(next) => y = next,
                    Err(error) => break error,
                }
            };
            assert!(matches!(error, Error::OutOfMemory { .. }));
            assert!(matches!(y.backward_from(&x), Err(Error::OutOfMemory { .. })));
            drop(y);
            assert_eq!((live(&context), context.tape_nodes()), (2 * MATRIX, 0));
        }
        x.matmul(&weight).unwrap().backward_from(&x).unwrap();
        assert_eq!(gradient(&weight), [SIDE as f32; SIDE * SIDE]);
    }
}

mod long_chains {
    use super::*;

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
}

mod contexts {
    use super::*;

    #[test]
    fn do_not_mix() {
        let (here, there) = (context(), context());
        let (a, b) = (one(&here, 1.0), one(&there, 1.0));
        assert_eq!(a.add(&b).unwrap_err(), Error::ForeignTensor);
        assert_eq!(b.add(&a).unwrap_err(), Error::ForeignTensor);
        assert_eq!(a.assign(&b).unwrap_err(), Error::ForeignTensor);
        assert_eq!(there.run_one(Unary::Neg, &[&a]).unwrap_err(), Error::ForeignTensor);
        let weight = parameter(&here, &[1, 1], 1.0);
        let y = a.matmul(&weight).unwrap();
        assert_eq!(y.backward_from(&b).unwrap_err(), Error::ForeignTensor);
        assert_eq!(weight.backward_from(&b).unwrap_err(), Error::ForeignTensor);
        assert!(weight.gradient().is_none());
    }

    #[test]
    fn stop_when_they_are_cancelled_and_go_on_when_that_is_cleared() {
        let context = context();
        let weight = parameter(&context, &[1, 1], 2.0);
        let y = one(&context, 3.0).matmul(&weight).unwrap();
        context.cancel().cancel();
        assert_eq!(y.add(&y).unwrap_err(), Error::Cancelled);
        assert_eq!(y.backward().unwrap_err(), Error::Cancelled);
        assert_eq!(context.zeros(&[1]).unwrap_err(), Error::Cancelled);
        assert_eq!(y.item().unwrap(), 6.0);
        context.cancel().clear();
        y.add(&y).unwrap();
        y.backward().unwrap();
        assert_eq!(gradient(&weight), [3.0]);
    }

    #[test]
    fn stop_in_the_middle_of_an_operation() {
        let context = context_with(1, Limits::default());
        let (a, b) = (context.zeros(&[1 << 22]).unwrap(), context.zeros(&[1 << 22]).unwrap());
        let cancel = context.cancel().clone();
        let running = AtomicBool::new(true);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while running.load(Ordering::Relaxed) {
                    cancel.cancel();
                    std::thread::yield_now();
                    cancel.clear();
                }
            });
            let deadline = Instant::now() + Duration::from_secs(20);
            // The version says that the operation had begun: its memory was written, or about to be.
            let mut stopped_inside = false;
            while !stopped_inside && Instant::now() < deadline {
                let version = a.version();
                stopped_inside = a.accumulate(&b, 1.0) == Err(Error::Cancelled) && a.version() > version;
            }
            running.store(false, Ordering::Relaxed);
            assert!(stopped_inside);
        });
        context.cancel().clear();
        a.accumulate(&b, 1.0).unwrap();
    }

    #[test]
    fn serve_two_threads_at_once() {
        let context = context_with(2, Limits::default());
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let context = &context;
                scope.spawn(move || {
                    let weight = parameter(context, &[8, 8], f64::from(thread + 1));
                    let x = full(context, &[8, 8], 1.0);
                    let large = full(context, &[200_000], f64::from(thread + 1));
                    for _ in 0..100 {
                        weight.clear_gradient();
                        let y = x.matmul(&weight).unwrap().matmul(&weight).unwrap();
                        y.backward_from(&x).unwrap();
                        assert_eq!(gradient(&weight), [2.0 * 64.0 * (thread + 1) as f32; 64]);
                        let sum = large.add(&large).unwrap().to_vec::<f32>().unwrap();
                        assert!(sum.iter().all(|&x| x == 2.0 * (thread + 1) as f32));
                    }
                });
            }
        });
        assert_eq!((live(&context), context.tape_nodes()), (0, 0));
    }

    #[test]
    fn add_up_what_two_threads_pass_to_one_parameter() {
        let context = context_with(2, Limits::default());
        let weight = parameter(&context, &[4, 4], 1.0);
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let (context, weight) = (&context, &weight);
                scope.spawn(move || {
                    let x = full(context, &[4, 4], f64::from(thread + 1));
                    let seed = full(context, &[4, 4], 1.0);
                    for _ in 0..200 {
                        x.matmul(weight).unwrap().backward_from(&seed).unwrap();
                    }
                });
            }
        });
        assert_eq!(gradient(&weight), [200.0 * (4.0 + 8.0); 16]);
    }
}

mod crews {
    use super::*;

    #[test]
    fn compute_the_same_bits_with_any_number_of_threads() {
        let context = context_with(4, Limits::default());
        let noise = |seed: usize, count: usize| -> Vec<f32> {
            (0..count).map(|index| ((index * 2_654_435_761 + seed * 40_503) % 1_000_003) as f32 / 7e4 - 7.0).collect()
        };
        let points = context.tensor(&[50_000, 10], &noise(1, 500_000)).unwrap();
        let centroids = context.tensor(&[9, 10], &noise(2, 90)).unwrap();
        let run = || {
            let (assignment, distances) = points.kmeans_assign(&centroids).unwrap();
            let (sums, _) = points.kmeans_accumulate(&assignment, 9).unwrap();
            let average = Tensor::weighted_average(&[&points, &points], &[0.3, 0.7]).unwrap();
            [distances, sums, average].map(|tensor| bits(&tensor))
        };
        context.set_threads(1);
        let alone = run();
        for threads in 2..=4 {
            context.set_threads(threads);
            for _ in 0..5 {
                assert!(run() == alone, "{threads} threads");
            }
        }
    }

    fn bits(tensor: &Tensor) -> Vec<u8> {
        tensor.to_vec::<f32>().unwrap().into_iter().flat_map(f32::to_le_bytes).collect()
    }

    /// Waits for a condition, but not for ever.
    fn wait_for(condition: impl Fn() -> bool) -> bool {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !condition() {
            if Instant::now() > deadline {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    #[test]
    fn turn_a_panic_into_an_error_and_go_on() {
        let crew = Crew::new(3);
        for round in 0..20 {
            let inside = AtomicUsize::new(0);
            let meet = || {
                inside.fetch_add(1, Ordering::SeqCst);
                assert!(wait_for(|| inside.load(Ordering::SeqCst) == 3), "not all threads came");
            };
            // The caller's own thread panics, or one that helps.
            let error = crew.run(3, &|worker| {
                meet();
                assert!(worker != round % 3, "on purpose");
            });
            assert!(matches!(error, Err(Error::Internal { .. })), "{error:?}");
            let inside = AtomicUsize::new(0);
            crew.run(3, &|_| {
                inside.fetch_add(1, Ordering::SeqCst);
                assert!(wait_for(|| inside.load(Ordering::SeqCst) == 3), "not all threads came");
            })
            .unwrap();
        }
    }

    #[test]
    fn give_each_thread_an_index_of_its_own() {
        let crew = Crew::new(4);
        for threads in 1..=4 {
            let seen: Vec<AtomicUsize> = (0..4).map(|_| AtomicUsize::new(0)).collect();
            crew.run(threads, &|worker| {
                seen[worker].fetch_add(1, Ordering::SeqCst);
                wait_for(|| seen.iter().filter(|seen| seen.load(Ordering::SeqCst) > 0).count() == threads);
            })
            .unwrap();
            let seen: Vec<usize> = seen.iter().map(|seen| seen.load(Ordering::SeqCst)).collect();
            assert_eq!(seen[..threads], vec![1; threads]);
            assert_eq!(seen[threads..], vec![0; 4 - threads]);
        }
    }

    #[test]
    fn let_a_call_within_a_call_work_alone() {
        let crew = Crew::new(2);
        let inner = AtomicUsize::new(0);
        crew.run(1, &|_| {}).unwrap();
        crew.run(2, &|_| {
            crew.run(2, &|worker| {
                assert_eq!(worker, 0);
                inner.fetch_add(1, Ordering::SeqCst);
            })
            .unwrap();
        })
        .unwrap();
        assert!(inner.load(Ordering::SeqCst) >= 1);
    }

    #[test]
    fn survive_many_short_calls_from_many_threads() {
        let crew = Crew::new(3);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        let done = AtomicUsize::new(0);
                        let next = AtomicUsize::new(0);
                        crew.run(3, &|_| {
                            while next.fetch_add(1, Ordering::Relaxed) < 10 {
                                done.fetch_add(1, Ordering::Relaxed);
                            }
                        })
                        .unwrap();
                        assert_eq!(done.load(Ordering::Relaxed), 10);
                    }
                });
            }
        });
    }
}
