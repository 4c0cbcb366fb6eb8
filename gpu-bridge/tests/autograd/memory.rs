//! What tensors, tapes and passes back hold, and what happens at the limit.

use weft_gpu::op::MAX_CONCAT;
use weft_gpu::{DType, Error, Limits, Tensor};

use crate::{context, context_with, full, gradient, live, parameter};

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
    let (used, peak) = (context.heap().used(), context.heap().peak());
    (0..5).for_each(|_| step());
    assert_eq!((context.heap().used(), context.heap().peak()), (used, peak));
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

/// A view takes no device memory, so nothing else would stop a tape of them.
#[test]
fn of_the_tape_counts_and_is_given_back_with_it() {
    let limit = 4 << 20;
    let context = context_with(1, Limits { device_memory: limit, ..Limits::default() });
    let weight = parameter(&context, &[4], 1.0);
    let before = context.heap().budget().used();
    let mut y = weight.clone();
    let error = loop {
        match y.reshape(if y.shape().rank() == 1 { &[2, 2] } else { &[4] }) {
            Ok(view) => y = view,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::OutOfMemory { limit: 0x40_0000, .. }), "{error}");
    let nodes = context.tape_nodes();
    assert!((1_000..20_000).contains(&nodes), "{nodes} views within {limit} bytes");
    // What needs no tape goes on, and so does the way back.
    y.detach().reshape(&[4]).unwrap();
    drop(y);
    assert_eq!((context.tape_nodes(), context.heap().budget().used()), (0, before));
    weight.reshape(&[2, 2]).unwrap().sum().unwrap().backward().unwrap();
    assert_eq!(gradient(&weight), [1.0; 4]);
}

#[test]
fn of_an_operation_that_is_not_recorded_after_all_is_given_back() {
    let context = context_with(1, Limits { device_memory: 1 << 20, ..Limits::default() });
    let weight = parameter(&context, &[64], 1.0);
    let before = context.heap().budget().used();
    assert!(matches!(weight.expand(&[1 << 20, 64]).unwrap().add(&weight), Err(Error::OutOfMemory { .. })));
    assert_eq!((context.tape_nodes(), context.heap().budget().used()), (0, before));
}

#[test]
fn of_many_operands_counts_by_the_operand() {
    let context = context();
    let weight = parameter(&context, &[4], 1.0);
    let nothing = weight.narrow(0, 0, 0).unwrap();
    let before = context.heap().budget().used();
    let joined = context.concat(&[&nothing; MAX_CONCAT], 0).unwrap();
    assert!(context.heap().budget().used() - before > 64 * MAX_CONCAT);
    drop(joined);
    // The heap keeps the smallest block for the next tensor.
    assert!(context.heap().budget().used() <= before + 64);
    let error = context.concat(&[&nothing; MAX_CONCAT + 1], 0).unwrap_err().to_string();
    assert!(error.contains("1025 tensors, the most is 1024 (limit `max_concat`)"), "{error}");
}
