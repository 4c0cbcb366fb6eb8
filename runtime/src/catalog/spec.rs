//! What can be asked for, in the words of the API and the command line.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::CatalogError;
use crate::dataset::build;
use crate::dataset::read::{self, ArrayNames, Half, Header, LabelColumn, LabelKind};
use crate::dataset::synth::Kind;
use crate::digest::Digest;

/// A file that was uploaded.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FileSpec {
    /// The digest of the upload.
    pub upload: String,
    /// What the file is called: its format is guessed from that, and errors say it.
    pub name: String,
}

impl FileSpec {
    pub(super) fn digest(&self) -> Result<Digest, CatalogError> {
        self.upload.parse().map_err(|error| CatalogError::Invalid(format!("{error}")))
    }
}

/// A file of samples, perhaps with their labels in another.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceSpec {
    pub features: FileSpec,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<FileSpec>,
}

/// Samples that a rule makes.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SyntheticSpec {
    /// `binary20`, `higgs` or `rcv1`.
    pub kind: String,
    /// Samples to train on.
    pub train: u64,
    /// Samples to test with.
    #[serde(default)]
    pub test: u64,
    #[serde(default)]
    pub seed: u64,
}

impl SyntheticSpec {
    pub(super) fn kind(&self) -> Result<Kind, CatalogError> {
        self.kind.parse().map_err(|error| CatalogError::Invalid(format!("{error}")))
    }
}

/// A part of another data set's samples to train on, drawn by chance, and all of its samples to test with.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SampleSpec {
    /// The name of that data set.
    pub of: String,
    /// How large the part is, above 0 and at most 1.
    pub part: f64,
    /// The same seed draws the same samples.
    #[serde(default)]
    pub seed: u64,
}

/// What a data set is made of: files, a rule, another data set, or what comes with Weft; one of the four.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DataSetSpec {
    /// Files with samples to train on.
    pub train: Vec<SourceSpec>,
    /// Files with samples to test with.
    pub test: Vec<SourceSpec>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub synthetic: Option<SyntheticSpec>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample: Option<SampleSpec>,
    /// `digits`: 1,797 handwritten digits of 8x8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shipped: Option<String>,
    /// `idx`, `npy`, `npz`, `csv`, `libsvm`, `cifar10` or `safetensors`; otherwise guessed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// The label's column in a table, by name or number, or `none`; otherwise the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// What labels are: `class`, `values` or `names`; otherwise guessed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_kind: Option<String>,
    /// Whether the first row of a table names its columns; otherwise guessed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<bool>,
    /// The name of the array with features, in a file with several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub features_array: Option<String>,
    /// The name of the array with labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels_array: Option<String>,
    /// Columns of sparse samples; otherwise the highest index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub columns: Option<u32>,
    /// The share of the samples to train on, where there are none to test with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<f64>,
    /// Of the split.
    pub seed: u64,
    /// The shape of one sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape: Option<Vec<usize>>,
    /// Height and width that images are resized to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resize: Option<(usize, usize)>,
    /// `standardise`, `minmax:lo,hi` or `normalise`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transform: Option<String>,
    /// What the classes are called, in order.
    pub class_names: Vec<String>,
}

impl DataSetSpec {
    /// How its files are to be read; `part` of those that hold both.
    pub(super) fn reading(&self, part: Half) -> Result<read::Options, CatalogError> {
        let invalid = CatalogError::Invalid;
        let format = self.format.as_deref().map(str::parse).transpose().map_err(invalid)?;
        let labels = match self.label_kind.as_deref() {
            None => LabelKind::Auto,
            Some("class") => LabelKind::Class,
            Some("values") => LabelKind::Values,
            Some("names") => LabelKind::Names,
            Some(other) => {
                let text = format!("no kind of label `{}`: use `class`, `values` or `names`", other.escape_debug());
                return Err(invalid(text));
            }
        };
        let label_column = match self.label.as_deref() {
            None => LabelColumn::Last,
            Some("none") => LabelColumn::None,
            Some(text) => text.parse().map_or_else(|_| LabelColumn::Name(text.to_owned()), LabelColumn::Index),
        };
        let header = match self.header {
            None => Header::Auto,
            Some(true) => Header::Yes,
            Some(false) => Header::No,
        };
        let arrays =
            ArrayNames { features: self.features_array.clone(), labels: self.labels_array.clone(), part: Some(part) };
        Ok(read::Options { format, labels, label_column, header, arrays, columns: self.columns, ..Default::default() })
    }

    /// What is done to the samples.
    pub(crate) fn building(&self) -> Result<build::Options, CatalogError> {
        let transform = self.transform.as_deref().map(str::parse).transpose();
        Ok(build::Options {
            split: self.split,
            seed: self.seed,
            shape: self.shape.clone(),
            resize: self.resize,
            transform: transform.map_err(|error| CatalogError::Invalid(format!("{error}")))?,
            class_names: self.class_names.clone(),
            synthetic: None,
        })
    }

    /// The uploads that it names, each once.
    pub(super) fn uploads(&self) -> Result<Vec<Digest>, CatalogError> {
        let sources = self.train.iter().chain(&self.test);
        let files = sources.flat_map(|source| std::iter::once(&source.features).chain(&source.labels));
        let mut digests = files.map(FileSpec::digest).collect::<Result<Vec<_>, _>>()?;
        digests.sort_unstable();
        digests.dedup();
        Ok(digests)
    }
}
