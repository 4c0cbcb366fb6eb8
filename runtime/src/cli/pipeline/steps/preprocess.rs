//! `preprocess`: files become a data set.

use std::path::Path;

use anyhow::Context;
use serde_json::{Map, Value, json};

use super::super::cache::Reads;
use super::super::samples::Samples;
use super::{Doing, found, output};
use crate::api::types::DataSetView;
use crate::catalog::spec::FileSpec;
use crate::cli::client::ClientError;
use crate::cli::upload;
use crate::digest::Digest;

fn samples(doing: &Doing<'_>) -> anyhow::Result<Samples> {
    let samples = Samples::read(doing.words.clone(), &doing.place.folder)?;
    anyhow::ensure!(samples.has_any(), "it names no samples: give `train`, `synthetic` or `shipped`");
    Ok(samples)
}

pub fn reads(doing: &Doing<'_>) -> anyhow::Result<Reads> {
    samples(doing)?.reads()
}

pub fn holds(doing: &Doing<'_>, outputs: &Map<String, Value>) -> anyhow::Result<bool> {
    let name = output(outputs, "dataset").parse()?;
    let there = found(doing.place.client.dataset(&name, Some(output(outputs, "version"))))?;
    Ok(there.is_some())
}

pub fn run(doing: &Doing<'_>, key: &Digest) -> anyhow::Result<Map<String, Value>> {
    let (client, out, name) = (doing.place.client, doing.place.out, doing.thing(key, 1)?);
    let there = || found(client.dataset(&name, None));
    let made = match there()? {
        // Made by a run that was killed before it could note that.
        Some(detail) => detail.dataset,
        None => {
            let send = |path: &Path| -> anyhow::Result<FileSpec> {
                let file = path.file_name().with_context(|| format!("`{}` is no file", path.display()))?;
                let name = file.to_string_lossy().into_owned();
                Ok(FileSpec { upload: upload::file(path, client, out)?, name })
            };
            let spec = samples(doing)?.spec(&send)?;
            match client.create_dataset(&name, &spec) {
                Ok(made) => made,
                // The request of that run has come to its end meanwhile.
                Err(error @ ClientError::Problem { .. }) => match there()? {
                    Some(detail) => detail.dataset,
                    None => return Err(error.into()),
                },
                Err(error) => return Err(error.into()),
            }
        }
    };
    let DataSetView { name, version, train, test, .. } = made;
    let outputs = json!({ "dataset": name, "version": version, "train": train, "test": test });
    Ok(outputs.as_object().cloned().unwrap_or_default())
}
