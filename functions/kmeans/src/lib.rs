//! K-means: `clusters` centroids, each the mean of the rows that are nearest to it, of dense rows, images or sparse ones.
//!
//! Expectation maximization: a step only counts, per cluster, how many rows are nearest and what they sum up to; once all
//! workers' counts are summed, `update` moves the centroids. The loss is the mean square distance to the nearest
//! centroid, which no update makes larger. `clusters * features` numbers; there is no gradient and no optimizer.
//!
//! Centroids start at random around zero, so rows should be centred, and `spread` about their deviation. A centroid that
//! no row is nearest to stays where it is.

use weft_sdk::data::{self, Csr, Features};
use weft_sdk::model::Initial;
use weft_sdk::nn::Mode;
use weft_sdk::tensor::{Reducer, TensorType};
use weft_sdk::{HyperParameters, Metric, Path, Report, Result, Tensor, Trainer};

#[derive(HyperParameters)]
struct Parameters {
    /// How many numbers a sample has.
    #[hyper(default = 28, low = 1)]
    features: u32,
    /// How many clusters there are.
    #[hyper(default = 10, low = 1)]
    clusters: u32,
    /// How far from zero the centroids start, as a deviation.
    #[hyper(default = 1.0, low = 0.0, high = 1e6)]
    spread: f32,
}

struct KMeans {
    centroids: Tensor,
    /// Of the rows that are nearest to each centroid, so far.
    sums: Tensor,
    counts: Tensor,
    clusters: u32,
}

/// Of some rows: the nearest centroid of each, and the square of how far it is.
struct Nearest {
    index: Tensor,
    distance: Tensor,
}

/// K-means clusters of rows, dense or sparse, or of images.
#[weft_sdk::trainer]
impl Trainer for KMeans {
    type Parameters = Parameters;

    fn init(parameters: Parameters, path: &Path) -> Result<Self> {
        let Parameters { features, clusters, spread } = parameters;
        Ok(Self {
            centroids: path.buffer("centroids", &[clusters, features], Initial::deviating(spread))?,
            sums: path.statistic("sums", &[clusters, features])?,
            counts: path.statistic("counts", &[clusters, 1])?,
            clusters,
        })
    }

    /// The number of each row's cluster.
    fn forward(&self, x: &Tensor, _: Mode) -> Result<Tensor> {
        Ok(self.nearest(&as_rows(Features::Dense(x.clone()))?)?.index)
    }

    fn output(&self, _: Mode) -> Result<Tensor> {
        Ok(self.nearest(&rows()?)?.index)
    }

    fn step(&self) -> Result<Report> {
        let rows = rows()?;
        let Nearest { index, distance } = self.nearest(&rows)?;
        let (sums, counts) = match &rows {
            Features::Dense(rows) => {
                let (sums, counts) = rows.sum_clusters(&index, self.clusters)?;
                (sums, counts.cast(TensorType::F32)?)
            }
            Features::Sparse(rows) => {
                let members = index.one_hot(self.clusters)?;
                (rows.transposed_matmul(&members)?.transpose()?, members.sum_axis(0)?)
            }
        };
        self.sums.accumulate(&sums, 1.0)?;
        self.counts.accumulate(&counts.reshape(&[self.clusters, 1])?, 1.0)?;
        Ok(Report { loss: distance.mean()?, samples: data::samples() })
    }

    fn update(&self) -> Result<()> {
        let means = self.sums.div(&self.counts.clamp(1.0, f32::MAX)?)?;
        let has_rows = self.counts.greater(&Tensor::scalar(0.0)?)?;
        self.centroids.assign(&has_rows.select(&means, &self.centroids)?)
    }

    fn evaluate(&self) -> Result<Vec<Metric>> {
        Ok(vec![Metric::loss(self.nearest(&rows()?)?.distance.mean()?)])
    }
}

/// The samples of this call, one row each.
fn rows() -> Result<Features> {
    as_rows(data::any_features()?)
}

/// An image's row is all of its numbers.
fn as_rows(samples: Features) -> Result<Features> {
    Ok(match samples {
        Features::Dense(samples) if samples.rank() != 2 => Features::Dense(samples.flatten()?),
        rows => rows,
    })
}

impl KMeans {
    fn nearest(&self, rows: &Features) -> Result<Nearest> {
        match rows {
            Features::Dense(rows) => {
                let (index, distance) = rows.nearest(&self.centroids)?;
                Ok(Nearest { index, distance })
            }
            Features::Sparse(rows) => self.nearest_of_sparse(rows),
        }
    }

    /// `|x - c|² = |x|² - 2 x c + |c|²`: the first is the same for all centroids.
    fn nearest_of_sparse(&self, rows: &Csr) -> Result<Nearest> {
        let products = rows.matmul(&self.centroids.transpose()?)?;
        let squares = self.centroids.reduce(Reducer::SumSquares, &[1], false)?;
        let relative = products.affine(-2.0, 0.0)?.add(&squares)?;
        let own = Csr { values: rows.values.mul(&rows.values)?, ..rows.clone() };
        let own = own.matmul(&Tensor::ones(&[rows.width, 1])?)?;
        let distance = relative.reduce(Reducer::Min, &[1], true)?.add(&own)?;
        Ok(Nearest { index: relative.arg_min(1)?, distance: distance.clamp(0.0, f32::MAX)? })
    }
}

#[cfg(test)]
mod tests {
    use weft_sdk::hyper::Value;
    use weft_sdk::native::{Batch, Session};
    use weft_sdk::trainer::Traits;

    use super::*;

    const ROWS: [[f32; 2]; 5] = [[0.0, 1.0], [0.0, 3.0], [10.0, 0.0], [12.0, 0.0], [11.0, 0.0]];

    fn dense() -> Batch {
        Batch::unlabelled(Tensor::new(ROWS.as_flattened(), &[5, 2]).unwrap())
    }

    /// The same numbers as images of one channel, one pixel high.
    fn images() -> Batch {
        Batch::unlabelled(Tensor::new(ROWS.as_flattened(), &[5, 1, 1, 2]).unwrap())
    }

    fn sparse() -> Batch {
        let features = Csr {
            offsets: Tensor::new(&[0_u32, 1, 2, 3, 4, 5], &[6]).unwrap(),
            columns: Tensor::new(&[1_u32, 1, 0, 0, 0], &[5]).unwrap(),
            values: Tensor::new(&[1.0, 3.0, 10.0, 12.0, 11.0], &[5]).unwrap(),
            width: 2,
        };
        Batch::sparse(features, None)
    }

    #[test]
    fn centroids_move_to_the_means_of_dense_rows_of_images_and_of_sparse_rows() {
        for batch in [dense(), images(), sparse()] {
            let settings = [("features", Value::Integer(2)), ("clusters", Value::Integer(3))];
            let mut session = Session::<KMeans>::new(&settings).unwrap();
            let far = [0.0, 0.0, 9.0, 0.0, 0.0, -99.0];
            session.tensor("centroids").unwrap().write(0, &far).unwrap();
            // The squares 1 + 9 + 1 + 9 + 4, of five rows.
            assert!((session.step(&batch, 0.0).unwrap() - 4.8).abs() < 1e-5);
            session.update().unwrap();
            let moved = session.tensor("centroids").unwrap().to_vec::<f32>().unwrap();
            assert_eq!(moved, [0.0, 2.0, 11.0, 0.0, 0.0, -99.0]);
            assert_eq!(session.tensor("counts").unwrap().to_vec::<f32>().unwrap(), [0.0; 3]);
            assert!((session.evaluate(&batch).unwrap()["loss"] - 0.8).abs() < 1e-5);
            assert_eq!(session.infer(&batch).unwrap().to_vec::<u32>().unwrap(), [0, 0, 1, 1, 1]);
        }
    }

    #[test]
    fn it_updates() {
        assert_eq!(KMeans::TRAITS, Traits { updates: true, ..Traits::USUAL });
    }
}
