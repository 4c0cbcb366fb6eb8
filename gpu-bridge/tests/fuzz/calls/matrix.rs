//! Products of matrices.

use weft_gpu::MAX_RANK;
use weft_gpu::op::{Linear, MatMul};

use super::elementwise::unary;
use super::{Call, Generate, Make, call};

impl Generate for MatMul {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let a = make.shape(2, MAX_RANK);
        let mut b = make.narrower(&a[..a.len() - 2]);
        b.extend([a[a.len() - 1], make.side()]);
        call(Self { scale: make.bytes.float(-2.0, 2.0) }, [make.f32(&a)?, make.f32(&b)?])
    }
}

impl Generate for Linear {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let x = make.shape(1, MAX_RANK);
        let out = make.side();
        let mut inputs = vec![make.f32(&x)?, make.f32(&[out, x[x.len() - 1]])?];
        if make.bytes.flip() {
            inputs.push(make.f32(&[out])?);
        }
        let activation = make.bytes.flip().then(|| unary(make));
        call(Self { activation }, inputs)
    }
}
