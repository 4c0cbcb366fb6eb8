//! The two steps of k-means.

use smallvec::smallvec;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::op::{Inputs, Meta, Outputs, Spec};
use crate::shape::Shape;

/// `points [n, d], centroids [k, d]`: for each point the nearest centroid (u32 `[n]`; of equally near ones the first) and
/// its squared distance (`[n]`). A centroid at a distance of NaN is nearest only if all are, and then it is the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KMeansAssign;

impl Spec for KMeansAssign {
    fn name(&self) -> &'static str {
        "k-means-assign"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [points, centroids] = inputs.exactly()?;
        inputs.all_f32()?;
        inputs.ranked(0, 2)?;
        inputs.ranked(1, 2)?;
        if points.shape[1] != centroids.shape[1] {
            return Err(Error::mismatch(inputs.op, "dimensions differ", &points.shape, &centroids.shape));
        }
        if centroids.shape[0] == 0 {
            return Err(Error::shape(inputs.op, format!("input 1 is {:?}: no centroids", centroids.shape)));
        }
        fits_u32(inputs.op, "centroids", centroids.shape[0])?;
        let count = Shape::new(&points.shape[..1])?;
        Ok(smallvec![Meta::new(count, DType::U32), Meta::f32(count)])
    }

    fn flops(&self, inputs: &[Meta], _: &[Meta]) -> u64 {
        let centroids = inputs.get(1).map_or(0, |centroids| centroids.shape.from_end(1) as u64);
        let coordinates = inputs.first().map_or(0, |points| points.shape.elements() as u64);
        coordinates.saturating_mul(centroids).saturating_mul(3)
    }
}

/// `points [n, d], assignment u32 [n]`: the sum (`[clusters, d]`) and the number (u32 `[clusters]`) of the points of each
/// cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KMeansAccumulate {
    pub clusters: usize,
}

impl Spec for KMeansAccumulate {
    fn name(&self) -> &'static str {
        "k-means-accumulate"
    }

    fn infer(&self, inputs: Inputs<'_>) -> Result<Outputs> {
        let [points, _] = inputs.exactly()?;
        inputs.typed(0, DType::F32)?;
        inputs.ranked(0, 2)?;
        inputs.typed(1, DType::U32)?;
        inputs.shaped(1, &points.shape[..1])?;
        if self.clusters == 0 {
            return Err(Error::argument(inputs.op, "there must be at least one cluster"));
        }
        fits_u32(inputs.op, "points", points.shape[0])?;
        let sums = Shape::new(&[self.clusters, points.shape[1]])?;
        // The kernel counts and sums side by side.
        Shape::new(&[self.clusters, points.shape[1] + 1])?;
        Ok(smallvec![Meta::f32(sums), Meta::new(Shape::new(&[self.clusters])?, DType::U32)])
    }

    fn flops(&self, inputs: &[Meta], _: &[Meta]) -> u64 {
        inputs.first().map_or(0, |points| points.shape.elements() as u64)
    }
}

/// Refuses what u32 cannot count.
fn fits_u32(op: &'static str, what: &str, count: usize) -> Result<()> {
    if u32::try_from(count).is_err() {
        return Err(Error::argument(op, format!("{count} {what}, the most is {}", u32::MAX)));
    }
    Ok(())
}
