//! What is put on the tape, and what is refused there.

use weft_gpu::{Error, Limits};

use crate::{context, context_with, full, one, parameter};

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
    let (points, centroids) = (full(&context, &[4, 2], 1.0), parameter(&context, &[3, 2], 1.0));
    let error = points.kmeans_assign(&centroids).unwrap_err();
    assert_eq!(error, Error::NotDifferentiable { op: "k-means-assign", input: 1 });
    assert_eq!(context.tape_nodes(), 0);
    points.kmeans_assign(&centroids.detach()).unwrap();
}

#[test]
fn refuses_parameters_that_cannot_have_a_gradient() {
    let context = context();
    let integers = context.tensor(&[2], &[0_u8, 1]).unwrap();
    assert!(matches!(integers.parameter(None), Err(Error::BadType { .. })));
    let weight = full(&context, &[2, 3], 1.0);
    let slot = full(&context, &[3, 2], 0.0);
    assert!(matches!(weight.parameter(Some(&slot)), Err(Error::BadShape { .. })));
    for slot in [weight.clone(), slot.transposed().unwrap(), full(&crate::context(), &[2, 3], 0.0)] {
        assert!(matches!(weight.parameter(Some(&slot)), Err(Error::BadArgument { .. })));
    }
}
