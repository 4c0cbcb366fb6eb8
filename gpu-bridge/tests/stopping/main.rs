//! Every operation can be stopped, whatever its shapes and attributes are.
//!
//! Each operation is run with the largest shapes that a lease of 256 MiB admits, with inputs that are repeated without
//! taking memory, and with the largest attributes. On the cores it is cancelled after 50 ms and must be over 250 ms later,
//! on one thread and on two; on a software GPU, where a dispatch that has begun cannot be cancelled, another lease's small
//! read must be answered as soon.
//!
//! What other processes do on the machine is not to count: it is enough if no thread took that much processor time
//! meanwhile. Whatever waits without computing must be over within a few seconds of the wall's time.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_gpu::device::Device;
use weft_gpu::device::cpu::Cpu;
use weft_gpu::op::Op;
use weft_gpu::{Context, Crew, Error, Limits, Result, Tensor};

use cases::Case;
use late::{Late, Threads};

mod cases;
mod gpu;
mod late;

/// What a lease has: the operands take 256 MiB, and the heap rounds the size of every block up.
const MEMORY: usize = 512 << 20;

/// How long an operation runs before it is cancelled.
const RUNNING: Duration = Duration::from_millis(50);

/// An operation with its inputs.
type Call = (Op, Vec<Tensor>);

fn context(device: Arc<dyn Device>, threads: usize) -> Context {
    let limits = Limits { device_memory: MEMORY, ..Limits::default() };
    Context::new(device, Arc::new(Crew::new(threads)), limits)
}

/// Runs a case on the cores, and cancels it. Says what came of it, and how late it was.
fn stop(case: &Case, threads: usize) -> (Result<()>, Late) {
    let context = context(Arc::new(Cpu::new()), threads);
    let (op, inputs) = (case.call)(&context).unwrap_or_else(|error| panic!("{}: no inputs: {error}", case.name));
    let inputs: Vec<&Tensor> = inputs.iter().collect();
    std::thread::scope(|scope| {
        let work = scope.spawn(|| {
            let result = context.run(op, &inputs).map(drop);
            (result, Instant::now(), Threads::now())
        });
        std::thread::sleep(RUNNING);
        let (asked, then) = (Instant::now(), Threads::now());
        context.cancel().cancel();
        let (result, ended, now) = work.join().unwrap();
        (result, Late { wall: ended.saturating_duration_since(asked), busiest: now.busiest_since(&then) })
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
    let mut failures = Vec::new();
    for (case, threads) in cases::ALL.iter().flat_map(|case| [(case, 1), (case, 2)]) {
        let (result, late) = stop(case, threads);
        let came = if result.is_ok() { "done" } else { "stopped" };
        println!("{}, {threads} threads: {late}, {came}", case.name);
        match result {
            Ok(()) | Err(Error::Cancelled) if late.is_too_late() => {
                failures.push(format!("{}, {threads} threads: {late}", case.name));
            }
            Ok(()) | Err(Error::Cancelled) => {}
            Err(error) => failures.push(format!("{}, {threads} threads: {error}", case.name)),
        }
    }
    assert!(failures.is_empty(), "not over soon after they were cancelled: {failures:#?}");
}
