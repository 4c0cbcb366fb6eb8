//! Tensors from nothing. The head of `op/random.rs` defines every bit of them.

use super::Call;
use crate::device::View;
use crate::device::gpu::pipeline::Kernel;
use crate::dtype::DType;
use crate::error::Result;
use crate::op::{Dropout, Fill, Iota, Normal, Op, Stream, Uniform};

pub(super) fn run(call: Call<'_>, op: &Op) -> Result<()> {
    match op {
        Op::Fill(op) => fill(call, op),
        Op::Iota(op) => iota(call, op),
        Op::Uniform(op) => uniform(call, op),
        Op::Normal(op) => normal(call, op),
        Op::Dropout(op) => dropout(call, op),
        _ => super::misplaced(op),
    }
}

static FILL: Kernel = Kernel { name: "fill", sources: &[include_str!("random/fill.wgsl")] };
static FILL_FOURS: Kernel = Kernel { name: "fill-fours", sources: &[include_str!("random/fill_fours.wgsl")] };
static IOTA: Kernel = Kernel { name: "iota", sources: &[include_str!("random/iota.wgsl")] };

/// A kernel that makes blocks of random bits into numbers, four at a time where they lie so, and one by one.
struct Random {
    fours: Kernel,
    each: Kernel,
}

static UNIFORM: Random = Random {
    fours: Kernel {
        name: "uniform-fours",
        sources: &[
            include_str!("random/philox.wgsl"),
            include_str!("random/blocks.wgsl"),
            include_str!("random/store_fours.wgsl"),
            include_str!("random/uniform.wgsl"),
        ],
    },
    each: Kernel {
        name: "uniform",
        sources: &[
            include_str!("random/philox.wgsl"),
            include_str!("random/blocks.wgsl"),
            include_str!("random/store_each.wgsl"),
            include_str!("random/uniform.wgsl"),
        ],
    },
};

static NORMAL: Random = Random {
    fours: Kernel {
        name: "normal-fours",
        sources: &[
            include_str!("math.wgsl"),
            include_str!("random/philox.wgsl"),
            include_str!("random/blocks.wgsl"),
            include_str!("random/store_fours.wgsl"),
            include_str!("random/normal.wgsl"),
        ],
    },
    each: Kernel {
        name: "normal",
        sources: &[
            include_str!("math.wgsl"),
            include_str!("random/philox.wgsl"),
            include_str!("random/blocks.wgsl"),
            include_str!("random/store_each.wgsl"),
            include_str!("random/normal.wgsl"),
        ],
    },
};

static DROPOUT: Random = Random {
    fours: Kernel {
        name: "dropout-fours",
        sources: &[
            include_str!("random/philox.wgsl"),
            include_str!("random/blocks.wgsl"),
            include_str!("random/store_fours.wgsl"),
            include_str!("random/load_fours.wgsl"),
            include_str!("random/dropout.wgsl"),
        ],
    },
    each: Kernel {
        name: "dropout",
        sources: &[
            include_str!("random/philox.wgsl"),
            include_str!("random/blocks.wgsl"),
            include_str!("random/store_each.wgsl"),
            include_str!("random/load_each.wgsl"),
            include_str!("random/dropout.wgsl"),
        ],
    },
};

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct FillBody {
    bits: u32,
}

fn fill(call: Call<'_>, op: &Fill) -> Result<()> {
    let y = &call.outputs[0];
    let bits = match op.dtype {
        DType::F32 => (op.value as f32).to_bits(),
        DType::F16 => half::f16::from_f64(op.value).to_f32().to_bits(),
        DType::U8 => u32::from(op.value as u8),
        DType::I32 => op.value as i32 as u32,
        DType::U32 => op.value as u32,
    };
    let body = FillBody { bits };
    if op.dtype.size() == 4 && in_fours(y) {
        let threads = y.layout.shape.elements() as u64 / 4;
        return call.launch(&FILL_FOURS).bind_fours("y", y)?.body(&body).threads(threads);
    }
    call.launch(&FILL).define("TYPE", super::wgsl_type(op.dtype)).body(&body).map(y)
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct IotaBody {
    start: u32,
    step: u32,
}

fn iota(call: Call<'_>, op: &Iota) -> Result<()> {
    let function = match op.dtype {
        DType::F32 | DType::F16 => "f32(bitcast<i32>(bits))",
        DType::I32 => "bitcast<i32>(bits)",
        DType::U8 | DType::U32 => "bits",
    };
    call.launch(&IOTA)
        .define("TYPE", super::wgsl_type(op.dtype))
        .define("FUNCTION", function)
        .body(&IotaBody { start: op.start as u32, step: op.step as u32 })
        .map(&call.outputs[0])
}

/// What random kernels are told: the meaning of the numbers is each kernel's own.
#[repr(C)]
#[derive(Clone, Copy, Default, bytemuck::Pod, bytemuck::Zeroable)]
struct RandomBody {
    seed: [u32; 2],
    offset: [u32; 2],
    zero: u32,
    threshold: u32,
    elements: u32,
    numbers: [f32; 3],
}

impl RandomBody {
    fn new(stream: Stream, y: &View<'_>, numbers: [f32; 3]) -> Self {
        let halves = |wide: u64| [wide as u32, (wide >> 32) as u32];
        Self {
            seed: halves(stream.seed),
            offset: halves(stream.offset),
            elements: y.layout.shape.elements() as u32,
            numbers,
            ..Self::default()
        }
    }
}

fn uniform(call: Call<'_>, op: &Uniform) -> Result<()> {
    let y = &call.outputs[0];
    let numbers = [op.low, op.high - op.low, op.high.next_down()];
    random(call, &UNIFORM, None, &RandomBody::new(op.stream, y, numbers))
}

fn normal(call: Call<'_>, op: &Normal) -> Result<()> {
    let y = &call.outputs[0];
    random(call, &NORMAL, None, &RandomBody::new(op.stream, y, [op.mean, op.deviation, 0.0]))
}

fn dropout(call: Call<'_>, op: &Dropout) -> Result<()> {
    let y = &call.outputs[0];
    let body = RandomBody { threshold: op.threshold(), ..RandomBody::new(op.stream, y, [op.scale(), 0.0, 0.0]) };
    random(call, &DROPOUT, Some(&call.inputs[0]), &body)
}

/// A thread for every four elements.
fn random<'a>(call: Call<'a>, random: &'static Random, x: Option<&View<'a>>, body: &RandomBody) -> Result<()> {
    let y = &call.outputs[0];
    let fours = in_fours(y) && x.is_none_or(in_fours);
    let mut launch = call.launch(if fours { &random.fours } else { &random.each }).body(body);
    for (name, view) in x.map(|x| ("x", x)).into_iter().chain([("y", y)]) {
        launch = if fours { launch.bind_fours(name, view)? } else { launch.bind(name, view)? };
    }
    let elements = y.layout.shape.elements() as u64;
    launch
        .define("SQRT", if call.is_software() { "sqrt" } else { "sqrt_" })
        .flops(100 * elements)
        .threads(elements.div_ceil(4))
}

/// Whether all elements can be had four at a time. They lie in a row.
fn in_fours(view: &View<'_>) -> bool {
    view.layout.offset.is_multiple_of(4) && view.layout.shape.elements().is_multiple_of(4)
}
