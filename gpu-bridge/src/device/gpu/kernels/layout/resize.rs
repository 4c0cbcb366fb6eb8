//! Images of another size. Where pixels come from is worked out once per axis; see the spec for how.

use super::super::Call;
use super::Scratch;
use crate::device::View;
use crate::device::gpu::pipeline::Kernel;
use crate::dtype::DType;
use crate::error::Result;
use crate::op::{Resampling, Resize, ResizeGradient};

static SOURCES: Kernel =
    Kernel { name: "resize-sources", sources: &[include_str!("wide.wgsl"), include_str!("resize_sources.wgsl")] };
static RESIZE: Kernel = Kernel { name: "resize", sources: &[include_str!("resize.wgsl")] };
static GRADIENT: Kernel = Kernel { name: "resize-gradient", sources: &[include_str!("resize_gradient.wgsl")] };

/// Per pixel of the result along one axis: the pixel it comes from, and how much the next one weighs.
struct Sources {
    nearer: Scratch,
    weights: Scratch,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct SourcesBody {
    from: u32,
    to: u32,
    bilinear: u32,
}

impl Sources {
    fn new(call: &Call<'_>, mode: Resampling, from: usize, to: usize) -> Result<Self> {
        let sources =
            Self { nearer: Scratch::take(call, to, DType::U32)?, weights: Scratch::take(call, to, DType::F32)? };
        let bilinear = u32::from(mode == Resampling::Bilinear);
        call.launch(&SOURCES)
            .bind("nearer", &sources.nearer.view())?
            .bind("weights", &sources.weights.view())?
            .body(&SourcesBody { from: from as u32, to: to as u32, bilinear })
            .threads(to as u64)?;
        Ok(sources)
    }
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct ResizeBody {
    height: u32,
    width: u32,
    to_height: u32,
    to_width: u32,
}

pub(super) fn resize(call: Call<'_>, op: &Resize) -> Result<()> {
    let (x, y) = (&call.inputs[0], &call.outputs[0]);
    let (from, to) = (x.layout.shape, y.layout.shape);
    let rows = Sources::new(&call, op.mode, from[2], to[2])?;
    let columns = Sources::new(&call, op.mode, from[3], to[3])?;
    let [height, width, to_height, to_width] = [from[2], from[3], to[2], to[3]].map(|size| size as u32);
    call.launch(&RESIZE)
        .bind("x", x)?
        .bind("rows", &rows.nearer.view())?
        .bind("row_weights", &rows.weights.view())?
        .bind("columns", &columns.nearer.view())?
        .bind("column_weights", &columns.weights.view())?
        .body(&ResizeBody { height, width, to_height, to_width })
        .map(y)
}

/// One axis after the other.
pub(super) fn resize_gradient(call: Call<'_>, op: &ResizeGradient) -> Result<()> {
    let (dy, dx) = (&call.inputs[0], &call.outputs[0]);
    let (large, small) = (dy.layout.shape, dx.layout.shape);
    let lines = large[0] * large[1] * large[2];
    let folded = Scratch::take(&call, lines * small[3], DType::F32)?;
    let columns = Sources::new(&call, op.mode, small[3], large[3])?;
    fold(&call, dy, &columns, &folded.view(), [large[3], small[3], 1])?;
    let rows = Sources::new(&call, op.mode, small[2], large[2])?;
    fold(&call, &folded.view(), &rows, dx, [large[2], small[2], small[3]])
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct FoldBody {
    large: u32,
    small: u32,
    inner: u32,
}

/// Gives each element to the ones that it came from along an axis of `large` elements that were `small`.
fn fold(call: &Call<'_>, dy: &View<'_>, sources: &Sources, dx: &View<'_>, sizes: [usize; 3]) -> Result<()> {
    // An element gets something from those that lie between it and its neighbours, and at an edge from those past it.
    // Where they begin and end is searched for, in up to 32 steps each.
    let rounds = (3 * sizes[0].div_ceil(sizes[1].max(1))).min(sizes[0]) as u64 + 64;
    let [large, small, inner] = sizes.map(|size| size as u32);
    call.launch(&GRADIENT)
        .bind("dy", dy)?
        .bind("nearer", &sources.nearer.view())?
        .bind("weights", &sources.weights.view())?
        .body(&FoldBody { large, small, inner })
        .flops((dx.layout.shape.elements() as u64).saturating_mul(8 * rounds))
        .looping(rounds, "elements along an axis")?
        .map(dx)
}
