//! Memory to work in for the time of an operation.

use crate::device::View;
use crate::device::gpu::kernels::Call;
use crate::dtype::DType;
use crate::error::Result;
use crate::heap::Block;
use crate::shape::{Layout, Shape};

/// Elements in a row. What they hold at first is undefined.
pub(in crate::device::gpu::kernels) struct Scratch {
    block: Block,
    layout: Layout,
    dtype: DType,
}

impl Scratch {
    pub(in crate::device::gpu::kernels) fn take(call: &Call<'_>, elements: usize, dtype: DType) -> Result<Self> {
        let layout = Layout::contiguous(Shape::new(&[elements])?);
        Ok(Self { block: call.run.heap.take(elements * dtype.size())?, layout, dtype })
    }

    pub(in crate::device::gpu::kernels) fn view(&self) -> View<'_> {
        View { memory: self.block.memory(), layout: &self.layout, dtype: self.dtype }
    }
}
