//! Operations one after the other.

use crate::{context, gpu};

#[test]
fn operations_run_in_order() {
    let gpu = gpu();
    let context = context(&gpu);
    let x = context.tensor(&[2, 3], &[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    let row = context.tensor(&[3], &[10.0_f32, 20.0, 30.0]).unwrap();
    let mut y = x.add(&row).unwrap();
    for _ in 0..10 {
        y = y.add(&x).unwrap();
    }
    assert_eq!(y.to_vec::<f32>().unwrap(), [21.0, 42.0, 63.0, 54.0, 75.0, 96.0]);
    assert_eq!(x.transposed().unwrap().to_vec::<f32>().unwrap(), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
}

#[test]
fn a_rehearsal_compiles_what_a_step_needs() {
    let gpu = gpu();
    let step = |context: &weft_gpu::Context| {
        let x = context.tensor(&[2, 3], &[1.0_f32; 6]).unwrap();
        x.add(&x).unwrap().transposed().unwrap().to_vec::<f32>().unwrap()
    };
    let rehearsal = weft_gpu::Context::new(
        gpu.rehearsal().unwrap(),
        crate::Arc::new(crate::Crew::new(1)),
        crate::Limits::default(),
    );
    assert_eq!(step(&rehearsal), [0.0; 6]);
    let compiled = gpu.stats().pipelines;
    assert!(compiled > 0);
    assert_eq!(step(&context(&gpu)), [2.0; 6]);
    assert_eq!(gpu.stats().pipelines, compiled);
}
