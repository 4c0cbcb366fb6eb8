//! What a data set consists of. Its version is the digest of this, as JSON.
//!
//! There is one way to write a manifest: fields in the order below, nothing else, numbers in their shortest form. So the
//! same samples, cut and counted alike, have the same version.

mod check;
mod transform;

pub(super) use check::check_features;
pub use check::{MOST_BYTES, MOST_CLASSES, MOST_NAME_BYTES, ManifestError};
pub use transform::BadTransform;

use serde::{Deserialize, Serialize};

use super::rows::{Features, Labels};
use crate::digest::Digest;

/// The manifests that this version writes and reads.
pub const FORMAT: u32 = 1;

/// A data set: what its samples are, and the blocks that hold them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    pub format: u32,
    pub features: Features,
    pub labels: Option<Labels>,
    /// What the classes are called, if anything; as many as [`Split::classes`] has.
    pub class_names: Vec<String>,
    /// Done to the features when a batch is made; with [`Self::statistics`].
    pub transform: Transform,
    /// Of the training samples, before the transform.
    pub statistics: Statistics,
    pub train: Split,
    pub test: Split,
    /// The rule that made the samples, where a program did.
    pub synthetic: Option<String>,
}

impl Manifest {
    /// What is kept.
    pub fn to_bytes(&self) -> Vec<u8> {
        // Nothing in a manifest can fail to be JSON: no maps with odd keys, and serde_json writes any number.
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub fn version(&self) -> Digest {
        Digest::of(&self.to_bytes())
    }

    /// About how much memory it takes.
    pub fn held_bytes(&self) -> u64 {
        let each = |split: &Split| {
            split.blocks.capacity() * size_of::<BlockRef>() + split.classes.capacity() * size_of::<u64>()
        };
        let names = self.class_names.iter().map(|name| size_of::<String>() + name.capacity()).sum::<usize>();
        let moments = self.statistics.mean.capacity() * 2 * (size_of::<f64>() + size_of::<f32>());
        (size_of::<Self>() + each(&self.train) + each(&self.test) + names + moments) as u64
    }

    /// How many classes the labels have, in either split; none where labels are no classes.
    pub fn classes(&self) -> usize {
        self.train.classes.len()
    }
}

/// The samples to train on, or those to test with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Split {
    pub count: u64,
    pub blocks: Vec<BlockRef>,
    /// How many samples each class has, as many entries in both splits; empty where labels are no classes.
    pub classes: Vec<u64>,
}

/// A block: a blob with the labels of its samples, and then their features.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockRef {
    pub digest: Digest,
    pub count: u32,
    pub bytes: u64,
}

/// What is done to features when a batch is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transform {
    #[default]
    None,
    /// To mean 0 and deviation 1.
    Standardise,
    /// From what was the least and the most to these.
    MinMax { low: f32, high: f32 },
    /// Each sample to length 1.
    Normalise,
}

/// Moments of the features, in as many entries as [`Features::groups`] says: by channel for samples of three dimensions or
/// more (`channels x height x width`), one for `height x width`, by column for vectors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statistics {
    /// Numbers that each entry below was counted over.
    pub count: u64,
    pub mean: Vec<f64>,
    /// Sum of squared differences from the mean.
    pub squares: Vec<f64>,
    pub low: Vec<f32>,
    pub high: Vec<f32>,
}
