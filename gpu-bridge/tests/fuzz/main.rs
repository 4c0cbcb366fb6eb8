//! Random programs: whatever is asked of a device, it answers or refuses, and gives everything back.
//!
//! A string of bytes is made into a program ([`generate`]), which is a list of steps that knows no device
//! ([`program`]), and which is then run ([`execute`]): every operation with right and with wrong attributes and inputs,
//! views, gradients, writes in place, little memory, cancelling, two contexts, two threads. After each step must hold:
//! - nothing panics, and no device fails inside ([`weft_gpu::Error::Internal`]);
//! - what [`weft_gpu::op::Op::infer`] accepts is done, or fails for what the tensors hold or for want of memory; what it
//!   refuses is refused; results are what it said;
//! - memory and tape stay within their limits, and in the end all of both is given back.
//!
//! A failure prints how to repeat it. `WEFT_SOAK=n` runs `n` times as many programs. A device is added by one line at
//! the end of this file; [`execute::compare`] holds two devices against each other.

#![expect(clippy::panic, reason = "a test that cannot go on has failed")]

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use weft_gpu::Crew;
use weft_gpu::device::cpu::Cpu;
use weft_gpu::device::gpu::{Adapter, Gpu};
use weft_gpu::device::{Device, Shared};

use bytes::Noise;
use calls::Kind;

mod bytes;
mod calls;
mod contents;
mod execute;
mod generate;
mod program;
mod shadow;

/// Threads that work on one call.
const THREADS: usize = 3;

/// How long one program may take: a thousand times what most do.
const PATIENCE: Duration = Duration::from_secs(60);

/// One program on the machine's own cores, for a fuzzer that comes with its own bytes.
pub fn fuzz(data: &[u8]) {
    let device: Arc<dyn Device> = Arc::new(Cpu::new());
    execute::run(&device, &Arc::new(Crew::new(THREADS)), None, &generate::program(data, false));
}

/// Runs `body` on the bytes of so many seeds, or of the one in `WEFT_FUZZ_SEED`. Says whether it was all of them.
fn seeds(test: &'static str, count: u64, mut body: impl FnMut(&[u8])) -> bool {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let only = number("WEFT_FUZZ_SEED");
    let all = match only {
        Some(seed) => seed..seed + 1,
        None => 0..count * number("WEFT_SOAK").unwrap_or(1),
    };
    let watch = watch(test);
    for seed in all {
        // The watch only ends when this test does.
        let _ = watch.send(seed);
        let _repeat = Repeat { test, seed };
        let length = 200 + 40 * (seed as usize % 50);
        body(&Noise(seed).bytes(length));
    }
    only.is_none()
}

/// Ends everything if a program does not end.
fn watch(test: &'static str) -> Sender<u64> {
    let (sender, seeds) = channel();
    std::thread::spawn(move || {
        let mut running = 0;
        loop {
            match seeds.recv_timeout(PATIENCE) {
                Ok(seed) => running = seed,
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    eprintln!("it hangs; {}", how_to_repeat(test, running));
                    std::process::abort();
                }
            }
        }
    });
    sender
}

/// Says how to repeat what panicked.
struct Repeat {
    test: &'static str,
    seed: u64,
}

impl Drop for Repeat {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", how_to_repeat(self.test, self.seed));
        }
    }
}

fn how_to_repeat(test: &str, seed: u64) -> String {
    format!("repeat with: WEFT_FUZZ_SEED={seed} cargo test --release -p weft-gpu --test fuzz {test}")
}

#[test]
fn specs_take_any_sizes() {
    seeds("specs_take_any_sizes", 200_000, |data| {
        if let Some((op, inputs)) = generate::spec(data)
            && let Ok(outputs) = op.infer(&inputs)
        {
            assert!(op.cost(&inputs, &outputs).bytes < 1 << 50, "{op:?} of {inputs:?}");
        }
    });
}

#[test]
fn bytes_of_any_length_are_a_program() {
    for length in [0, 1, 2, 10, 5_000] {
        fuzz(&vec![0xff; length]);
        fuzz(&vec![0; length]);
    }
}

/// Runs random programs on a device: `suite!(name, device)`.
macro_rules! suite {
    ($name:ident, $device:expr) => {
        mod $name {
            use super::*;

            #[test]
            fn programs_are_done_or_refused() {
                let (device, crew): (Arc<dyn Device>, _) = ($device, Arc::new(Crew::new(THREADS)));
                let mut succeeded = HashSet::new();
                let all = seeds(concat!(stringify!($name), "::programs_are_done_or_refused"), 10_000, |data| {
                    let trace = execute::run(&device, &crew, None, &generate::program(data, false));
                    succeeded.extend(trace.succeeded);
                });
                let missing: Vec<&Kind> = Kind::ALL.iter().filter(|kind| !succeeded.contains(kind)).collect();
                assert!(!all || missing.is_empty(), "never done: {missing:?}");
            }

            #[test]
            fn programs_share_a_context() {
                let (device, crew): (Arc<dyn Device>, _) = ($device, Arc::new(Crew::new(THREADS)));
                seeds(concat!(stringify!($name), "::programs_share_a_context"), 1_000, |data| {
                    execute::run(&device, &crew, None, &generate::program(data, true));
                });
            }

            #[test]
            fn programs_do_not_depend_on_threads() {
                let (device, crew): (Arc<dyn Device>, _) = ($device, Arc::new(Crew::new(THREADS)));
                seeds(concat!(stringify!($name), "::programs_do_not_depend_on_threads"), 3_000, |data| {
                    let program = generate::program(data, false);
                    let [alone, together] =
                        [1, THREADS].map(|threads| execute::run(&device, &crew, Some(threads), &program));
                    execute::compare(&alone, &together, &program, |a, b| a == b);
                });
            }
        }
    };
}

suite!(cpu, Arc::new(Cpu::new()));

/// A GPU, each call held against the same call on the machine's cores; a software GPU will do.
mod gpu {
    use super::*;

    fn device() -> Arc<dyn Device> {
        let adapter = Adapter::all().into_iter().next().unwrap_or_else(|| panic!("there is no Vulkan device"));
        let gpu = Gpu::open(adapter, None).unwrap_or_else(|error| panic!("{error}"));
        gpu.open(&"test".into(), NonZeroU32::MIN).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn programs_are_done_as_on_the_cores() {
        let (device, crew) = (device(), Arc::new(Crew::new(THREADS)));
        let mut succeeded = HashSet::new();
        let all = seeds("gpu::programs_are_done_as_on_the_cores", 600, |data| {
            let trace = execute::run(&device, &crew, None, &generate::program(data, false));
            succeeded.extend(trace.succeeded);
        });
        let missing: Vec<&Kind> = Kind::ALL.iter().filter(|kind| !succeeded.contains(kind)).collect();
        assert!(!all || missing.is_empty(), "never done: {missing:?}");
    }

    #[test]
    fn programs_share_a_context() {
        let (device, crew) = (device(), Arc::new(Crew::new(THREADS)));
        seeds("gpu::programs_share_a_context", 60, |data| {
            execute::run(&device, &crew, None, &generate::program(data, true));
        });
    }
}
