//! What workers exchange in fewer bytes.

use weft_gpu::op::{AddAt, CastSaturating, Dequantize, Largest, Quantize, Significant, Stream};
use weft_gpu::{DType, MAX_RANK};

use super::{Call, Generate, Make, call};

impl Generate for CastSaturating {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let shape = make.shape(0, MAX_RANK);
        call(Self, [make.f32(&shape)?])
    }
}

/// Bits and bucket, mostly ones that can be.
fn width(make: &mut Make<'_, '_>) -> (u32, usize) {
    let bits = if make.bytes.once_in(16) { make.bytes.within(0, 40) } else { make.bytes.within(2, 8) };
    let usual = make.bytes.pick(&[32, 64, 96, 512, 1024]);
    (bits as u32, make.bytes.size(usual))
}

impl Generate for Quantize {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let (bits, bucket) = width(make);
        let stream = Stream { seed: make.seed(), offset: make.seed() };
        let shape = make.shape(0, MAX_RANK);
        call(Self { bits, bucket, stream }, [make.f32(&shape)?])
    }
}

impl Generate for Dequantize {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let (bits, bucket) = width(make);
        let usual = make.bytes.within(0, 3_000);
        let elements = make.bytes.size(usual);
        let scales = [usual.div_ceil(bucket.max(1))];
        let codes = [(usual * bits as usize).div_ceil(32)];
        call(Self { bits, bucket, elements }, [make.f32(&scales)?, make.of(&codes, DType::U32)?])
    }
}

impl Generate for Largest {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let shape = make.shape(0, MAX_RANK);
        let elements = shape.iter().try_fold(1_usize, |all, &size| all.checked_mul(size))?;
        let usual = make.bytes.within(0, elements.min(60_000));
        call(Self { count: make.bytes.size(usual) }, [make.f32(&shape)?])
    }
}

impl Generate for Significant {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let shape = make.shape(0, MAX_RANK);
        call(Self { threshold: make.bytes.float(0.01, 2.0) }, [make.f32(&shape)?, make.f32(&shape)?])
    }
}

impl Generate for AddAt {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let shape = make.shape(0, MAX_RANK);
        let elements = shape.iter().try_fold(1_usize, |all, &size| all.checked_mul(size))?;
        // Few are likely to rise.
        let count = [make.bytes.within(0, 3)];
        let indices = make.index(&count, elements, DType::U32)?;
        call(Self { scale: make.bytes.float(-2.0, 2.0) }, [make.f32(&shape)?, make.f32(&count)?, indices])
    }
}
