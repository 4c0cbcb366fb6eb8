//! Many elements to one.

use weft_gpu::op::{ArgReduce, Extreme, Reduce, Reducer};
use weft_gpu::{Axes, MAX_RANK};

use super::{Call, Generate, Make, call};

impl Generate for Reduce {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let shape = make.shape(0, MAX_RANK);
        let reducer = match make.bytes.below(6) {
            0 => Reducer::Sum,
            1 => Reducer::Mean,
            2 => Reducer::Max,
            3 => Reducer::Min,
            4 => Reducer::SumSquares,
            _ => Reducer::Variance { correction: make.bytes.pick(&[0, 1, 2, u32::MAX]) },
        };
        let mut axes: Vec<usize> = (0..shape.len()).filter(|_| make.bytes.flip()).collect();
        if make.bytes.once_in(32) {
            axes.push(make.bytes.below(MAX_RANK + 2));
        }
        call(Self { reducer, axes: Axes::new(&axes).ok()?, keep: make.bytes.flip() }, [make.f32(&shape)?])
    }
}

impl Generate for ArgReduce {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let shape = make.shape(1, MAX_RANK);
        let axis = make.bytes.below(shape.len());
        let extreme = make.bytes.pick(&[Extreme::Max, Extreme::Min]);
        call(Self { extreme, axis: make.bytes.size(axis), keep: make.bytes.flip() }, [make.f32(&shape)?])
    }
}
