//! Products of matrices.
//!
//! Two kernels, `registers.wgsl` for software adapters and `workgroup.wgsl` for others, multiply whatever gives them parts
//! of two factors: matrices here, images in [`super::convolution`].

use super::Call;
use crate::device::View;
use crate::device::gpu::launch::Launch;
use crate::device::gpu::pipeline::Kernel;
use crate::dtype::DType;
use crate::error::Result;
use crate::op::{Linear, MatMul, Op};
use crate::shape::{Layout, Shape};

pub(super) mod finish;
pub(super) mod naive;
pub(super) mod tiling;

use finish::Finish;
use tiling::{Plan, Sizes, Tile};

pub(super) fn run(call: Call<'_>, op: &Op) -> Result<()> {
    match op {
        Op::MatMul(op) => matmul(call, op),
        Op::Linear(op) => linear(call, op),
        _ => super::misplaced(op),
    }
}

static REGISTERS: Kernel = Kernel {
    name: "matmul-registers",
    sources: &[
        include_str!("matrix/block.wgsl"),
        include_str!("matrix/registers.wgsl"),
        include_str!("matrix/dense.wgsl"),
        include_str!("matrix/dense_registers.wgsl"),
    ],
};
static WORKGROUP: Kernel = Kernel {
    name: "matmul-workgroup",
    sources: &[
        include_str!("matrix/block.wgsl"),
        include_str!("matrix/workgroup.wgsl"),
        include_str!("matrix/dense.wgsl"),
        include_str!("matrix/dense_workgroup.wgsl"),
        include_str!("matrix/finish.wgsl"),
    ],
};

/// What follows the batch's axes in `Body` of `dense.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Body {
    left_strides: [u32; 2],
    right_strides: [u32; 2],
    scale: f32,
    a: f32,
    b: f32,
}

/// Two factors and what becomes of their product.
struct Product<'a> {
    sizes: Sizes,
    /// Of the batch's axes, the last ones first.
    batch_sizes: [u32; 6],
    left: Factor<'a>,
    right: Factor<'a>,
    finish: Finish<'a>,
}

/// One factor: where its elements lie.
struct Factor<'a> {
    view: View<'a>,
    /// From row to row and from column to column.
    strides: [usize; 2],
    batch: [usize; 6],
}

fn matmul(call: Call<'_>, op: &MatMul) -> Result<()> {
    let shape = call.outputs[0].layout.shape;
    let mut batch_sizes = [1; 6];
    for (size, &axis) in batch_sizes.iter_mut().zip(shape.iter().rev().skip(2)) {
        *size = axis as u32;
    }
    let product = Product {
        sizes: Sizes {
            batch: shape.iter().rev().skip(2).product(),
            rows: shape.from_end(1),
            columns: shape.from_end(0),
            depth: call.inputs[0].layout.shape.from_end(0),
        },
        batch_sizes,
        left: Factor::new(call.inputs[0], &shape),
        right: Factor::new(call.inputs[1], &shape),
        finish: Finish { scale: op.scale, ..Finish::NOTHING },
    };
    product.run(&call)
}

fn linear(call: Call<'_>, op: &Linear) -> Result<()> {
    let (x, weight) = (call.inputs[0], call.inputs[1]);
    let (columns, depth) = (weight.layout.shape[0], weight.layout.shape[1]);
    let rows = call.outputs[0].layout.shape.elements() / columns.max(1);
    let product = Product {
        sizes: Sizes { batch: 1, rows, columns, depth },
        batch_sizes: [1; 6],
        left: Factor { view: x, strides: [depth, 1], batch: [0; 6] },
        right: Factor { view: weight, strides: [1, depth], batch: [0; 6] },
        finish: Finish {
            scale: 1.0,
            bias: call.inputs.get(2).copied(),
            activation: op.activation,
            before: call.outputs.get(1).copied(),
        },
    };
    product.run(&call)
}

impl<'a> Product<'a> {
    fn run(&self, call: &Call<'a>) -> Result<()> {
        if self.sizes.batch * self.sizes.rows * self.sizes.columns == 0 {
            return Ok(());
        }
        let mut plan = Plan::new(call.is_software(), &self.sizes, call.op)?;
        let y = &call.outputs[0];
        let direct = plan.slices == 1
            && (!call.is_software()
                || self.finish.is_scale() && self.sizes.columns.is_multiple_of(4) && y.layout.offset.is_multiple_of(4));
        if direct {
            plan.put_exactly();
            return self.launch(call, &plan, y, false);
        }
        let block = call.run.heap.take(4 * plan.put_elements())?;
        let layout = Layout::contiguous(Shape::new(&[plan.put_elements()])?);
        let parts = View { memory: block.memory(), layout: &layout, dtype: DType::F32 };
        // The block goes back to the heap when this returns; what uses it next comes later in the same queue.
        self.launch(call, &plan, &parts, true)?;
        self.finish.combine(call, &parts, &plan)
    }

    /// Multiplies into `y`; with `parts`, the sums of slices go there, as they are.
    fn launch<'b>(&self, call: &Call<'b>, plan: &Plan, y: &View<'b>, parts: bool) -> Result<()>
    where
        'a: 'b,
    {
        let (left, right) = (self.left.by(1, &self.sizes), self.right.by(0, &self.sizes));
        let finish: Finish<'b> = if parts { Finish::NOTHING } else { self.finish };
        let (a, b) = finish.attributes();
        let body = Body {
            left_strides: self.left.strides.map(|stride| stride as u32),
            right_strides: self.right.strides.map(|stride| stride as u32),
            scale: finish.scale,
            a,
            b,
        };
        let launch = self.batched(planned(call, plan, &REGISTERS, &WORKGROUP).body(&plan.tiling));
        let launch = launch.body(&body).flops(self.sizes.flops());
        if let Tile::Registers { .. } = plan.tile {
            let launch = launch.bind("left", &self.left.view)?.bind("right", &self.right.view)?;
            return launch.bind_fours("y", y)?.threads(plan.tiles);
        }
        let launch = launch
            .define("LEFT_DEPTH_FIRST", left.depth_first)
            .define("RIGHT_DEPTH_FIRST", right.depth_first)
            .define("LEFT_FOUR", if left.fours { LEFT_FOURS } else { LEFT_SINGLES })
            .define("RIGHT_FOUR", if right.fours { RIGHT_FOURS } else { RIGHT_SINGLES })
            .define("SLICED", parts);
        let launch = bind("left", &self.left.view, left.fours, launch)?;
        let launch = finish.define(bind("right", &self.right.view, right.fours, launch)?)?;
        let fours = self.sizes.columns.is_multiple_of(4)
            && [Some(y), finish.before.as_ref()].into_iter().flatten().all(|view| view.layout.offset.is_multiple_of(4));
        let launch = bind("y", y, fours, launch)?.define("PUT", if fours { PUT_FOURS } else { PUT_SINGLES });
        let launch = match &finish.before {
            Some(before) => bind("before", before, fours, launch)?
                .define("PUT_BEFORE", if fours { PUT_BEFORE_FOURS } else { PUT_BEFORE_SINGLES }),
            None => launch.define("PUT_BEFORE", ""),
        };
        launch.groups(plan.tiles)
    }

    /// The batch's axes, as many as there are: parameters should be few.
    fn batched<'b>(&self, launch: Launch<'b>) -> Launch<'b> {
        let axes = self.batch_sizes.iter().rposition(|&size| size != 1).map_or(1, |last| last + 1);
        let strides = |factor: &Factor<'_>| factor.batch.map(|stride| stride as u32);
        launch
            .define("BATCH_AXES", axes as u32)
            .body_words(&self.batch_sizes[..axes])
            .body_words(&strides(&self.left)[..axes])
            .body_words(&strides(&self.right)[..axes])
    }
}

impl<'a> Factor<'a> {
    /// A factor of a result of this shape, over whose batch it is repeated.
    fn new(view: View<'a>, shape: &Shape) -> Self {
        let (own, strides) = (view.layout.shape, view.layout.strides());
        let from_end = |axis: usize| if own.from_end(axis) == 1 { 0 } else { strides[own.rank() - 1 - axis] };
        let mut batch = [0; 6];
        for axis in 2..shape.rank().min(own.rank()) {
            batch[axis - 2] = from_end(axis);
        }
        Self { view, strides: [from_end(1), from_end(0)], batch }
    }

    /// Whether the elements along this axis (0: down) can be read four at a time.
    fn in_fours(&self, axis: usize, size: usize) -> bool {
        let mut apart = self.batch.iter().chain([&self.strides[1 - axis], &self.view.layout.offset, &size]);
        self.strides[axis] == 1 && size > 0 && apart.all(|distance| distance.is_multiple_of(4))
    }

    /// How its blocks are read, where `depth_axis` is the one that is summed over.
    fn by(&self, depth_axis: usize, sizes: &Sizes) -> Reading {
        let sides = if depth_axis == 1 { [sizes.rows, sizes.depth] } else { [sizes.depth, sizes.columns] };
        let fours = [0, 1].map(|axis| self.in_fours(axis, sides[axis]));
        let closer = self.strides[depth_axis] <= self.strides[1 - depth_axis];
        Reading { depth_first: fours[depth_axis] || (!fours[1 - depth_axis] && closer), fours: fours[0] || fours[1] }
    }
}

/// How the blocks of a factor are read.
#[derive(Clone, Copy)]
struct Reading {
    /// Along the depth, or along the other axis.
    depth_first: bool,
    fours: bool,
}

/// The kernel for a plan's tiles, with what both kinds define.
pub(super) fn planned<'a>(
    call: &Call<'a>,
    plan: &Plan,
    registers: &'static Kernel,
    workgroup: &'static Kernel,
) -> Launch<'a> {
    match plan.tile {
        Tile::Registers { down, across } => {
            call.launch(registers).lanes(8).define("DOWN", down).define("ACROSS", across)
        }
        Tile::Workgroup { side } => call.launch(workgroup).lanes(64).define("SIDE", side),
    }
}

fn bind<'a>(name: &'static str, view: &View<'a>, fours: bool, launch: Launch<'a>) -> Result<Launch<'a>> {
    if fours { launch.bind_fours(name, view) } else { launch.bind(name, view) }
}

const LEFT_FOURS: &str = "left_at4((start + min(first, size - 4u)) / 4u)";
const RIGHT_FOURS: &str = "right_at4((start + min(first, size - 4u)) / 4u)";
const LEFT_SINGLES: &str = "vec4<f32>(left_at(start + min(first, size - 1u) * step), \
    left_at(start + min(first + 1u, size - 1u) * step), left_at(start + min(first + 2u, size - 1u) * step), \
    left_at(start + min(first + 3u, size - 1u) * step))";
const RIGHT_SINGLES: &str = "vec4<f32>(right_at(start + min(first, size - 1u) * step), \
    right_at(start + min(first + 1u, size - 1u) * step), right_at(start + min(first + 2u, size - 1u) * step), \
    right_at(start + min(first + 3u, size - 1u) * step))";
const PUT_FOURS: &str = "y_put4(first / 4u, values);";
const PUT_SINGLES: &str = "y_put(first, values.x); if (count > 1u) { y_put(first + 1u, values.y); }\n\
    if (count > 2u) { y_put(first + 2u, values.z); } if (count > 3u) { y_put(first + 3u, values.w); }";
const PUT_BEFORE_FOURS: &str = "before_put4(first / 4u, values);";
const PUT_BEFORE_SINGLES: &str = "before_put(first, values.x); if (count > 1u) { before_put(first + 1u, values.y); }\n\
    if (count > 2u) { before_put(first + 2u, values.z); } if (count > 3u) { before_put(first + 3u, values.w); }";
