//! Rows by index.

use super::super::{Call, wgsl_type};
use super::{Scatter, Source, bits, is_fours};
use crate::device::View;
use crate::device::gpu::pipeline::Kernel;
use crate::error::Result;
use crate::op::{OneHot, ScatterAddRows};

static GATHER: Kernel = Kernel { name: "gather-rows", sources: &[include_str!("gather.wgsl")] };
static GATHER_FOURS: Kernel = Kernel { name: "gather-rows-fours", sources: &[include_str!("gather_fours.wgsl")] };
static ONE_HOT: Kernel = Kernel { name: "one-hot", sources: &[include_str!("one_hot.wgsl")] };
static CHECK: Kernel = Kernel { name: "check-index", sources: &[include_str!("check_index.wgsl")] };

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct RowsBody {
    count: u32,
    width: u32,
}

pub(super) fn gather(call: Call<'_>) -> Result<()> {
    let (table, index, y) = (bits(&call.inputs[0]), &call.inputs[1], bits(&call.outputs[0]));
    let count = table.layout.shape[0];
    let width: usize = table.layout.shape[1..].iter().product();
    if y.layout.shape.elements() == 0 {
        return check(&call, index, "row", count);
    }
    if width.is_multiple_of(4) && is_fours(&table) && is_fours(&y) {
        let launch = call.launch(&GATHER_FOURS).bind_fours("table", &table)?.bind("index", index)?;
        return launch
            .bind_fours("y", &y)?
            .checked("row", count, index.dtype)
            .body(&RowsBody { count: count as u32, width: width as u32 / 4 })
            .threads(y.layout.shape.elements() as u64 / 4);
    }
    call.launch(&GATHER)
        .define("TYPE", wgsl_type(y.dtype))
        .bind("table", &table)?
        .bind("index", index)?
        .checked("row", count, index.dtype)
        .body(&RowsBody { count: count as u32, width: width as u32 })
        .map(&y)
}

/// Where there is nothing to move, indices that are out of range are refused even so.
pub(super) fn check(call: &Call<'_>, index: &View<'_>, what: &'static str, count: usize) -> Result<()> {
    let launch = call.launch(&CHECK).bind("index", index)?.checked(what, count, index.dtype);
    launch
        .body(&RowsBody { count: u32::try_from(count).unwrap_or(u32::MAX), width: 0 })
        .threads(index.layout.shape.elements() as u64)
}

/// Sums are made in the order of the rows.
pub(super) fn scatter_add(call: Call<'_>, op: &ScatterAddRows) -> Result<()> {
    let (rows, index, y) = (&call.inputs[0], &call.inputs[1], &call.outputs[0]);
    if y.layout.shape.elements() == 0 {
        return check(&call, index, "row", op.count);
    }
    Scatter {
        source: Source::Rows(*rows),
        index: *index,
        what: "row",
        count: op.count,
        width: y.layout.shape[1..].iter().product(),
    }
    .run(&call, y)
}

pub(super) fn one_hot(call: Call<'_>, op: &OneHot) -> Result<()> {
    let index = &call.inputs[0];
    call.launch(&ONE_HOT)
        .bind("index", index)?
        .checked("class", op.classes, index.dtype)
        .body(&RowsBody { count: op.classes as u32, width: 0 })
        .map(&call.outputs[0])
}
