//! The words of a step that names samples: files beside the pipeline's file, a rule, or what comes with Weft.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::{Map, Value};

use super::cache::Reads;
use crate::catalog::spec::{DataSetSpec, FileSpec, SourceSpec};
use crate::digest::Digest;

/// Samples that a step names.
pub struct Samples {
    /// Everything but the files.
    spec: DataSetSpec,
    train: Vec<Pair>,
    test: Vec<Pair>,
}

/// A file, and one with its labels if they are apart.
struct Pair {
    features: PathBuf,
    labels: Option<PathBuf>,
}

impl Samples {
    /// Reads the words, which are those of `POST /v1/datasets`, but for the files: those are paths, as in
    /// `train = ["x.npy,y.npy"]`.
    pub fn read(mut words: Map<String, Value>, folder: &Path) -> anyhow::Result<Self> {
        let mut files = |word: &str| match words.remove(word) {
            None => Ok(Vec::new()),
            Some(value) => pairs(&value, folder).with_context(|| format!("`{word}`")),
        };
        let (train, test) = (files("train")?, files("test")?);
        let spec: DataSetSpec = serde_json::from_value(Value::Object(words))?;
        Ok(Self { spec, train, test })
    }

    /// Whether the words name any samples.
    pub fn has_any(&self) -> bool {
        !self.train.is_empty() || !self.test.is_empty() || self.spec.synthetic.is_some() || self.spec.shipped.is_some()
    }

    /// What the files have in them.
    pub fn reads(&self) -> anyhow::Result<Reads> {
        let mut reads = Reads::new();
        for pair in self.train.iter().chain(&self.test) {
            for path in std::iter::once(&pair.features).chain(&pair.labels) {
                let digest = Digest::of_file(path).with_context(|| format!("cannot read `{}`", path.display()))?;
                reads.insert(format!("file {}", path.display()), digest.to_string());
            }
        }
        Ok(reads)
    }

    /// The data set that they become, whose files are put in `place` first.
    pub fn spec(self, place: &dyn Fn(&Path) -> anyhow::Result<FileSpec>) -> anyhow::Result<DataSetSpec> {
        let sources = |pairs: &[Pair]| -> anyhow::Result<Vec<SourceSpec>> {
            let source = |pair: &Pair| {
                let labels = pair.labels.as_deref().map(place).transpose()?;
                Ok(SourceSpec { features: place(&pair.features)?, labels })
            };
            pairs.iter().map(source).collect()
        };
        Ok(DataSetSpec { train: sources(&self.train)?, test: sources(&self.test)?, ..self.spec })
    }
}

fn pairs(value: &Value, folder: &Path) -> anyhow::Result<Vec<Pair>> {
    let text = |value: &Value| value.as_str().map(str::to_owned).context("it must be a list of paths");
    let texts: Vec<String> = match value {
        Value::Array(values) => values.iter().map(text).collect::<anyhow::Result<_>>()?,
        value => vec![text(value)?],
    };
    texts.iter().map(|text| pair(text, folder)).collect()
}

fn pair(text: &str, folder: &Path) -> anyhow::Result<Pair> {
    if text.is_empty() {
        bail!("a path is empty");
    }
    let whole = folder.join(text);
    Ok(match text.split_once(',').filter(|_| !whole.exists()) {
        Some((features, labels)) => Pair { features: folder.join(features), labels: Some(folder.join(labels)) },
        None => Pair { features: whole, labels: None },
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn words(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap_or_default()
    }

    #[test]
    fn files_are_beside_the_pipelines_file_and_known_by_their_content() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("x.npy"), "x").unwrap();
        std::fs::write(folder.path().join("y.npy"), "y").unwrap();
        let samples = || Samples::read(words(json!({"train": ["x.npy,y.npy"], "split": 0.5})), folder.path()).unwrap();
        let before = samples().reads().unwrap();
        assert_eq!((before.len(), samples().has_any()), (2, true));
        std::fs::write(folder.path().join("y.npy"), "z").unwrap();
        assert_ne!(samples().reads().unwrap(), before);
        let place = |path: &Path| Ok(FileSpec { upload: path.display().to_string(), name: "n".to_owned() });
        let spec = samples().spec(&place).unwrap();
        assert!(spec.train[0].labels.is_some() && spec.split == Some(0.5));
    }

    #[test]
    fn words_that_no_data_set_has_are_refused() {
        let refused = |value| Samples::read(words(value), Path::new(".")).err().map(|error| format!("{error:#}"));
        assert!(refused(json!({"trian": ["a"]})).unwrap().contains("trian"));
        assert!(refused(json!({"train": [3]})).unwrap().contains("list of paths"));
        assert!(refused(json!({"train": ""})).unwrap().contains("empty"));
        assert!(!Samples::read(Map::new(), Path::new(".")).unwrap().has_any());
    }
}
