//! `weft model …`: what training leaves behind.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Subcommand, ValueEnum};
use serde_json::json;

use super::client::Client;
use super::confirm::confirm;
use super::output::{Output, bytes, harmless, moment, short_version};
use super::upload;
use crate::api::types::{ModelDetail, ModelList, ModelView};
use crate::names::Name;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ModelFormat {
    Safetensors,
    Npz,
}

impl ModelFormat {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Safetensors => "safetensors",
            Self::Npz => "npz",
        }
    }
}

#[derive(Subcommand)]
pub enum ModelVerb {
    /// List the models
    List,
    /// Show where a model comes from, and its tensors
    Show { name: Name },
    /// Save a model as a file
    Pull {
        name: Name,
        /// Where to [default: NAME.safetensors or NAME.npz]
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// safetensors or npz [default: by the output's name, or safetensors]
        #[arg(long, value_enum, hide_possible_values = true)]
        format: Option<ModelFormat>,
    },
    /// Keep a safetensors file as a model
    Push { file: PathBuf, name: Name },
    /// Delete a model
    Delete {
        name: Name,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
}

pub fn run(verb: ModelVerb, client: &Client, out: &Output) -> anyhow::Result<()> {
    match verb {
        ModelVerb::List => list(client, out),
        ModelVerb::Show { name } => {
            let detail = client.model(&name)?;
            out.show(&detail, || describe(&detail, out))
        }
        ModelVerb::Pull { name, output, format } => {
            let is_npz =
                output.as_ref().is_some_and(|path| path.extension().is_some_and(|extension| extension == "npz"));
            let format = format.unwrap_or(if is_npz { ModelFormat::Npz } else { ModelFormat::Safetensors });
            let path = output.unwrap_or_else(|| PathBuf::from(format!("{name}.{}", format.name())));
            let size = save(&name, format, &path, client)?;
            let sentence = format!("saved model `{name}` in `{}`, {}", path.display(), bytes(size));
            out.done(&json!({"model": name, "file": path, "bytes": size}), sentence)
        }
        ModelVerb::Push { file, name } => {
            let upload = upload::file(&file, client, out)?;
            let model = client.create_model(&name, &upload)?;
            let sentence = format!("model `{name}`: {} tensors, {}", model.tensors, bytes(model.size));
            out.done(&model, sentence)
        }
        ModelVerb::Delete { name, yes } => {
            confirm(&format!("delete model `{name}`?"), yes)?;
            client.delete_model(&name)?;
            out.done(&json!({"deleted": name}), format_args!("deleted model `{name}`"))
        }
    }
}

/// A file is there whole or not at all.
pub(super) fn save(name: &Name, format: ModelFormat, path: &std::path::Path, client: &Client) -> anyhow::Result<u64> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(std::path::Path::new("."));
    let mut staged =
        tempfile::NamedTempFile::new_in(folder).with_context(|| format!("cannot write to `{}`", folder.display()))?;
    let size = io::copy(&mut client.fetch_model(name, format.name())?, &mut staged).context("the answer broke off")?;
    let file: File = staged.persist(path).with_context(|| format!("cannot write `{}`", path.display()))?;
    file.sync_all()?;
    Ok(size)
}

fn list(client: &Client, out: &Output) -> anyhow::Result<()> {
    let mut all = ModelList { models: Vec::new(), next: None };
    loop {
        let page = client.models(all.next.as_deref())?;
        all.models.extend(page.models);
        all.next = page.next;
        if all.next.is_none() {
            break;
        }
    }
    out.show(&all, || {
        let row = |model: &ModelView| {
            vec![
                model.name.clone(),
                short_version(&model.digest).to_owned(),
                model.tensors.to_string(),
                model.parameters.to_string(),
                bytes(model.size),
                moment(&model.created_at),
            ]
        };
        let rows: Vec<Vec<String>> = all.models.iter().map(row).collect();
        out.table(&["NAME", "DIGEST", "TENSORS", "PARAMETERS", "SIZE", "CREATED"], &rows)
    })
}

fn describe(detail: &ModelDetail, out: &Output) -> String {
    let ModelView { name, digest, size, parameters, created_at, .. } = &detail.model;
    let mut rows = vec![
        ("name", name.clone()),
        ("digest", digest.clone()),
        ("size", bytes(*size)),
        ("parameters", parameters.to_string()),
        ("created", moment(created_at)),
    ];
    rows.extend(detail.metadata.iter().map(|(key, value)| (key.as_str(), harmless(value))));
    let tensor = |tensor: &crate::api::types::TensorView| {
        let shape: Vec<String> = tensor.shape.iter().map(usize::to_string).collect();
        vec![harmless(&tensor.name), tensor.dtype.clone(), shape.join("x")]
    };
    let tensors: Vec<Vec<String>> = detail.tensors.iter().map(tensor).collect();
    format!("{}\n{}", out.fields(&rows), out.table(&["TENSOR", "TYPE", "SHAPE"], &tensors))
}
