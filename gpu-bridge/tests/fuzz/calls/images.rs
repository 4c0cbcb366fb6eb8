//! Convolutions and pooling of images.

use weft_gpu::Shape;
use weft_gpu::op::{
    AdaptiveAveragePool2d, AdaptiveAveragePool2dGradient, AdaptiveMaxPool2d, AdaptiveMaxPool2dGradient, AveragePool2d,
    AveragePool2dGradient, Conv2d, Conv2dGradientInput, Conv2dGradientWeight, MaxPool2d, MaxPool2dGradient, Op, Window,
};

use super::{Call, Generate, Make, Want, call};

/// A pair that is usually the same twice.
fn pair(make: &mut Make<'_, '_>, from: &[usize]) -> [usize; 2] {
    let first = make.bytes.pick(from);
    let second = if make.bytes.once_in(4) { make.bytes.pick(from) } else { first };
    [make.bytes.size(first), make.bytes.size(second)]
}

/// One with enough channels for the kernels that pay off then.
fn wide_convolution(make: &mut Make<'_, '_>) -> Option<(Conv2d, Want, Want)> {
    let channels = [make.bytes.within(14, 20), make.bytes.within(14, 20)];
    let x = [make.bytes.within(0, 2), channels[0], make.bytes.within(4, 12), make.bytes.within(4, 12)];
    let conv = Conv2d::padded(make.bytes.below(4));
    Some((conv, make.f32(&x)?, make.f32(&[channels[1], channels[0], 3, 3])?))
}

/// A convolution, an input and a weight for it.
fn convolution(make: &mut Make<'_, '_>) -> Option<(Conv2d, Want, Want)> {
    if make.bytes.once_in(4) {
        return wide_convolution(make);
    }
    let x = make.shape(4, 4);
    let channels = x[1];
    let groups = match make.bytes.below(8) {
        0 => channels,
        1 if channels.is_multiple_of(2) => 2,
        _ => 1,
    };
    let groups = make.bytes.size(groups);
    let kernel = [make.bytes.pick(&[3, 3, 1, 2, 5, 7]), make.bytes.pick(&[3, 3, 1, 2, 5])];
    let kernel = if make.bytes.flip() { [kernel[0]; 2] } else { kernel };
    let out = make.side().min(64).saturating_mul(if groups > 64 { 1 } else { groups });
    let conv = Conv2d {
        stride: pair(make, &[1, 1, 2, 3]),
        padding: pair(make, &[0, 1, 1, 2, 3]),
        dilation: pair(make, &[1, 1, 1, 2]),
        groups,
    };
    let weight = [out, channels / groups.max(1), make.bytes.size(kernel[0]), kernel[1]];
    Some((conv, make.f32(&x)?, make.f32(&weight)?))
}

impl Generate for Conv2d {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let (conv, x, weight) = convolution(make)?;
        let mut inputs = vec![x, weight];
        if make.bytes.flip() {
            let out = inputs[1].meta.shape[0];
            inputs.push(make.f32(&[out])?);
        }
        call(conv, inputs)
    }
}

impl Generate for Conv2dGradientInput {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let (conv, x, weight) = convolution(make)?;
        let dy = make.result(&conv.into(), &[&x, &weight], 4);
        call(Self { conv, input: x.meta.shape }, [make.f32(&dy)?, weight])
    }
}

impl Generate for Conv2dGradientWeight {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let (conv, x, weight) = convolution(make)?;
        let dy = make.result(&conv.into(), &[&x, &weight], 4);
        call(Self { conv, weight: weight.meta.shape }, [x, make.f32(&dy)?])
    }
}

fn window(make: &mut Make<'_, '_>) -> Window {
    let kernel = pair(make, &[2, 2, 3, 3, 1, 5]);
    let padding = if make.bytes.flip() { pair(make, &[0, 1]) } else { [kernel[0] / 2, kernel[1] / 2] };
    Window {
        kernel,
        stride: pair(make, &[1, 2, 2, 3]),
        padding,
        ceil: make.bytes.flip(),
        count_padding: make.bytes.flip(),
    }
}

/// Sizes of a result that does not depend on those of the input.
fn sides(make: &mut Make<'_, '_>) -> (usize, usize) {
    let (height, width) = (make.bytes.within(1, 12), make.bytes.within(1, 12));
    (make.bytes.size(height), make.bytes.size(width))
}

/// `x, dy` of an operation on one image.
fn image_and_gradient(make: &mut Make<'_, '_>, op: impl Into<Op>) -> Option<[Want; 2]> {
    let shape = make.shape(4, 4);
    let x = make.f32(&shape)?;
    let dy = make.result(&op.into(), &[&x], 4);
    Some([x, make.f32(&dy)?])
}

impl Generate for MaxPool2d {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let (window, shape) = (window(make), make.shape(4, 4));
        call(Self(window), [make.f32(&shape)?])
    }
}

impl Generate for MaxPool2dGradient {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let window = window(make);
        call(Self(window), image_and_gradient(make, MaxPool2d(window))?)
    }
}

impl Generate for AveragePool2d {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let (window, shape) = (window(make), make.shape(4, 4));
        call(Self(window), [make.f32(&shape)?])
    }
}

impl Generate for AveragePool2dGradient {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let window = window(make);
        let [x, dy] = image_and_gradient(make, AveragePool2d(window))?;
        call(Self { window, input: x.meta.shape }, [dy])
    }
}

impl Generate for AdaptiveAveragePool2d {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let ((height, width), shape) = (sides(make), make.shape(4, 4));
        call(Self { height, width }, [make.f32(&shape)?])
    }
}

impl Generate for AdaptiveAveragePool2dGradient {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let dy = make.shape(4, 4);
        let (height, width) = sides(make);
        let input = Shape::new(&[dy[0], dy[1], height, width]).ok()?;
        call(Self { input }, [make.f32(&dy)?])
    }
}

impl Generate for AdaptiveMaxPool2d {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let ((height, width), shape) = (sides(make), make.shape(4, 4));
        call(Self { height, width }, [make.f32(&shape)?])
    }
}

impl Generate for AdaptiveMaxPool2dGradient {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let (height, width) = sides(make);
        call(Self, image_and_gradient(make, AdaptiveMaxPool2d { height, width })?)
    }
}
