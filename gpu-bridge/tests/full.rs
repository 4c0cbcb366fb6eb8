//! A GPU that has no room left: who asks for it is told, nobody else notices, and what is freed can be had again.
//!
//! A software GPU is full when its process may have no more memory. As that concerns all of a process, this has one of its
//! own.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::num::NonZeroU32;
use std::sync::Arc;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use weft_gpu::device::gpu::{Adapter, Gpu};
use weft_gpu::device::{Kind, Shared};
use weft_gpu::{Context, Crew, Error, Limits, Tensor};

/// What the process may still take, and what one tensor takes of it: what is left over in the end is for the driver.
const ROOM: u64 = 2 << 30;
const ELEMENTS: usize = 150 << 20;
/// More than there is room for.
const TOO_MANY: usize = 8;

fn context(gpu: &Gpu) -> Context {
    Context::new(gpu.open(&"test".into(), NonZeroU32::MIN).unwrap(), Arc::new(Crew::new(1)), Limits::default())
}

/// Limits the address space of this process to what it has and `ROOM` more.
fn leave_little_room() {
    let pages: u64 = std::fs::read_to_string("/proc/self/statm").unwrap().split(' ').next().unwrap().parse().unwrap();
    let before = getrlimit(Resource::As);
    let current = Some(pages * rustix::param::page_size() as u64 + ROOM);
    setrlimit(Resource::As, Rlimit { current, maximum: before.maximum }).unwrap();
}

fn sum(tensor: &Tensor) -> f32 {
    tensor.add(tensor).unwrap().to_vec::<f32>().unwrap().iter().sum()
}

#[test]
fn a_full_gpu_is_an_error_of_whoever_asks() {
    let adapter = Adapter::all().into_iter().next();
    let adapter =
        adapter.unwrap_or_else(|| panic!("there is no Vulkan device here; `make setup` installs a software one"));
    if adapter.kind() != Kind::Software {
        println!("not a software GPU: its memory cannot be limited");
        return;
    }
    let gpu = Gpu::open(adapter, None).unwrap();
    let (greedy, modest) = (context(&gpu), context(&gpu));
    let small = modest.tensor(&[4], &[1.0_f32; 4]).unwrap();
    assert_eq!(sum(&small), 8.0);
    assert_eq!(sum(&greedy.tensor(&[4], &[1.0_f32; 4]).unwrap()), 8.0);
    leave_little_room();
    for round in 0..3 {
        let (mut held, mut refused) = (Vec::new(), None);
        while held.len() < TOO_MANY && refused.is_none() {
            match greedy.zeros(&[ELEMENTS]).and_then(|tensor| tensor.read(0, &mut [0; 4]).map(|()| tensor)) {
                Ok(tensor) => held.push(tensor),
                Err(error) => refused = Some(error),
            }
        }
        println!("round {round}: {} tensors, then {refused:?}", held.len());
        assert!(!held.is_empty() && matches!(refused, Some(Error::DeviceFull { .. })), "{refused:?}");
        // Neither the other owner nor what the greedy one has already is concerned.
        assert_eq!(sum(&small), 8.0);
        let mut bytes = [1; 4];
        held[0].read(0, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 4]);
        assert_eq!(gpu.stats().uncaptured_errors, 0);
    }
}
