//! Convolutions element by element: for kernels of one channel, and for strides that leave most of the input unseen.

use super::geometry::Geometry;
use super::{SCATTER, ScatterBody, biased};
use crate::device::View;
use crate::device::gpu::kernels::Call;
use crate::device::gpu::pipeline::Kernel;
use crate::dtype::DType;
use crate::error::Result;
use crate::shape::{Layout, Shape};

static FORWARD: Kernel =
    Kernel { name: "conv2d-direct", sources: &[include_str!("direct.wgsl"), include_str!("direct_forward.wgsl")] };
static GRADIENT_INPUT: Kernel = Kernel {
    name: "conv2d-direct-gradient-input",
    sources: &[include_str!("direct.wgsl"), include_str!("direct_gradient_input.wgsl")],
};
static GRADIENT_WEIGHT: Kernel = Kernel {
    name: "conv2d-direct-gradient-weight",
    sources: &[include_str!("direct.wgsl"), include_str!("direct_gradient_weight.wgsl")],
};

/// What a thread goes through.
const TAPS: &str = "taps of the kernels";

/// `Body` in `direct.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Body {
    groups: u32,
    inputs: u32,
    outputs: u32,
    from: [u32; 2],
    to: [u32; 2],
    kernel: [u32; 2],
    stride: [u32; 2],
    padding: [u32; 2],
    dilation: [u32; 2],
    /// Rows of the result that a launch goes through.
    rows: [u32; 2],
}

impl Body {
    fn new(geometry: &Geometry) -> Self {
        let pair = |sizes: [usize; 2]| sizes.map(|size| size as u32);
        Self {
            groups: geometry.groups as u32,
            inputs: geometry.inputs as u32,
            outputs: geometry.outputs as u32,
            from: pair(geometry.from),
            to: pair(geometry.to),
            kernel: pair(geometry.kernel),
            stride: pair(geometry.stride),
            padding: pair(geometry.padding),
            dilation: pair(geometry.dilation),
            rows: [0, geometry.to[0] as u32],
        }
    }
}

/// Depthwise only.
pub(super) fn forward<'a>(
    call: &Call<'a>,
    geometry: &Geometry,
    x: &View<'a>,
    weight: &View<'a>,
    bias: Option<&View<'a>>,
) -> Result<()> {
    convolve(call, geometry, &Body::new(geometry), false, [x, weight], bias)
}

/// Depthwise only. With `reversed` the taps of the weight are taken from the last to the first.
fn convolve<'a>(
    call: &Call<'a>,
    geometry: &Geometry,
    body: &Body,
    reversed: bool,
    [x, weight]: [&View<'a>; 2],
    bias: Option<&View<'a>>,
) -> Result<()> {
    let rows = geometry.images as u64 * u64::from(body.groups) * u64::from(body.to[0]);
    let launch = call.launch(&FORWARD).bind("x", x)?.bind("weight", weight)?.bind("y", &call.outputs[0])?;
    biased(launch, bias)?
        .define("SLIDING", body.stride[1] == body.dilation[1])
        .define("REVERSED", reversed)
        .body(body)
        .flops(geometry.flops())
        .looping((geometry.taps() + geometry.kernel[0]) as u64, TAPS)?
        .threads(rows * u64::from(body.to[1].div_ceil(4)))
}

/// For any convolution.
pub(super) fn gradient_input<'a>(call: &Call<'a>, geometry: &Geometry, dy: &View<'a>, weight: &View<'a>) -> Result<()> {
    if geometry.is_depthwise() && geometry.stride == [1, 1] {
        // A convolution of the gradient, whose padding is what the kernel reaches past the padding here.
        let body = Body::new(geometry);
        let reach = |axis: usize| (body.kernel[axis] - 1).wrapping_mul(body.dilation[axis]);
        let padding = [0, 1].map(|axis| reach(axis).wrapping_sub(body.padding[axis]));
        let body = Body { from: body.to, to: body.from, padding, ..body };
        return convolve(call, geometry, &body, true, [dy, weight], None);
    }
    // Each element looks at every tap, whether the stride lets it be seen or not.
    let looks = geometry.outputs as u64 * geometry.taps() as u64;
    let elements = call.outputs[0].layout.shape.elements() as u64;
    call.launch(&GRADIENT_INPUT)
        .bind("dy", dy)?
        .bind("weight", weight)?
        .body(&Body::new(geometry))
        .flops(elements.saturating_mul(2 * looks))
        .looping(looks + geometry.outputs as u64 * (geometry.kernel[0] as u64 + 1), TAPS)?
        .map(&call.outputs[0])
}

/// Depthwise only: the sums of each image, which are then added in order.
pub(super) fn gradient_weight<'a>(call: &Call<'a>, geometry: &Geometry, x: &View<'a>, dy: &View<'a>) -> Result<()> {
    let each = geometry.groups * geometry.taps();
    let block = call.run.heap.take(4 * geometry.images * each)?;
    let layout = Layout::contiguous(Shape::new(&[geometry.images * each])?);
    let sums = View { memory: block.memory(), layout: &layout, dtype: DType::F32 };
    // A thread goes through the whole result of an image, so the rows of a large one are cut.
    let [height, width] = geometry.to;
    let together = (call.longest_loop() / (width + 1)).max(1);
    for first in (0..height).step_by(together) {
        let last = height.min(first + together);
        call.launch(&GRADIENT_WEIGHT)
            .bind("x", x)?
            .bind("dy", dy)?
            .bind("y", &sums)?
            .define("SLIDING", geometry.stride[1] == geometry.dilation[1])
            .body(&Body { rows: [first as u32, last as u32], ..Body::new(geometry) })
            .flops(geometry.flops() / height as u64 * (last - first) as u64)
            .looping(width as u64 + 1, "columns of the result")?
            .looping(geometry.images as u64, "images")?
            .threads(
                (geometry.images * geometry.groups * geometry.kernel[0] * geometry.kernel[1].div_ceil(4)) as u64,
            )?;
    }
    let body = ScatterBody {
        rows: 1,
        columns: each as u32,
        slices: geometry.images as u32,
        sums_rows: 1,
        sums_columns: each as u32,
        column_sizes: [1, each as u32],
        put_group: 0,
        put_offset: 0,
        put_row: 0,
        put_units: [0, 0, 1],
    };
    let launch = biased(call.launch(&SCATTER).bind("sums", &sums)?, None)?;
    launch.bind("y", &call.outputs[0])?.body(&body).threads(each as u64)
}
