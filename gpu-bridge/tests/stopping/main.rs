//! Every operation can be stopped, whatever its shapes and attributes are.
//!
//! Each operation is run with the largest shapes that a lease of 256 MiB admits, with inputs that are repeated without
//! taking memory, and with the largest attributes. On the cores it is cancelled after 50 ms and must be over 250 ms later,
//! on one thread and on two; on a software GPU, where a dispatch that has begun cannot be cancelled, another lease's small
//! read must be answered as soon.
//!
//! Beside what was found to take longest, random operations are tried: other ones in each run, `WEFT_SOAK=n` n times as
//! many. One that fails names its seed, and `WEFT_STOPPING_SEED` tries that one alone.
//!
//! What other processes do on the machine is not to count: it is enough if no thread took that much processor time
//! meanwhile. Whatever waits without computing must be over within a second of the wall's time. Once it may take longer,
//! for that others had the cores just then; not twice.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_gpu::device::Device;
use weft_gpu::device::cpu::Cpu;
use weft_gpu::op::Op;
use weft_gpu::{Context, Crew, Error, Limits, Result, Shape, Tensor};

use chance::Chance;
use late::{Late, Threads};

mod cases;
mod chance;
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

/// Runs an operation on the cores, and cancels it. Says what came of it, and how late it was.
fn stop(name: &str, threads: usize, call: impl Fn(&Context) -> Result<Call>) -> (Result<()>, Late) {
    let context = context(Arc::new(Cpu::new()), threads);
    let (op, inputs) = match call(&context) {
        Ok(made) => made,
        Err(error) => panic!("{name}: no inputs: {error}"),
    };
    let inputs: Vec<&Tensor> = inputs.iter().collect();
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let work = scope.spawn(|| {
            let result = context.run(op, &inputs).map(drop);
            // Whoever waits has gone if it was cancelled.
            done.send(()).ok();
            (result, Instant::now(), Threads::now())
        });
        // One that is over sooner needs no cancelling.
        is_done.recv_timeout(RUNNING).ok();
        let (asked, then) = (Instant::now(), Threads::now());
        context.cancel().cancel();
        let (result, ended, now) = work.join().unwrap();
        (result, Late { wall: ended.saturating_duration_since(asked), busiest: now.busiest_since(&then) })
    })
}

/// Runs something that may be late once, when others have the cores: then it is tried again.
fn not_late_twice(mut run: impl FnMut() -> (Result<()>, Late)) -> (Result<()>, Late) {
    let (result, late) = run();
    if late.is_too_late() { run() } else { (result, late) }
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
        let (result, late) = not_late_twice(|| stop(case.name, threads, case.call));
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

/// How many random operations are tried.
const RANDOM: u64 = 100;

/// A number from a variable of the environment.
fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn any_operation_ends_soon_after_it_is_cancelled() {
    let first = match number("WEFT_STOPPING_SEED") {
        Some(seed) => seed,
        None => {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
            now.as_nanos() as u64
        }
    };
    let count = match number("WEFT_STOPPING_SEED") {
        Some(_) => 1,
        None => RANDOM * number("WEFT_SOAK").unwrap_or(1),
    };
    let (mut failures, mut done, mut stopped, mut no_room) = (Vec::new(), 0, 0, 0);
    for seed in (0..count).map(|number| first.wrapping_add(number)) {
        let threads = 1 + (seed % 2) as usize;
        // What inputs there is no room for is known before anything runs.
        let probe = context(Arc::new(Cpu::new()), 1);
        let text = match Chance::new(seed).call(&probe) {
            Ok((op, inputs)) => format!("seed {seed}, {op:?} of {:?}, {threads} threads", shapes(&inputs)),
            Err(_) => {
                no_room += 1;
                continue;
            }
        };
        drop(probe);
        let (result, late) = not_late_twice(|| stop(&text, threads, |context| Chance::new(seed).call(context)));
        match result {
            Err(Error::Internal { .. } | Error::DeviceLost { .. }) => failures.push(format!("{text}: {result:?}")),
            Err(Error::Cancelled) => stopped += 1,
            _ => done += 1,
        }
        if late.is_too_late() {
            failures.push(format!("{text}: {late}"));
        }
    }
    println!("{done} were done or refused, {stopped} stopped, {no_room} had no inputs");
    assert!(failures.is_empty(), "not over soon after they were cancelled: {failures:#?}");
    assert!(count < RANDOM || (stopped > 0 && no_room < count / 2), "{stopped} stopped, {no_room} had no inputs");
}

fn shapes(inputs: &[Tensor]) -> Vec<Shape> {
    inputs.iter().take(5).map(|input| input.shape()).collect()
}
