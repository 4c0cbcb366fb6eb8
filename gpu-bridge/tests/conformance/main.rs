//! Every operation on every device, against a naive reference in f64.
//!
//! A family of operations is one file: `cases` (what goes in, the reference, how close the result must be), and
//! `refusals` (what must be an error). Each case is run contiguous and through views whose elements lie apart, on several
//! thread counts, which must agree in every bit; gradients are compared with finite differences of the reference.
//! A device is added by one line at the end of this file.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};

use weft_gpu::device::cpu::Cpu;
use weft_gpu::device::gpu::{Adapter, Gpu};
use weft_gpu::device::{Device, Kind, Shared};

mod arena;
mod array;
mod case;
mod check;
mod codec;
mod convolution;
mod elementwise;
mod layout;
mod loss;
mod matrix;
mod normalization;
mod pooling;
mod random;
mod reduction;
mod sparse;
mod types;

/// Calls a macro with the names of all families, after whatever else it is to be given.
macro_rules! all_families {
    ($called:ident, $($given:tt)*) => {
        $called! { $($given)*
            elementwise
            reduction
            layout
            random
            matrix
            convolution
            pooling
            normalization
            loss
            sparse
            arena
            codec
        }
    };
}

/// Runs every family on a device: `suite!(name, device)`.
macro_rules! suite {
    (@families $device:expr; $($family:ident)+) => {
        $(mod $family {
            use super::*;

            #[test]
            fn values() {
                check::values(&$device, &crate::$family::cases());
            }

            #[test]
            fn gradients() {
                check::gradients(&$device, &crate::$family::cases());
            }

            #[test]
            fn refusals() {
                check::refusals(&$device, crate::$family::refusals());
            }
        })+
    };
    ($name:ident, $device:expr) => {
        mod $name {
            use super::*;

            all_families! { suite, @families $device; }
        }
    };
}

suite!(cpu, Arc::new(Cpu::new()) as Arc<dyn Device>);
suite!(gpu, gpu(As::Itself));
suite!(hardware, gpu(As::Hardware));

/// What the way of the parameters could spoil: walked operands, bodies with arrays, kernels that say what they found.
mod uniform {
    use super::*;

    suite! { @families gpu(As::WithoutImmediates);
        elementwise
        reduction
        layout
        matrix
        sparse
    }
}

/// Operands that are larger than a binding may be.
mod split {
    use super::*;

    macro_rules! families {
        ($($family:ident)+) => {
            $(#[test]
            fn $family() {
                check::split(|bytes| gpu(As::WithBindingsOf(bytes)), &crate::$family::cases());
            })+
        };
    }

    all_families! { families, }
}

/// What the GPU is taken for.
#[derive(Clone, Copy, PartialEq)]
enum As {
    Itself,
    /// Kernels are those for real GPUs.
    Hardware,
    /// No parameters are part of commands.
    WithoutImmediates,
    /// A binding has no more bytes than this.
    WithBindingsOf(u64),
}

/// A handle of a GPU that all tests share; a software one will do.
fn gpu(kind: As) -> Arc<dyn Device> {
    static GPUS: Mutex<Vec<(As, Gpu)>> = Mutex::new(Vec::new());
    let mut gpus = GPUS.lock().unwrap();
    if gpus.iter().all(|(known, _)| *known != kind) {
        let adapter = Adapter::all().into_iter().next().unwrap_or_else(|| panic!("there is no Vulkan device"));
        let adapter = match kind {
            As::Itself => adapter,
            As::Hardware => adapter.treated_as(Kind::Discrete),
            As::WithoutImmediates => adapter.without_immediates(),
            As::WithBindingsOf(bytes) => adapter.with_bindings_of(bytes),
        };
        gpus.push((kind, Gpu::open(adapter, None).unwrap()));
    }
    let (_, gpu) = gpus.iter().find(|(known, _)| *known == kind).unwrap();
    gpu.open(&"test".into(), NonZeroU32::MIN).unwrap()
}
