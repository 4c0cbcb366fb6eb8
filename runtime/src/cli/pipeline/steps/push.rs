//! `push`: a model becomes a file.

use anyhow::{Context, bail, ensure};
use serde_json::{Map, Value, json};

use super::super::cache::Reads;
use super::{Doing, output};
use crate::cli::model::{ModelFormat, save};
use crate::digest::Digest;

const WORDS: [&str; 3] = ["model", "to", "format"];

pub fn reads(doing: &Doing<'_>) -> anyhow::Result<Reads> {
    if let Some(word) = doing.words.keys().find(|word| !WORDS.contains(&word.as_str())) {
        bail!("there is no word `{}`: there are `{}`", word.escape_debug(), WORDS.join("`, `"));
    }
    let model = doing.name_of("model")?;
    doing.text("to")?.context("it has no `to`: the file that the model becomes")?;
    format(doing)?;
    Ok(Reads::from([("model".to_owned(), doing.place.client.model(&model)?.model.digest)]))
}

fn format(doing: &Doing<'_>) -> anyhow::Result<ModelFormat> {
    let is_npz = doing.text("to")?.is_some_and(|to| to.ends_with(".npz"));
    Ok(match doing.text("format")? {
        Some("safetensors") => ModelFormat::Safetensors,
        Some("npz") => ModelFormat::Npz,
        Some(other) => bail!("`format`: `{}` is neither `safetensors` nor `npz`", other.escape_debug()),
        None if is_npz => ModelFormat::Npz,
        None => ModelFormat::Safetensors,
    })
}

pub fn holds(doing: &Doing<'_>, outputs: &Map<String, Value>) -> anyhow::Result<bool> {
    let digest = Digest::of_file(&doing.place.folder.join(output(outputs, "file")));
    Ok(digest.is_ok_and(|digest| digest.to_string() == output(outputs, "digest")))
}

pub fn run(doing: &Doing<'_>) -> anyhow::Result<Map<String, Value>> {
    let (model, to) = (doing.name_of("model")?, doing.text("to")?.unwrap_or_default());
    ensure!(!to.is_empty(), "`to` is empty");
    let path = doing.place.folder.join(to);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make `{}`", folder.display()))?;
    }
    let bytes = save(&model, format(doing)?, &path, doing.place.client)?;
    let digest = Digest::of_file(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
    let outputs = json!({ "file": to, "digest": digest, "bytes": bytes });
    Ok(outputs.as_object().cloned().unwrap_or_default())
}
