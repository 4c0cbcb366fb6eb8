//! Operations that write into their inputs.

use weft_gpu::op::Accumulate;
use weft_gpu::{Error, Tensor};

use crate::{context, full, one, parameter};

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
