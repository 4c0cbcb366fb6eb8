//! The CPU device allocates nothing in the steady state. One test, because it counts what the whole process allocates.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use weft_gpu::device::cpu::Cpu;
use weft_gpu::device::{Device, DeviceInfo, Memory, View};
use weft_gpu::models::{Model, ModelKind};
use weft_gpu::op::Op;
use weft_gpu::run::Run;
use weft_gpu::{Context, Crew, Limits, Result};

static COUNTING: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: all is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNTING.load(SeqCst) {
            ALLOCATIONS.fetch_add(1, SeqCst);
        }
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The CPU, counted while it works.
struct Watched(Cpu);

impl Device for Watched {
    fn info(&self) -> DeviceInfo {
        self.0.info()
    }

    fn allocate(&self, bytes: usize) -> Result<Box<dyn Memory>> {
        self.0.allocate(bytes)
    }

    fn write(&self, memory: &dyn Memory, offset: usize, bytes: &[u8]) -> Result<()> {
        self.0.write(memory, offset, bytes)
    }

    fn read(&self, memory: &dyn Memory, offset: usize, bytes: &mut [u8]) -> Result<()> {
        self.0.read(memory, offset, bytes)
    }

    fn run(&self, op: &Op, inputs: &[View<'_>], outputs: &[View<'_>], run: &Run<'_>) -> Result<()> {
        let before = ALLOCATIONS.load(SeqCst);
        COUNTING.store(STEADY.load(SeqCst), SeqCst);
        let done = self.0.run(op, inputs, outputs, run);
        COUNTING.store(false, SeqCst);
        let made = ALLOCATIONS.load(SeqCst) - before;
        if made > 0 {
            let shapes: Vec<_> = inputs.iter().map(|view| view.layout.shape).collect();
            eprintln!("{} of {shapes:?} allocated {made} times", op.name());
        }
        done
    }
}

/// Whether the first steps, which fill the heap's shelves, are over.
static STEADY: AtomicBool = AtomicBool::new(false);

/// Steps that are measured; most of them must do without.
const MEASURED: usize = 6;

#[test]
fn operations_allocate_nothing_once_a_few_steps_were_trained() {
    let models = [
        (ModelKind::LogReg, 33),
        (ModelKind::Mlp, 9),
        (ModelKind::LeNet, 17),
        (ModelKind::ResNet18, 2),
        (ModelKind::MobileNetV3Small, 3),
        (ModelKind::SqueezeNet, 3),
        (ModelKind::Vgg11, 2),
        (ModelKind::BertSmall, 1),
    ];
    for threads in [1, 2] {
        for (kind, size) in models {
            let context = Context::new(Arc::new(Watched(Cpu::new())), Arc::new(Crew::new(threads)), Limits::default());
            let mut model = Model::new(&context, kind, 1).unwrap();
            let batch = kind.batch(&context, size, 2).unwrap();
            STEADY.store(false, SeqCst);
            for _ in 0..3 {
                model.step(&batch, 0.01).unwrap();
            }
            STEADY.store(true, SeqCst);
            // On a busy machine a thread may join in only now, and then takes its memory now. What operations need
            // themselves they would need in every step.
            let made = (0..MEASURED).map(|_| {
                let before = ALLOCATIONS.load(SeqCst);
                model.step(&batch, 0.01).unwrap();
                ALLOCATIONS.load(SeqCst) - before
            });
            let made: Vec<_> = made.collect();
            let idle = made.iter().filter(|&&made| made == 0).count();
            assert!(idle > MEASURED / 2, "{kind} on {threads} threads: operations allocated {made:?} times; see above");
        }
    }
}
