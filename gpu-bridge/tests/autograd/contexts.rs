//! Contexts: apart from each other, cancelled, and shared by threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use weft_gpu::op::Unary;
use weft_gpu::{Error, Limits};

use crate::{context, context_with, full, gradient, live, one, parameter};

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
