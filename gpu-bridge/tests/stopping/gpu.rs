//! A software GPU between two leases: one with an operation that takes long, the other with a small read.

use std::num::NonZeroU32;
use std::time::Instant;

use weft_gpu::device::Shared;
use weft_gpu::device::gpu::{Adapter, Gpu};
use weft_gpu::{DType, Error, Result, Tensor};

use crate::cases::{self, Case};
use crate::late::{Late, Threads};
use crate::{RUNNING, context, not_late_twice};

fn gpu() -> Gpu {
    let first = Adapter::all().into_iter().next();
    let adapter =
        first.unwrap_or_else(|| panic!("there is no Vulkan device here; `make setup` installs a software one"));
    Gpu::open(adapter, None).unwrap()
}

/// Runs a case for one lease, and reads a number for another meanwhile. Says what came of the case, and how late the
/// number was.
fn delay(case: &Case, gpu: &Gpu) -> (Result<()>, Late) {
    // Compiling is its owner's own time.
    let rehearsal = context(gpu.rehearsal().unwrap(), 1);
    let rehearsed = (case.call)(&rehearsal).and_then(|(op, inputs)| rehearsal.run(op, &Vec::from_iter(&inputs)));
    drop(rehearsed);
    let long = context(gpu.open(&"long".into(), NonZeroU32::MIN).unwrap(), 1);
    let short = context(gpu.open(&"short".into(), NonZeroU32::MIN).unwrap(), 1);
    let number = short.full(&[1], DType::F32, 7.0).unwrap();
    let (op, inputs) = match (case.call)(&long) {
        Ok(call) => call,
        Err(error) => return (Err(error), Late::default()),
    };
    let inputs: Vec<&Tensor> = inputs.iter().collect();
    // What the inputs are made of is not what is measured.
    let last = long.full(&[1], DType::F32, 0.0).unwrap();
    last.read(0, &mut []).unwrap();
    std::thread::scope(|scope| {
        let work = scope.spawn(|| long.run(op, &inputs).and_then(|_| last.read(0, &mut [])));
        std::thread::sleep(RUNNING);
        let (asked, then) = (Instant::now(), Threads::now());
        assert_eq!(number.to_vec::<f32>().unwrap(), [7.0]);
        let late = Late { wall: asked.elapsed(), busiest: Threads::now().busiest_since(&then) };
        long.cancel().cancel();
        (work.join().unwrap(), late)
    })
}

#[test]
fn no_operation_keeps_a_gpu_from_others_for_long() {
    let gpu = gpu();
    let mut failures = Vec::new();
    for case in cases::ALL {
        // A software GPU compiles a kernel once more, where it is run for the first time.
        let (result, late) = not_late_twice(|| delay(case, &gpu));
        let came = result.as_ref().map_or_else(ToString::to_string, |()| "done".to_owned());
        println!("{}: {late}, {came}", case.name);
        match result {
            // What would take too long is refused, as are more elements than a GPU can count, or than there is room for.
            Ok(()) | Err(Error::Cancelled | Error::TooLarge { .. } | Error::OutOfMemory { .. }) => {
                if late.is_too_late() {
                    failures.push(format!("{}: {late}", case.name));
                }
            }
            Err(error) => failures.push(format!("{}: {error}", case.name)),
        }
    }
    assert!(failures.is_empty(), "others had to wait: {failures:#?}");
}
