//! Operations one after the other, up to whole training steps.

use weft_gpu::models::{Model, ModelKind};
use weft_gpu::{Context, Error};

use crate::{Arc, Crew, Limits, context, cpu, gpu};

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

fn losses(context: &Context, kind: ModelKind, batch: usize, steps: usize) -> Vec<f32> {
    let mut model = Model::new(context, kind, 0).unwrap();
    let batch = kind.batch(context, batch, 0).unwrap();
    (0..steps).map(|_| model.step(&batch, 0.01).unwrap().item().unwrap()).collect()
}

#[test]
fn models_train_as_on_the_cores() {
    let gpu = gpu();
    let models = [
        (ModelKind::LogReg, 16, 10),
        (ModelKind::Mlp, 16, 10),
        (ModelKind::LeNet, 8, 20),
        (ModelKind::MobileNetV3Small, 2, 1),
        (ModelKind::SqueezeNet, 2, 2),
    ];
    for (kind, batch, steps) in models {
        let (want, got) = (losses(&cpu(), kind, batch, steps), losses(&context(&gpu), kind, batch, steps));
        for (step, (want, got)) in want.iter().zip(&got).enumerate() {
            assert!((want - got).abs() < 1e-3 * want.abs().max(1.0), "{kind}, step {step}: {got}, on the cores {want}");
        }
    }
    assert_eq!(gpu.stats().uncaptured_errors, 0);
}

#[test]
fn a_model_has_the_same_bits_every_time() {
    let gpu = gpu();
    let once = losses(&context(&gpu), ModelKind::LeNet, 8, 3);
    assert_eq!(once, losses(&context(&gpu), ModelKind::LeNet, 8, 3));
}

/// `make soak` takes ten times as many.
#[test]
fn memory_does_not_grow_with_steps() {
    let gpu = gpu();
    let context = context(&gpu);
    let mut model = Model::new(&context, ModelKind::Mlp, 0).unwrap();
    let batch = ModelKind::Mlp.batch(&context, 4, 0).unwrap();
    let mut steps = |count: usize| {
        for _ in 0..count {
            model.step(&batch, 0.01).unwrap();
        }
        model.step(&batch, 0.01).unwrap().item().unwrap();
        (gpu.stats().allocated, context.heap().used())
    };
    let early = steps(20);
    let soak = std::env::var("WEFT_SOAK").is_ok();
    assert_eq!(steps(if soak { 100_000 } else { 10_000 }), early);
}

#[test]
fn a_rehearsal_compiles_what_a_step_needs() {
    let gpu = gpu();
    let rehearsal = Context::new(gpu.rehearsal().unwrap(), Arc::new(Crew::new(1)), Limits::default());
    losses(&rehearsal, ModelKind::LeNet, 4, 2);
    let compiled = gpu.stats().pipelines;
    assert!(compiled > 0 && gpu.stats().submissions == 0);
    assert!(losses(&context(&gpu), ModelKind::LeNet, 4, 2).iter().all(|loss| *loss > 0.0));
    assert_eq!(gpu.stats().pipelines, compiled);
}

#[test]
fn a_wrong_index_is_told_once_by_the_next_read() {
    let gpu = gpu();
    let (context, other) = (context(&gpu), crate::context(&gpu));
    let table = context.tensor(&[3, 2], &[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    let index = context.tensor(&[2], &[1_i32, -7]).unwrap();
    let rows = table.gather_rows(&index).unwrap();
    // It is nobody else's problem.
    assert_eq!(other.zeros(&[1]).unwrap().item().unwrap(), 0.0);
    let error = rows.to_vec::<f32>().unwrap_err();
    assert!(matches!(error, Error::IndexOutOfRange { index: -7, count: 3, .. }), "{error}");
    assert_eq!(table.to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
}

#[test]
fn compiled_kernels_are_kept_from_one_start_to_the_next() {
    let folder = std::env::temp_dir().join(format!("weft-pipelines-{}", std::process::id()));
    for _ in 0..2 {
        let gpu = weft_gpu::device::gpu::Gpu::open(crate::adapter(), Some(folder.clone())).unwrap();
        assert_eq!(context(&gpu).full(&[3], weft_gpu::DType::F32, 2.0).unwrap().to_vec::<f32>().unwrap(), [2.0; 3]);
    }
    // What is damaged is not used.
    for entry in std::fs::read_dir(&folder).into_iter().flatten() {
        std::fs::write(entry.unwrap().path(), b"something else entirely, and long enough for a digest").unwrap();
    }
    let gpu = weft_gpu::device::gpu::Gpu::open(crate::adapter(), Some(folder.clone())).unwrap();
    assert_eq!(context(&gpu).zeros(&[1]).unwrap().item().unwrap(), 0.0);
    drop(gpu);
    let _ = std::fs::remove_dir_all(folder);
}
