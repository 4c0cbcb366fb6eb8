//! Every operation can be stopped, whatever its shapes and attributes are.
//!
//! Each operation is run with the largest shapes that a lease of 256 MiB admits, with inputs that are repeated without
//! taking memory, and with the largest attributes. It is cancelled after 50 ms and must be over 250 ms later. What other
//! processes do on the machine is not to count: it is enough if that holds for the processor time that this process took
//! meanwhile, for each thread that works on the call.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use weft_gpu::device::Device;
use weft_gpu::device::cpu::Cpu;
use weft_gpu::op::Op;
use weft_gpu::{Context, Crew, Error, Limits, Result, Tensor};

use cases::Case;

mod cases;

/// What a lease has: the operands take 256 MiB, and the heap rounds the size of every block up.
const MEMORY: usize = 512 << 20;

/// How long an operation runs before it is cancelled.
const RUNNING: Duration = Duration::from_millis(50);

/// How soon after that it must be over.
const SOON: Duration = Duration::from_millis(250);

/// An operation with its inputs.
type Call = (Op, Vec<Tensor>);

/// Processor time of this process.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Runs a case, and cancels it. Says what came of it, and how late it was in wall time and in processor time.
fn stop(case: &Case, device: Arc<dyn Device>, threads: usize) -> (Result<()>, Duration, Duration) {
    let limits = Limits { device_memory: MEMORY, ..Limits::default() };
    let context = Context::new(device, Arc::new(Crew::new(threads)), limits);
    let (op, inputs) = (case.call)(&context).unwrap_or_else(|error| panic!("{}: no inputs: {error}", case.name));
    let inputs: Vec<&Tensor> = inputs.iter().collect();
    std::thread::scope(|scope| {
        let work = scope.spawn(|| {
            let result = context.run(op, &inputs).map(drop);
            (result, Instant::now(), processor_time())
        });
        std::thread::sleep(RUNNING);
        let (asked, used) = (Instant::now(), processor_time());
        context.cancel().cancel();
        let (result, ended, used_then) = work.join().unwrap();
        (result, ended.saturating_duration_since(asked), used_then.saturating_sub(used))
    })
}

#[test]
fn every_operation_has_a_case() {
    let context = Context::new(Arc::new(Cpu::new()), Arc::new(Crew::new(1)), Limits::default());
    let covered: BTreeSet<String> = cases::ALL.iter().map(|case| case.operation(&context)).collect();
    let missing: Vec<_> = Op::KINDS.iter().filter(|kind| !covered.contains(**kind)).collect();
    assert!(missing.is_empty(), "operations without a case in tests/stopping/cases.rs: {missing:?}");
}

#[test]
fn every_operation_ends_soon_after_it_is_cancelled() {
    let mut late = Vec::new();
    for (index, case) in cases::ALL.iter().enumerate() {
        let threads = 1 + index % 2;
        let (result, wall, used) = stop(case, Arc::new(Cpu::new()), threads);
        println!(
            "{}: {wall:?}, {used:?} of the processor, {}",
            case.name,
            if result.is_ok() { "done" } else { "stopped" }
        );
        match result {
            Ok(()) | Err(Error::Cancelled) => {}
            Err(error) => late.push(format!("{}: {error}", case.name)),
        }
        if wall > SOON && used > SOON * threads as u32 {
            late.push(format!("{}: {wall:?}, {used:?} of the processor", case.name));
        }
    }
    assert!(late.is_empty(), "not over {SOON:?} after they were cancelled: {late:#?}");
}
