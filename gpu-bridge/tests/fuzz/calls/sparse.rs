//! Sparse rows, whose offsets and columns may be anything, and k-means.

use weft_gpu::DType;
use weft_gpu::op::{CsrMatMul, CsrTransposedMatMul, CsrValuesGradient, KMeansAccumulate, KMeansAssign};

use super::{Call, Generate, Make, Want, call};
use crate::contents::Contents;

/// A sparse matrix.
struct Sparse {
    offsets: Want,
    columns: Want,
    values: Want,
    rows: usize,
    /// How many columns it has.
    width: usize,
}

fn sparse(make: &mut Make<'_, '_>) -> Option<Sparse> {
    let (rows, stored, width) = (make.side(), make.bytes.below(300), make.side().max(1));
    let stored = if rows == 0 { 0 } else { stored };
    let mut offsets = make.of(&[rows + 1], DType::U32)?;
    if let Contents::Noise(seed) = offsets.contents {
        offsets.contents = Contents::Rising(stored, seed);
    }
    let (columns, values) = (make.index(&[stored], width, DType::U32)?, make.f32(&[stored])?);
    Some(Sparse { offsets, columns, values, rows, width })
}

/// A vector or a matrix of so many rows.
fn dense(make: &mut Make<'_, '_>, rows: usize, wide: Option<usize>) -> Option<Want> {
    match wide {
        Some(wide) => make.f32(&[rows, wide]),
        None => make.f32(&[rows]),
    }
}

impl Generate for CsrMatMul {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let sparse = sparse(make)?;
        let wide = make.bytes.flip().then(|| make.side());
        let x = dense(make, sparse.width, wide)?;
        call(Self, [sparse.offsets, sparse.columns, sparse.values, x])
    }
}

impl Generate for CsrTransposedMatMul {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let sparse = sparse(make)?;
        let wide = make.bytes.flip().then(|| make.side());
        let r = dense(make, sparse.rows, wide)?;
        let columns = make.bytes.size(sparse.width);
        call(Self { columns }, [sparse.offsets, sparse.columns, sparse.values, r])
    }
}

impl Generate for CsrValuesGradient {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let sparse = sparse(make)?;
        let wide = make.bytes.flip().then(|| make.side());
        let (x, dy) = (dense(make, sparse.width, wide)?, dense(make, sparse.rows, wide)?);
        call(Self, [sparse.offsets, sparse.columns, x, dy])
    }
}

impl Generate for KMeansAssign {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let points = make.shape(2, 2);
        let centroids = make.side();
        call(Self, [make.f32(&points)?, make.f32(&[centroids, points[1]])?])
    }
}

impl Generate for KMeansAccumulate {
    fn generate(make: &mut Make<'_, '_>) -> Option<Call> {
        let points = make.shape(2, 2);
        let usual = make.side().max(1);
        let clusters = make.bytes.size(usual);
        call(Self { clusters }, [make.f32(&points)?, make.index(&points[..1], clusters, DType::U32)?])
    }
}
