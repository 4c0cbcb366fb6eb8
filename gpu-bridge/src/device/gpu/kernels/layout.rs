//! The same elements elsewhere.

use super::Call;
use crate::device::gpu::pipeline::Kernel;
use crate::error::Result;

static COPY: Kernel = Kernel { name: "copy", sources: &[include_str!("layout/copy.wgsl")] };

/// The input, seen under the shape of the result.
pub(super) fn copy(call: Call<'_>) -> Result<()> {
    let y = &call.outputs[0];
    call.launch(&COPY).walk("x", &call.inputs[0], &y.layout.shape)?.define("TYPE", super::wgsl_type(y.dtype)).map(y)
}
