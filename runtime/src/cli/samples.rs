//! Samples that verbs without a node work on: an example, a synthetic data set, or files.

use anyhow::bail;
use clap::{Args, ValueEnum};

use super::dataset::{Pair, Reading, Shape, image_size, leave, pull};
use super::output::Output;
use crate::catalog::spec::{DataSetSpec, SyntheticSpec};
use crate::train::files::LocalDataSet;

/// Samples of a synthetic data set that is named where an example could be.
const SYNTHETIC: (u64, u64) = (10_000, 1_000);

/// What to train on.
#[derive(Debug, Args)]
pub struct DataArgs {
    /// An example (digits, mnist, fashion-mnist) or a synthetic data set (binary20, higgs, rcv1)
    #[arg(long, value_name = "NAME", conflicts_with = "data")]
    pub dataset: Option<String>,
    /// A file with samples, and one with their labels if they are apart; may be given again
    #[arg(long, value_name = "X[,Y]")]
    pub data: Vec<Pair>,
    /// The same with samples to test with
    #[arg(long, value_name = "X[,Y]")]
    test: Vec<Pair>,
    #[command(flatten)]
    reading: Reading,
    /// The share of the samples to train on, where there are none to test with, as in 0.9
    #[arg(long, value_name = "SHARE")]
    split: Option<f64>,
    /// The shape of one sample, as in 1x8x8
    #[arg(long, value_name = "SHAPE")]
    pub shape: Option<Shape>,
    /// Height and width that images are resized to, as in 28x28
    #[arg(long, value_name = "HxW")]
    resize: Option<Shape>,
    /// Done to features: `standardise`, `minmax:lo,hi` or `normalise` [default: standardise for examples]
    #[arg(long)]
    pub transform: Option<String>,
}

impl DataArgs {
    /// Whether samples are to be made otherwise than they are where they come from.
    pub fn changes_samples(&self) -> bool {
        self.split.is_some() || self.shape.is_some() || self.resize.is_some() || self.transform.is_some()
    }

    /// The name and the samples of what was asked for, if anything was.
    pub fn make(self, out: &Output) -> anyhow::Result<Option<(String, LocalDataSet)>> {
        let folder = tempfile::tempdir()?;
        let mut spec = self.reading.spec();
        let name = match &self.dataset {
            Some(name) => {
                let given = example(name, folder.path(), out)?;
                spec = DataSetSpec { format: spec.format, ..given };
                name.clone()
            }
            None if self.data.is_empty() && self.test.is_empty() => return Ok(None),
            None => {
                (spec.train, spec.test) = (Pair::all(&self.data, &leave)?, Pair::all(&self.test, &leave)?);
                "files".to_owned()
            }
        };
        spec.split = self.split.or(spec.split);
        spec.shape = self.shape.map(|shape| shape.0).or(spec.shape);
        spec.resize = self.resize.map(image_size).transpose()?.or(spec.resize);
        spec.transform = self.transform.or(spec.transform);
        Ok(Some((name, LocalDataSet::make(&spec)?)))
    }
}

fn example(name: &str, folder: &std::path::Path, out: &Output) -> anyhow::Result<DataSetSpec> {
    if let Ok(example) = pull::Example::from_str(name, false) {
        return pull::spec(example, folder, &leave, out);
    }
    if name.parse::<crate::dataset::synth::Kind>().is_ok() {
        let (train, test) = SYNTHETIC;
        let synthetic = Some(SyntheticSpec { kind: name.to_owned(), train, test, seed: 0 });
        return Ok(DataSetSpec { synthetic, ..DataSetSpec::default() });
    }
    bail!(
        "there is no data set `{}` here: there are digits, mnist, fashion-mnist, binary20, higgs and rcv1; \
         give files with `--data`",
        name.escape_debug()
    )
}
