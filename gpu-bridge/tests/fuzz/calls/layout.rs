//! The same elements elsewhere, and tensors from nothing.

use weft_gpu::op::{
    Concat, Copy, Dropout, Expand, Fill, GatherRows, Iota, Normal, OneHot, Pad, Permute, Resampling, Reshape, Resize,
    ResizeGradient, ScatterAddRows, Slice, Stream, TopK, TopKGradient, Uniform,
};
use weft_gpu::{DType, MAX_RANK, Shape};

use super::{Call, Generate, Make, call};

/// The axes in any order.
pub fn order(make: &mut Make<'_, '_>, rank: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rank).collect();
    for axis in (1..rank).rev() {
        order.swap(axis, make.bytes.below(axis + 1));
    }
    order
}

/// Attributes per axis, one of which may be anything.
fn sizes(make: &mut Make<'_, '_>, usual: impl IntoIterator<Item = usize>) -> Option<Shape> {
    let mut sizes: Vec<usize> = usual.into_iter().collect();
    if !sizes.is_empty() && make.bytes.once_in(24) {
        let axis = make.bytes.below(sizes.len());
        sizes[axis] = make.bytes.size(sizes[axis] + 1);
    }
    if make.bytes.once_in(64) {
        sizes.pop();
    }
    Shape::new(&sizes).ok()
}

impl Generate for Reshape {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let shape = make.shape(0, MAX_RANK);
        let mut to = shape.clone();
        match make.bytes.below(4) {
            0 => to = vec![shape.iter().product()],
            1 if shape.len() > 1 => {
                let last = to.pop()?;
                *to.last_mut()? *= last;
            }
            2 if shape.len() < MAX_RANK => to.insert(make.bytes.below(shape.len() + 1), 1),
            _ => to.reverse(),
        }
        call(Self(sizes(make, to)?), [make.of(&shape, DType::F32)?])
    }
}

impl Generate for Permute {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let (shape, dtype) = (make.shape(0, MAX_RANK), make.any_type());
        let mut order = order(make, shape.len());
        if !order.is_empty() && make.bytes.once_in(32) {
            let axis = make.bytes.below(order.len());
            order[axis] = make.bytes.size(0);
        }
        call(Self::new(&order).ok()?, [make.of(&shape, dtype)?])
    }
}

impl Generate for Expand {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let (shape, dtype) = (make.shape(0, MAX_RANK), make.any_type());
        let from = make.narrower(&shape);
        call(Self(sizes(make, shape)?), [make.of(&from, dtype)?])
    }
}

impl Generate for Slice {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let (shape, dtype) = (make.shape(0, MAX_RANK), make.any_type());
        let mut axes = Vec::new();
        for &size in &shape {
            let start = make.bytes.below(size.min(200) + 1);
            let step = make.bytes.pick(&[1, 1, 2, 3]);
            axes.push((start, make.bytes.below((size - start).div_ceil(step) + 1), step));
        }
        let starts = sizes(make, axes.iter().map(|axis| axis.0))?;
        let steps = sizes(make, axes.iter().map(|axis| axis.2))?;
        call(Self { starts, sizes: sizes(make, axes.iter().map(|axis| axis.1))?, steps }, [make.of(&shape, dtype)?])
    }
}

impl Generate for Copy {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let (shape, dtype) = (make.shape(0, MAX_RANK), make.any_type());
        call(Self, [make.of(&shape, dtype)?])
    }
}

impl Generate for Pad {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let (shape, dtype) = (make.shape(0, MAX_RANK), make.any_type());
        let mut some = |most: usize| {
            let usual: Vec<usize> = shape.iter().map(|_| make.bytes.below(most)).collect();
            sizes(make, usual)
        };
        let (before, after, apart) = (some(3)?, some(3)?, some(2)?);
        let steps = sizes(make, apart.iter().map(|size| size + 1).collect::<Vec<_>>())?;
        call(Self { before, after, steps, value: make.bytes.float(-300.0, 300.0) }, [make.of(&shape, dtype)?])
    }
}

impl Generate for Concat {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let (shape, dtype) = (make.shape(1, MAX_RANK), make.any_type());
        let axis = make.bytes.below(shape.len());
        let count = if make.bytes.once_in(16) { 40 } else { make.bytes.within(1, 4) };
        let mut inputs = Vec::new();
        for _ in 0..count {
            let mut part = shape.clone();
            if make.bytes.flip() {
                part[axis] = make.side();
            }
            inputs.push(make.of(&part, dtype)?);
        }
        call(Self { axis: make.bytes.size(axis) }, inputs)
    }
}

impl Generate for GatherRows {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let (table, rows, dtype) = (make.shape(1, 4), make.shape(0, 3), make.index_type());
        let kind = make.any_type();
        call(Self, [make.of(&table, kind)?, make.index(&rows, table[0], dtype)?])
    }
}

impl Generate for ScatterAddRows {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let (mut rows, dtype) = (make.shape(0, 3), make.index_type());
        let usual = make.bytes.within(1, 40);
        let count = make.bytes.size(usual);
        let index = make.index(&rows, count, dtype)?;
        rows.extend(make.shape(0, 2));
        call(Self { count }, [make.f32(&rows)?, index])
    }
}

impl Generate for OneHot {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let (shape, dtype) = (make.shape(0, MAX_RANK), make.index_type());
        let usual = make.bytes.within(1, 20);
        let classes = make.bytes.size(usual);
        call(Self { classes }, [make.index(&shape, classes, dtype)?])
    }
}

impl Generate for TopK {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let shape = make.shape(1, MAX_RANK);
        let usual = make.bytes.within(0, shape[shape.len() - 1].min(200));
        call(Self { count: make.bytes.size(usual) }, [make.f32(&shape)?])
    }
}

impl Generate for TopKGradient {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let shape = make.shape(1, MAX_RANK);
        let usual = make.bytes.within(1, 30);
        let size = make.bytes.size(usual);
        call(Self { size }, [make.f32(&shape)?, make.index(&shape, size, DType::U32)?])
    }
}

fn resampling(make: &mut Make<'_, '_>) -> (Resampling, usize, usize) {
    let (height, width) = (make.bytes.within(1, 20), make.bytes.within(1, 20));
    let mode = make.bytes.pick(&[Resampling::Nearest, Resampling::Bilinear]);
    (mode, make.bytes.size(height), make.bytes.size(width))
}

impl Generate for Resize {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let ((mode, height, width), shape) = (resampling(make), make.shape(4, 4));
        call(Self { mode, height, width }, [make.f32(&shape)?])
    }
}

impl Generate for ResizeGradient {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let ((mode, height, width), shape) = (resampling(make), make.shape(4, 4));
        call(Self { mode, height, width }, [make.f32(&shape)?])
    }
}

fn stream(make: &mut Make<'_, '_>) -> Stream {
    let offset = if make.bytes.once_in(8) { u64::MAX } else { make.seed() };
    Stream { seed: make.seed(), offset }
}

impl Generate for Fill {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let (shape, dtype) = (make.shape(0, MAX_RANK), make.any_type());
        let value = f64::from(make.bytes.float(-300.0, 300.0));
        call(Self { shape: sizes(make, shape)?, dtype, value }, [])
    }
}

impl Generate for Iota {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let (side, dtype) = (make.side(), make.any_type());
        let start = make.bytes.pick(&[0, 0, 3, -3, i32::MIN, i32::MAX]);
        let step = make.bytes.pick(&[1, 1, 2, 0, -1, i32::MIN, i32::MAX]);
        call(Self { count: make.bytes.size(side), dtype, start, step }, [])
    }
}

impl Generate for Uniform {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let (shape, stream) = (make.shape(0, MAX_RANK), stream(make));
        let (low, high) = (make.bytes.float(-2.0, 0.0), make.bytes.float(0.1, 2.0));
        call(Self { shape: sizes(make, shape)?, low, high, stream }, [])
    }
}

impl Generate for Normal {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let (shape, stream) = (make.shape(0, MAX_RANK), stream(make));
        let (mean, deviation) = (make.bytes.float(-2.0, 2.0), make.bytes.float(0.0, 2.0));
        call(Self { shape: sizes(make, shape)?, mean, deviation, stream }, [])
    }
}

impl Generate for Dropout {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let (shape, stream) = (make.shape(0, MAX_RANK), stream(make));
        call(Self { rate: make.bytes.float(0.0, 1.0), stream }, [make.f32(&shape)?])
    }
}
