//! Convolution in two dimensions and its gradients: products of matrices that are looked up in the images, but for
//! depthwise convolutions, which are computed element by element.

use super::Call;
use super::layout::zero;
use super::matrix::planned;
use super::matrix::tiling::{Plan, Tile, Tiling};
use crate::device::View;
use crate::device::gpu::launch::Launch;
use crate::device::gpu::pipeline::Kernel;
use crate::dtype::DType;
use crate::error::Result;
use crate::op::{Conv2d, Conv2dGradientInput, Conv2dGradientWeight, Op};
use crate::shape::{Layout, Shape};

mod direct;
mod geometry;

use geometry::{Geometry, Lookup};

/// Every phase of a stride is a launch of its own, up to so many.
const MOST_PHASES: usize = 16;

pub(super) fn run(call: Call<'_>, op: &Op) -> Result<()> {
    if call.outputs[0].layout.shape.elements() == 0 {
        return Ok(());
    }
    match op {
        Op::Conv2d(op) => forward(call, op),
        Op::Conv2dGradientInput(op) => gradient_input(call, op),
        Op::Conv2dGradientWeight(op) => gradient_weight(call, op),
        _ => super::misplaced(op),
    }
}

fn forward(call: Call<'_>, conv: &Conv2d) -> Result<()> {
    let [x, weight] = [0, 1].map(|index| call.inputs[index]);
    let y = &call.outputs[0].layout.shape;
    let geometry = Geometry::new(call.op, conv, &x.layout.shape, &weight.layout.shape, y)?;
    let bias = call.inputs.get(2).copied();
    if geometry.is_depthwise() && geometry.input_plane() > 0 {
        return direct::forward(&call, &geometry, &x, &weight, bias.as_ref());
    }
    multiply(&call, &geometry.forward(), &weight, &x, bias)
}

fn gradient_input(call: Call<'_>, op: &Conv2dGradientInput) -> Result<()> {
    let [dy, weight] = [0, 1].map(|index| call.inputs[index]);
    let geometry = Geometry::new(call.op, &op.conv, &op.input, &weight.layout.shape, &dy.layout.shape)?;
    if geometry.output_plane() == 0 || geometry.outputs == 0 {
        return zero(&call, &call.outputs[0]);
    }
    let phases = [0, 1].map(|axis| geometry.phases(axis));
    let many = phases[0].saturating_mul(phases[1]) > MOST_PHASES;
    if geometry.is_depthwise() || many {
        return direct::gradient_input(&call, &geometry, &dy, &weight);
    }
    for down in 0..phases[0] {
        for across in 0..phases[1] {
            multiply(&call, &geometry.gradient_input([down, across]), &weight, &dy, None)?;
        }
    }
    Ok(())
}

fn gradient_weight(call: Call<'_>, op: &Conv2dGradientWeight) -> Result<()> {
    let [x, dy] = [0, 1].map(|index| call.inputs[index]);
    let geometry = Geometry::new(call.op, &op.conv, &x.layout.shape, &op.weight, &dy.layout.shape)?;
    if geometry.is_depthwise() && geometry.images * geometry.input_plane() * geometry.output_plane() > 0 {
        return direct::gradient_weight(&call, &geometry, &x, &dy);
    }
    multiply(&call, &geometry.gradient_weight(), &dy, &x, None)
}

static REGISTERS: Kernel = Kernel {
    name: "conv2d-registers",
    sources: &[
        include_str!("matrix/block.wgsl"),
        include_str!("matrix/registers.wgsl"),
        include_str!("convolution/sampled.wgsl"),
    ],
};
static WORKGROUP: Kernel = Kernel {
    name: "conv2d-workgroup",
    sources: &[
        include_str!("matrix/block.wgsl"),
        include_str!("matrix/workgroup.wgsl"),
        include_str!("convolution/sampled.wgsl"),
        include_str!("convolution/sampled_workgroup.wgsl"),
    ],
};
static SCATTER: Kernel = Kernel { name: "conv2d-scatter", sources: &[include_str!("convolution/scatter.wgsl")] };

/// `Body` in `sampled.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Body {
    tiling: Tiling,
    depth_sizes: [u32; 2],
    column_sizes: [u32; 2],
    left_group: u32,
    left_row: u32,
    left_units: [u32; 3],
    right_group: u32,
    depth_units: [u32; 3],
    column_units: [u32; 3],
    start: [u32; 2],
    image: [u32; 2],
}

/// `Put` in `sampled_workgroup.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Put {
    jump: [u32; 3],
    group: u32,
    offset: u32,
    row: u32,
    units: [u32; 3],
}

/// `Body` in `scatter.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct ScatterBody {
    rows: u32,
    columns: u32,
    slices: u32,
    sums_rows: u32,
    sums_columns: u32,
    column_sizes: [u32; 2],
    put_group: u32,
    put_offset: u32,
    put_row: u32,
    put_units: [u32; 3],
}

/// Multiplies what is looked up in `left` and `right`, and puts the result where it belongs.
fn multiply<'a>(
    call: &Call<'a>,
    lookup: &Lookup,
    left: &View<'a>,
    right: &View<'a>,
    bias: Option<View<'a>>,
) -> Result<()> {
    let sizes = lookup.sizes;
    if sizes.batch * sizes.rows * sizes.columns == 0 {
        return Ok(());
    }
    let plan = Plan::new(call.is_software(), &sizes, call.op)?;
    let y = &call.outputs[0];
    if !call.is_software() && plan.slices == 1 {
        let launch = biased(launch(call, &plan, lookup, left, right)?, bias.as_ref())?;
        return launch.define("SLICED", false).bind("y", y)?.groups(plan.tiles);
    }
    // The block goes back to the heap when this returns; what uses it next comes later in the same queue.
    let block = call.run.heap.take(4 * plan.put_elements())?;
    let layout = Layout::contiguous(Shape::new(&[plan.put_elements()])?);
    let sums = View { memory: block.memory(), layout: &layout, dtype: DType::F32 };
    let launch = launch(call, &plan, lookup, left, right)?;
    match plan.tile {
        Tile::Registers { .. } => launch.bind_fours("y", &sums)?.threads(plan.tiles)?,
        Tile::Workgroup { .. } => {
            launch.define("SLICED", true).define("BIASED", "value").bind("y", &sums)?.groups(plan.tiles)?;
        }
    }
    let body = ScatterBody {
        rows: plan.tiling.rows,
        columns: plan.tiling.columns,
        slices: plan.slices as u32,
        sums_rows: plan.tiling.put_rows,
        sums_columns: plan.tiling.put_columns,
        column_sizes: lookup.column_sizes.map(|size| size as u32),
        put_group: lookup.put_group as u32,
        put_offset: lookup.put_offset as u32,
        put_row: lookup.put_row as u32,
        put_units: lookup.put_units.map(|unit| unit as u32),
    };
    let scatter = biased(call.launch(&SCATTER).bind("sums", &sums)?, bias.as_ref())?;
    scatter.bind("y", y)?.body(&body).threads((sizes.batch * sizes.rows * sizes.columns) as u64)
}

fn launch<'a>(call: &Call<'a>, plan: &Plan, lookup: &Lookup, left: &View<'a>, right: &View<'a>) -> Result<Launch<'a>> {
    let body = Body {
        tiling: plan.tiling,
        depth_sizes: lookup.depth_sizes.map(|size| size as u32),
        column_sizes: lookup.column_sizes.map(|size| size as u32),
        left_group: lookup.left_group as u32,
        left_row: lookup.left_row as u32,
        left_units: lookup.left_units.map(|unit| unit as u32),
        right_group: lookup.right_group as u32,
        depth_units: lookup.depth_units,
        column_units: lookup.column_units,
        start: lookup.start,
        image: lookup.image.map(|size| size as u32),
    };
    let launch = planned(call, plan, &REGISTERS, &WORKGROUP).body(&body).flops(lookup.sizes.flops());
    let launch = match plan.tile {
        Tile::Registers { .. } => launch.define("PUT", ""),
        Tile::Workgroup { side } => launch
            .define("LEFT_DEPTH_FIRST", lookup.depth_first)
            .define("RIGHT_DEPTH_FIRST", lookup.depth_first)
            .define("PUT", "put: Put,")
            .body(&put(lookup, side)),
    };
    launch.bind("left", left)?.starting_at(lookup.left_offset).bind("right", right)
}

/// Where groups of threads put the result themselves.
fn put(lookup: &Lookup, side: u32) -> Put {
    let jump = 1024 / side as usize - 4;
    let [rows, columns] = lookup.depth_sizes;
    Put {
        jump: [jump / columns / rows, jump / columns % rows, jump % columns].map(|digit| digit as u32),
        group: lookup.put_group as u32,
        offset: lookup.put_offset as u32,
        row: lookup.put_row as u32,
        units: lookup.put_units.map(|unit| unit as u32),
    }
}

/// Where `value` of a `channel` becomes a result.
fn biased<'a>(launch: Launch<'a>, bias: Option<&View<'a>>) -> Result<Launch<'a>> {
    match bias {
        Some(bias) => launch.define("BIASED", "value + bias_at(channel)").bind("bias", bias),
        None => Ok(launch.define("BIASED", "value")),
    }
}
