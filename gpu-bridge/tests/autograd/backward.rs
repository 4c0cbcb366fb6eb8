//! What a pass back needs and when it is refused.

use weft_gpu::{Error, Tensor};

use crate::{context, full, gradient, one, parameter};

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
