//! `weft deploy`: a component, or the crate it is built from, becomes a function.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;

use super::client::Client;
use super::output::{Output, bytes, short_version};
use crate::api::types::{DeployOutcome, DeployView};
use crate::build;
use crate::names::Name;

#[derive(Args)]
pub struct DeployArgs {
    /// A component (`.wasm`), or the folder or Cargo.toml of a crate to build first; cargo then runs the crate's build
    /// scripts and macros as you, so build only what you would also run
    #[arg(default_value = ".")]
    path: PathBuf,
    /// The function's name [default: the file's or the package's]
    #[arg(long)]
    name: Option<Name>,
}

pub fn run(args: DeployArgs, client: &Client, out: &Output) -> anyhow::Result<()> {
    let (deployed, sentence) = deploy(&args.path, args.name, client, out)?;
    out.done(&deployed, sentence)
}

/// Deploys what is at a path; the second part says for people what that did.
pub fn deploy(path: &Path, name: Option<Name>, client: &Client, out: &Output) -> anyhow::Result<(DeployView, String)> {
    let file = component_file(path, out)?;
    let name = name.map_or_else(|| name_of(&file), Ok)?;
    let component = std::fs::read(&file).with_context(|| format!("cannot read `{}`", file.display()))?;
    let deployed = client.deploy(&name, &component)?;
    let (version, size) = (short_version(&deployed.function.version), bytes(deployed.function.size));
    let sentence = match deployed.outcome {
        DeployOutcome::Created => format!("deployed `{name}`, version {version}, {size}"),
        DeployOutcome::Updated => format!("updated `{name}` to version {version}, {size}"),
        DeployOutcome::Unchanged => format!("`{name}` already runs version {version}"),
    };
    Ok((deployed, sentence))
}

/// The component itself; a crate is built to get it.
fn component_file(path: &Path, out: &Output) -> anyhow::Result<PathBuf> {
    if path.is_dir() || path.file_name().is_some_and(|name| name == "Cargo.toml") {
        let options = build::Options { quiet: out.is_quiet(), ..build::Options::default() };
        return Ok(build::build(path, &options)?.path);
    }
    Ok(path.to_owned())
}

/// `column_stats.wasm` is called `column-stats`.
fn name_of(file: &Path) -> anyhow::Result<Name> {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let name = stem.to_ascii_lowercase().replace(['_', '.'], "-");
    name.parse().with_context(|| format!("no name can be made of `{}`: give one with `--name`", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_named_after_its_file() {
        let name = |path: &str| name_of(Path::new(path)).map(|name| name.to_string()).ok();
        assert_eq!(name("target/column_stats.wasm").as_deref(), Some("column-stats"));
        assert_eq!(name("Echo.v2.wasm").as_deref(), Some("echo-v2"));
        assert_eq!(name("é.wasm"), None);
    }
}
