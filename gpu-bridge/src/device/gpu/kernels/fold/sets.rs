//! The kernels of a fold, put together from texts.

use crate::device::gpu::pipeline::Kernel;

/// Texts that the macros put together.
pub(in super::super) mod text {
    pub(in super::super::super) const FRAME: &str = include_str!("frame.wgsl");
    pub(in super::super::super) const ELEMENTS: &str = include_str!("elements.wgsl");
    pub(in super::super::super) const ALONE: &str = include_str!("alone.wgsl");
    pub(in super::super::super) const TREE: &str = include_str!("tree.wgsl");
    pub(in super::super::super) const PARTS: &str = include_str!("parts.wgsl");
    pub(in super::super::super) const WHOLE: &str = include_str!("whole.wgsl");
    pub(in super::super::super) const REST: &str = include_str!("rest.wgsl");
    pub(in super::super::super) const PUT: &str = include_str!("put.wgsl");
    pub(in super::super::super) const FUSED: &str = include_str!("fused.wgsl");
    pub(in super::super::super) const SPREAD: &str = include_str!("spread.wgsl");
    pub(in super::super::super) const GIVEN: &str = include_str!("given.wgsl");
    pub(in super::super::super) const SUM: &str = include_str!("sum.wgsl");
    pub(in super::super::super) const MOMENTS: &str = include_str!("moments.wgsl");
    pub(in super::super::super) const MOMENTS_STEP: &str = include_str!("moments_step.wgsl");
    pub(in super::super::super) const POWERS: &str = include_str!("powers.wgsl");
    pub(in super::super::super) const MATH: &str = include_str!("../math.wgsl");
}

/// The kernels of a fold, each once for lanes that work alone and once for lanes that meet.
pub(in super::super) struct Folding {
    /// Elements to states of parts.
    pub(in super::super) parts: [Kernel; 2],
    /// States of parts to states of fewer parts.
    pub(in super::super) rest: [Kernel; 2],
    /// Elements to results.
    pub(in super::super) whole: [Kernel; 2],
    /// States of parts to results.
    pub(in super::super) rest_whole: [Kernel; 2],
}

/// `fold_kernels!(name, merge, step, finish)`: a [`Folding`] of `nothing` and `merge`; `Run`, `begin`, `step` and `settle`; and
/// `finish`.
macro_rules! fold_kernels {
    ($name:literal, $merge:expr, $step:expr, $finish:expr) => {{
        use $crate::device::gpu::kernels::fold::{Folding, text};
        use $crate::device::gpu::pipeline::Kernel;
        Folding {
            parts: [
                Kernel {
                    name: concat!($name, "/parts"),
                    sources: &[text::FRAME, text::ALONE, $merge, $step, text::ELEMENTS, text::PARTS],
                },
                Kernel {
                    name: concat!($name, "/tree-parts"),
                    sources: &[text::FRAME, text::TREE, $merge, $step, text::ELEMENTS, text::PARTS],
                },
            ],
            rest: [
                Kernel {
                    name: concat!($name, "/rest"),
                    sources: &[text::FRAME, text::ALONE, $merge, text::REST, text::ELEMENTS, text::PARTS],
                },
                Kernel {
                    name: concat!($name, "/tree-rest"),
                    sources: &[text::FRAME, text::TREE, $merge, text::REST, text::ELEMENTS, text::PARTS],
                },
            ],
            whole: [
                Kernel {
                    name: concat!($name, "/whole"),
                    sources: &[text::FRAME, text::ALONE, $merge, $step, text::ELEMENTS, $finish, text::WHOLE],
                },
                Kernel {
                    name: concat!($name, "/tree-whole"),
                    sources: &[text::FRAME, text::TREE, $merge, $step, text::ELEMENTS, $finish, text::WHOLE],
                },
            ],
            rest_whole: [
                Kernel {
                    name: concat!($name, "/rest-whole"),
                    sources: &[text::FRAME, text::ALONE, $merge, text::REST, text::ELEMENTS, $finish, text::WHOLE],
                },
                Kernel {
                    name: concat!($name, "/tree-rest-whole"),
                    sources: &[text::FRAME, text::TREE, $merge, text::REST, text::ELEMENTS, $finish, text::WHOLE],
                },
            ],
        }
    }};
}

/// The kernels of a fold whose states every element depends on.
pub(in super::super) struct Each {
    /// All in one go.
    pub(in super::super) fused: [Kernel; 2],
    /// Elements to states of parts.
    pub(in super::super) parts: [Kernel; 2],
    /// States of parts to states of fewer parts.
    pub(in super::super) rest: [Kernel; 2],
    /// States to elements.
    pub(in super::super) spread: Kernel,
}

/// `each_kernels!(name, merge, step, put)`: an [`Each`] of what [`fold_kernels`] takes, and `prepare`, `put` and `finish`.
macro_rules! each_kernels {
    ($name:literal, $merge:expr, $step:expr, $put:expr) => {{
        use $crate::device::gpu::kernels::fold::{Each, text};
        use $crate::device::gpu::pipeline::Kernel;
        Each {
            fused: [
                Kernel {
                    name: concat!($name, "/fused"),
                    sources: &[
                        text::MATH,
                        text::FRAME,
                        text::ALONE,
                        $merge,
                        $step,
                        text::ELEMENTS,
                        $put,
                        text::PUT,
                        text::FUSED,
                    ],
                },
                Kernel {
                    name: concat!($name, "/tree-fused"),
                    sources: &[
                        text::MATH,
                        text::FRAME,
                        text::TREE,
                        $merge,
                        $step,
                        text::ELEMENTS,
                        $put,
                        text::PUT,
                        text::FUSED,
                    ],
                },
            ],
            parts: [
                Kernel {
                    name: concat!($name, "/parts"),
                    sources: &[text::MATH, text::FRAME, text::ALONE, $merge, $step, text::ELEMENTS, text::PARTS],
                },
                Kernel {
                    name: concat!($name, "/tree-parts"),
                    sources: &[text::MATH, text::FRAME, text::TREE, $merge, $step, text::ELEMENTS, text::PARTS],
                },
            ],
            rest: [
                Kernel {
                    name: concat!($name, "/rest"),
                    sources: &[text::MATH, text::FRAME, text::ALONE, $merge, text::REST, text::ELEMENTS, text::PARTS],
                },
                Kernel {
                    name: concat!($name, "/tree-rest"),
                    sources: &[text::MATH, text::FRAME, text::TREE, $merge, text::REST, text::ELEMENTS, text::PARTS],
                },
            ],
            spread: Kernel {
                name: concat!($name, "/spread"),
                sources: &[text::MATH, text::FRAME, $merge, $put, text::PUT, text::SPREAD],
            },
        }
    }};
}

pub(in super::super) use {each_kernels, fold_kernels};
