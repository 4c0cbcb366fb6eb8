//! What gradients are, and how they add up.

use weft_gpu::{DType, Error, Limits};

use crate::{context, context_with, full, gradient, one, parameter};

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
