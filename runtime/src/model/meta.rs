//! What a model says about itself: one key by fact in the metadata of the file, where other tools keep theirs too.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::dataset::rows::Features;
use crate::dataset::{Manifest, Statistics, Transform};
use crate::digest::Digest;

/// The metadata that this version writes and reads.
pub const FORMAT: u32 = 1;

const FORMAT_KEY: &str = "weft.format";
const FUNCTION: &str = "weft.function";
const STEP: &str = "weft.step";
const HYPER_PARAMETERS: &str = "weft.hyper_parameters";
const METRICS: &str = "weft.metrics";
const DATA_SET: &str = "weft.data_set";
const CREATED: &str = "weft.created_ms";
const INPUT: &str = "weft.input";

/// Where a model comes from. All of it is optional: files of other tools know none of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Meta {
    /// The component that trained it.
    pub function: Option<Digest>,
    /// Steps of training before it was kept.
    pub step: Option<u64>,
    pub hyper_parameters: BTreeMap<String, Value>,
    pub metrics: BTreeMap<String, f64>,
    /// The version of the data set it was trained on.
    pub data_set: Option<Digest>,
    /// Milliseconds since 1970.
    pub created_ms: Option<u64>,
    pub input: Option<Input>,
    /// What others wrote, kept as it is.
    pub other: BTreeMap<String, String>,
}

/// The samples that a model was trained on, and what was done to them: the same must be done to any that it is given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Input {
    /// Of one sample.
    pub shape: Vec<usize>,
    pub transform: Transform,
    pub statistics: Statistics,
}

impl Input {
    pub fn of(manifest: &Manifest) -> Self {
        let shape = match &manifest.features {
            Features::Dense { shape, .. } => shape.clone(),
            Features::Sparse { columns } => vec![*columns as usize],
        };
        Self { shape, transform: manifest.transform, statistics: manifest.statistics.clone() }
    }
}

/// Metadata that this version cannot read.
#[derive(Debug, thiserror::Error)]
pub enum BadMeta {
    #[error("metadata `{FORMAT_KEY}` is `{0}`: this version reads `{FORMAT}`")]
    Format(String),
    #[error("metadata `{key}`: {error}")]
    Fact { key: &'static str, error: String },
}

impl Meta {
    /// As the file has it.
    pub fn to_strings(&self) -> BTreeMap<String, String> {
        let mut strings = self.other.clone();
        let mut set = |key: &str, value: Option<String>| {
            if let Some(value) = value {
                strings.insert(key.to_owned(), value);
            }
        };
        set(FORMAT_KEY, Some(FORMAT.to_string()));
        set(FUNCTION, self.function.map(|digest| digest.to_string()));
        set(STEP, self.step.map(|step| step.to_string()));
        set(DATA_SET, self.data_set.map(|digest| digest.to_string()));
        set(CREATED, self.created_ms.map(|moment| moment.to_string()));
        // JSON knows no infinite number: such a metric is null.
        let metrics: BTreeMap<_, _> = self.metrics.iter().map(|(name, value)| (name, Value::from(*value))).collect();
        set(METRICS, (!metrics.is_empty()).then(|| serde_json::json!(metrics).to_string()));
        let hyper = &self.hyper_parameters;
        set(HYPER_PARAMETERS, (!hyper.is_empty()).then(|| serde_json::json!(hyper).to_string()));
        set(INPUT, self.input.as_ref().map(|input| serde_json::json!(input).to_string()));
        strings
    }

    /// From what a file has. Facts that only a later version knows are kept among the others.
    pub fn from_strings(mut strings: BTreeMap<String, String>) -> Result<Self, BadMeta> {
        if let Some(format) = strings.remove(FORMAT_KEY)
            && format != FORMAT.to_string()
        {
            return Err(BadMeta::Format(format.chars().take(40).collect()));
        }
        let mut meta = Self::default();
        let mut fact = |key| strings.remove(key).map(|text| (key, text));
        meta.function = fact(FUNCTION).map(parsed).transpose()?;
        meta.step = fact(STEP).map(parsed).transpose()?;
        meta.data_set = fact(DATA_SET).map(parsed).transpose()?;
        meta.created_ms = fact(CREATED).map(parsed).transpose()?;
        meta.hyper_parameters = fact(HYPER_PARAMETERS).map(json).transpose()?.unwrap_or_default();
        let metrics: BTreeMap<String, Option<f64>> = fact(METRICS).map(json).transpose()?.unwrap_or_default();
        meta.metrics = metrics.into_iter().map(|(name, value)| (name, value.unwrap_or(f64::NAN))).collect();
        meta.input = fact(INPUT).map(json).transpose()?;
        meta.other = strings;
        Ok(meta)
    }
}

fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>((key, text): (&'static str, String)) -> Result<T, BadMeta> {
    text.parse().map_err(|error: T::Err| BadMeta::Fact { key, error: error.to_string() })
}

fn json<T: serde::de::DeserializeOwned>((key, text): (&'static str, String)) -> Result<T, BadMeta> {
    serde_json::from_str(&text).map_err(|error| BadMeta::Fact { key, error: error.to_string() })
}
