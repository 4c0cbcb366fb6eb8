//! What holds for whole training steps: the same bits on any number of threads, no memory that grows, an end when told.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_gpu::device::cpu::Cpu;
use weft_gpu::models::{Model, ModelKind};
use weft_gpu::{Context, Crew, Error, Limits};

fn context(threads: usize) -> Context {
    Context::new(Arc::new(Cpu::new()), Arc::new(Crew::new(threads)), Limits::default())
}

/// Small enough that all models together take seconds.
const MODELS: [(ModelKind, usize); 7] = [
    (ModelKind::LogReg, 33),
    (ModelKind::Mlp, 9),
    (ModelKind::LeNet, 17),
    (ModelKind::ResNet18, 2),
    (ModelKind::MobileNetV3Small, 3),
    (ModelKind::SqueezeNet, 3),
    (ModelKind::Vgg11, 2),
];

#[test]
fn weights_have_the_same_bits_however_many_threads_trained_them() {
    for (kind, size) in MODELS {
        let weights = |threads: usize| -> Vec<u32> {
            let context = context(4);
            context.set_threads(threads);
            let mut model = Model::new(&context, kind, 1).unwrap();
            let batch = kind.batch(&context, size, 2).unwrap();
            for _ in 0..2 {
                model.step(&batch, 0.01).unwrap();
            }
            model.arena().values().to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect()
        };
        let alone = weights(1);
        for threads in [2, 3, 4] {
            assert!(weights(threads) == alone, "{kind}: {threads} threads give other bits than one");
        }
    }
}

#[test]
fn a_step_allocates_no_tensor_memory_after_the_first_few() {
    for (kind, size) in [(ModelKind::LeNet, 16), (ModelKind::MobileNetV3Small, 2)] {
        let context = context(1);
        let mut model = Model::new(&context, kind, 1).unwrap();
        let batch = kind.batch(&context, size, 2).unwrap();
        for _ in 0..3 {
            model.step(&batch, 0.01).unwrap();
        }
        let (used, peak) = (context.heap().used(), context.heap().peak());
        for _ in 0..5 {
            model.step(&batch, 0.01).unwrap();
        }
        assert_eq!((context.heap().used(), context.heap().peak()), (used, peak), "{kind}: device memory grew");
        assert_eq!(context.tape_nodes(), 0, "{kind}: the tape is empty between steps");
    }
}

#[test]
fn a_long_operation_ends_soon_after_it_is_cancelled() {
    for threads in [1, 2] {
        let context = context(threads);
        let a = context.zeros(&[4096, 4096]).unwrap();
        let cancel = context.cancel().clone();
        let (result, late) = std::thread::scope(|scope| {
            let work = scope.spawn(|| {
                let result = a.matmul(&a).and_then(|b| a.matmul(&b)).and_then(|c| a.matmul(&c));
                (result, Instant::now())
            });
            std::thread::sleep(Duration::from_millis(100));
            let asked = Instant::now();
            cancel.cancel();
            let (result, ended) = work.join().unwrap();
            (result, ended.duration_since(asked))
        });
        assert_eq!(result.map(drop), Err(Error::Cancelled));
        assert!(late < Duration::from_secs(2), "it took {late:?} to stop; a tile is a few milliseconds");
        cancel.clear();
        assert!(context.zeros(&[2]).is_ok(), "work goes on once the flag is cleared");
    }
}
