//! The same elements elsewhere.

use super::Call;
use crate::device::gpu::pipeline::Kernel;
use crate::error::Result;
use crate::op::Op;

pub(super) fn run(call: Call<'_>, op: &Op) -> Result<()> {
    match op {
        // The context makes a view of these, or a copy first.
        Op::Reshape(_) | Op::Permute(_) | Op::Expand(_) | Op::Slice(_) => super::misplaced(op),
        Op::Copy(_) | Op::Assign(_) => copy(call),
        _ => super::misplaced(op),
    }
}

static COPY: Kernel = Kernel { name: "copy", sources: &[include_str!("layout/copy.wgsl")] };

/// The input, seen under the shape of the result.
fn copy(call: Call<'_>) -> Result<()> {
    let y = &call.outputs[0];
    call.launch(&COPY).walk("x", &call.inputs[0], &y.layout.shape)?.define("TYPE", super::wgsl_type(y.dtype)).map(y)
}
