//! How much memory a thread has, and the most that it had.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{self, Cursor};
use std::sync::Arc;

use weft::job::model::GlobalModel;
use weft::model::{Dtype, Meta, Model, TensorInfo, le_bytes, write};
use weft::train::declared::{Declared, Initial, Plan, Role, TensorDeclaration};
use weft::train::load::load;
use weft_gpu::device::cpu::Cpu;
use weft_gpu::{Context, Crew, Limits, Shape};

struct Counted;

#[global_allocator]
static COUNTED: Counted = Counted;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    let live = LIVE.get() + bytes;
    LIVE.set(live);
    PEAK.set(PEAK.get().max(live));
}

// SAFETY: everything is done by `System`; what is counted beside has no destructor and allocates nothing.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both may be there for a moment.
        count(size as isize);
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// What `work` gives, and how many bytes this thread had at most beyond what it had before.
pub fn peak<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.get();
    PEAK.set(before);
    let result = work();
    (result, (PEAK.get() - before).max(0) as usize)
}

#[test]
fn the_most_is_counted() {
    let ((), most) = peak(|| drop(std::hint::black_box(vec![0_u8; 1 << 20])));
    assert!((1 << 20..2 << 20).contains(&most), "{most}");
}

/// A tensor may be larger than there is memory for a copy of it.
#[test]
fn a_model_is_loaded_in_pieces() -> anyhow::Result<()> {
    const NUMBERS: usize = 4 << 20;
    let mut plan = Plan::default();
    let (name, shape) = ("weight".to_owned(), Shape::new(&[NUMBERS])?);
    plan.declare(TensorDeclaration { name, role: Role::Weight, shape, initial: Initial::Constant(0.0) })?;
    let context = Context::new(Arc::new(Cpu::new()), Arc::new(Crew::new(1)), Limits::default());
    let declared = Declared::new(plan.clone(), &context, 0)?;
    let row: Vec<f32> = (0..NUMBERS).map(|number| number as f32).collect();
    let info = TensorInfo { name: "weight".to_owned(), dtype: Dtype::F32, shape: vec![NUMBERS] };
    let mut file = Vec::new();
    write(&[info], [io::Result::Ok(le_bytes(&row))], &Meta::default(), &mut file)?;
    let mut model = Model::open(Cursor::new(file))?;
    let mut copy = GlobalModel { weights: vec![0.0; NUMBERS].into(), ..GlobalModel::default() };
    let (loaded, most) = peak(|| load(&declared, &mut model));
    loaded?;
    assert!(most < 1 << 20, "{most} bytes");
    let (taken, most) = peak(|| copy.take(&plan, &mut model));
    taken?;
    assert!(most < 1 << 20, "{most} bytes");
    assert!(declared.tensors()[0].to_vec::<f32>()? == row && copy.weights[..] == row, "other numbers");
    Ok(())
}
