//! Windows to one element: maxima and means of images, and their gradients.
//!
//! Gradients are gathered: an element looks which windows cover it. For a maximum, where each window's largest lies is
//! written down first. The kernels are the same for windows at a stride and for windows that share an image evenly; what
//! differs is which part of an axis a window covers.

use super::Call;
use super::layout::Scratch;
use crate::device::View;
use crate::device::gpu::pipeline::{Kernel, LANES};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::op::{Op, Window};

pub(super) fn run(call: Call<'_>, op: &Op) -> Result<()> {
    match op {
        Op::MaxPool2d(op) => pool(call, Some(&op.0), &STRIDED.max),
        Op::MaxPool2dGradient(op) => max_gradient(call, Some(&op.0)),
        Op::AveragePool2d(op) => pool(call, Some(&op.0), &STRIDED.average),
        Op::AveragePool2dGradient(op) => average_gradient(call, Some(&op.window)),
        Op::AdaptiveAveragePool2d(_) => pool(call, None, &ADAPTIVE.average),
        Op::AdaptiveAveragePool2dGradient(_) => average_gradient(call, None),
        Op::AdaptiveMaxPool2d(_) => pool(call, None, &ADAPTIVE.max),
        Op::AdaptiveMaxPool2dGradient(_) => max_gradient(call, None),
        _ => super::misplaced(op),
    }
}

/// The kernels for one kind of windows.
struct Kernels {
    max: Kernel,
    average: Kernel,
    largest: Kernel,
    max_gradient: Kernel,
    average_gradient: Kernel,
}

const MAX: &str = include_str!("pooling/max.wgsl");
const AVERAGE: &str = include_str!("pooling/average.wgsl");
const LARGEST: &str = include_str!("pooling/largest.wgsl");
const MAX_GRADIENT: &str = include_str!("pooling/max_gradient.wgsl");
const AVERAGE_GRADIENT: &str = include_str!("pooling/average_gradient.wgsl");

const AT_A_STRIDE: &str = include_str!("pooling/strided.wgsl");
const WIDE: &str = include_str!("layout/wide.wgsl");
const EVENLY: &str = include_str!("pooling/adaptive.wgsl");

static STRIDED: Kernels = Kernels {
    max: Kernel { name: "max-pool", sources: &[AT_A_STRIDE, MAX] },
    average: Kernel { name: "average-pool", sources: &[AT_A_STRIDE, AVERAGE] },
    largest: Kernel { name: "max-pool-largest", sources: &[AT_A_STRIDE, LARGEST] },
    max_gradient: Kernel { name: "max-pool-gradient", sources: &[AT_A_STRIDE, MAX_GRADIENT] },
    average_gradient: Kernel { name: "average-pool-gradient", sources: &[AT_A_STRIDE, AVERAGE_GRADIENT] },
};

static ADAPTIVE: Kernels = Kernels {
    max: Kernel { name: "adaptive-max-pool", sources: &[WIDE, EVENLY, MAX] },
    average: Kernel { name: "adaptive-average-pool", sources: &[WIDE, EVENLY, AVERAGE] },
    largest: Kernel { name: "adaptive-max-pool-largest", sources: &[WIDE, EVENLY, LARGEST] },
    max_gradient: Kernel { name: "adaptive-max-pool-gradient", sources: &[WIDE, EVENLY, MAX_GRADIENT] },
    average_gradient: Kernel { name: "adaptive-average-pool-gradient", sources: &[WIDE, EVENLY, AVERAGE_GRADIENT] },
};

static AVERAGE_WHOLE: Kernel =
    Kernel { name: "average-pool-whole", sources: &[include_str!("pooling/average_whole.wgsl")] };

/// What a thread goes through.
const IN_A_WINDOW: &str = "elements of a window";
const OF_AN_ELEMENT: &str = "windows of an element";

/// From this many elements on, a group of threads averages a plane together.
const WHOLE: usize = 256;

/// Everything by axis: vertical, horizontal.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Body {
    sizes: [u32; 2],
    pooled: [u32; 2],
    kernel: [u32; 2],
    stride: [u32; 2],
    padding: [u32; 2],
    count_padding: u32,
}

impl Body {
    fn new(call: &Call<'_>, window: Option<&Window>, image: &View<'_>, pooled: &View<'_>) -> Result<Self> {
        let axes = |view: &View<'_>| [view.layout.shape[2] as u32, view.layout.shape[3] as u32];
        let mut body = Self {
            sizes: axes(image),
            pooled: axes(pooled),
            kernel: [0; 2],
            stride: [0; 2],
            padding: [0; 2],
            count_padding: 0,
        };
        let Some(window) = window else { return Ok(body) };
        body.count_padding = u32::from(window.count_padding);
        for axis in 0..2 {
            let (kernel, padding) = (window.kernel[axis], window.padding[axis]);
            let padded = image.layout.shape[2 + axis] + 2 * padding;
            if u32::try_from(padded).is_err() {
                return Err(Error::TooLarge { reason: format!("`{}`: an axis of {padded} with its padding", call.op) });
            }
            // Nothing of a window lies past the padding.
            body.kernel[axis] = kernel.min(padded) as u32;
            body.stride[axis] = window.stride[axis] as u32;
            body.padding[axis] = padding as u32;
        }
        Ok(body)
    }

    /// How many elements a window has, at most, and one more for each of its rows.
    fn area(&self) -> u64 {
        let along = |axis: usize| match self.kernel[axis] {
            0 => self.sizes[axis].div_ceil(self.pooled[axis]) + 1,
            kernel => kernel.min(self.sizes[axis]),
        };
        u64::from(along(0)) * (u64::from(along(1)) + 1)
    }

    /// How many windows an element is in, at most, and one more for each row of them.
    fn windows(&self) -> u64 {
        let along = |axis: usize| match self.kernel[axis] {
            0 => self.pooled[axis].div_ceil(self.sizes[axis].max(1)) + 1,
            kernel => kernel.div_ceil(self.stride[axis].max(1)).min(self.pooled[axis]),
        };
        u64::from(along(0)) * (u64::from(along(1)) + 1)
    }
}

fn pool(call: Call<'_>, window: Option<&Window>, kernel: &'static Kernel) -> Result<()> {
    let (x, y) = (&call.inputs[0], &call.outputs[0]);
    let body = Body::new(&call, window, x, y)?;
    let elements = y.layout.shape.elements() as u64;
    let area = x.layout.shape[2] * x.layout.shape[3];
    let averages = std::ptr::eq(kernel, &raw const ADAPTIVE.average);
    if averages && body.pooled == [1, 1] && area >= WHOLE && !call.is_software() {
        let launch = call.launch(&AVERAGE_WHOLE).bind("x", x)?.bind("y", y)?;
        let launch = launch.looping(area.div_ceil(LANES as usize) as u64, IN_A_WINDOW)?;
        return launch.body(&(area as u32)).groups(elements);
    }
    let work = (2 * elements).saturating_mul(body.area());
    call.launch(kernel).bind("x", x)?.body(&body).flops(work).looping(body.area(), IN_A_WINDOW)?.map(y)
}

fn max_gradient(call: Call<'_>, window: Option<&Window>) -> Result<()> {
    let (x, dy, dx) = (&call.inputs[0], &call.inputs[1], &call.outputs[0]);
    let kernels = if window.is_some() { &STRIDED } else { &ADAPTIVE };
    let body = Body::new(&call, window, x, dy)?;
    let windows = dy.layout.shape.elements();
    let work = (2 * windows as u64).saturating_mul(body.area());
    let largest = Scratch::take(&call, windows, DType::U32)?;
    let launch = call.launch(&kernels.largest).bind("x", x)?.body(&body).flops(work);
    launch.looping(body.area(), IN_A_WINDOW)?.map(&largest.view())?;
    let launch = call.launch(&kernels.max_gradient).bind("dy", dy)?.bind("largest", &largest.view())?.body(&body);
    launch.flops(work).looping(body.windows(), OF_AN_ELEMENT)?.map(dx)
}

fn average_gradient(call: Call<'_>, window: Option<&Window>) -> Result<()> {
    let (dy, dx) = (&call.inputs[0], &call.outputs[0]);
    let kernels = if window.is_some() { &STRIDED } else { &ADAPTIVE };
    let body = Body::new(&call, window, dx, dy)?;
    let work = (2 * dy.layout.shape.elements() as u64).saturating_mul(body.area());
    let launch = call.launch(&kernels.average_gradient).bind("dy", dy)?.body(&body).flops(work);
    launch.looping(body.windows(), OF_AN_ELEMENT)?.map(dx)
}
