//! `weft new`: start a function's project, which builds as it is.
//!
//! The SDK is on no registry. Its sources and the contract are part of this binary and are written beside the new
//! crate, in `vendor/`, so that a project always has the SDK of the `weft` that made it and needs no checkout of Weft.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use toml::{Table, Value};

use super::output::Output;
use crate::names::Name;

mod templates;

/// Start a project for a function.
#[derive(Debug, clap::Args)]
pub struct NewArgs {
    /// The name of the function: lower-case letters, digits and inner hyphens
    name: String,

    /// A function that trains a model, instead of one that answers requests
    #[arg(long)]
    trainer: bool,

    /// The folder to make [default: NAME]
    #[arg(long, value_name = "DIR")]
    path: Option<PathBuf>,
}

/// Names that Rust itself or the SDK has a use for, so that no crate can have them.
#[rustfmt::skip]
const TAKEN: &[&str] = &[
    "abstract", "alloc", "as", "async", "await", "become", "box", "break", "const", "continue", "core", "crate", "do",
    "dyn", "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro",
    "match", "mod", "move", "mut", "override", "priv", "proc-macro", "pub", "ref", "return", "self", "static", "std",
    "struct", "super", "test", "trait", "true", "try", "type", "typeof", "unsafe", "unsized", "use", "virtual",
    "weft-sdk", "weft-sdk-macros", "where", "while", "yield",
];

/// A file of the SDK or the contract: where it goes below `vendor/`, and what is in it.
type Source = (&'static str, &'static str);

/// As the build script found them.
const SOURCES: &[Source] = include!(concat!(env!("OUT_DIR"), "/sdk_sources.rs"));

/// Manifests, which lean on the workspace's and so cannot be written as they are.
const MANIFESTS: &[Source] = &[
    ("weft-sdk/Cargo.toml", include_str!("../../../guest-sdk/Cargo.toml")),
    ("weft-sdk/macros/Cargo.toml", include_str!("../../../guest-sdk/macros/Cargo.toml")),
];

const WORKSPACE: &str = include_str!("../../../Cargo.toml");

pub fn run(args: NewArgs, out: &Output) -> anyhow::Result<()> {
    let name = check_name(&args.name)?;
    let folder = args.path.unwrap_or_else(|| name.as_str().into());
    let files = project(&name, args.trainer)?;
    write(&folder, &files)?;
    let shown = folder.display();
    let value = serde_json::json!({ "name": name.as_str(), "path": &folder });
    let next = match args.trainer {
        true => format!("train it with `weft train-local {shown} --dataset digits`"),
        false => format!("put it on a node with `weft deploy {shown}`"),
    };
    out.done(&value, format!("made `{name}` in {shown}; {next}"))
}

fn check_name(name: &str) -> anyhow::Result<Name> {
    let checked: Name = name.parse()?;
    if !name.starts_with(|first: char| first.is_ascii_lowercase()) {
        bail!("`{name}` cannot be the name of a Rust crate: start it with a letter");
    }
    if TAKEN.contains(&name) {
        bail!("`{name}` cannot be the name of a Rust crate: it means something to Rust already; choose another");
    }
    Ok(checked)
}

/// Every file of the project, by its path in there.
fn project(name: &Name, trainer: bool) -> anyhow::Result<Vec<(PathBuf, String)>> {
    let template = |text: &str| text.replace("{name}", name.as_str());
    let (function, readme) = match trainer {
        true => (templates::TRAINER, templates::TRAINER_README),
        false => (templates::TASK, templates::TASK_README),
    };
    let mut files = vec![
        ("Cargo.toml".into(), template(templates::MANIFEST)),
        ("src/lib.rs".into(), template(function)),
        ("README.md".into(), template(readme)),
        (".gitignore".into(), "/target\n".to_owned()),
    ];
    let vendor = Path::new("vendor");
    files.extend(SOURCES.iter().map(|(path, text)| (vendor.join(path), (*text).to_owned())));
    let workspace: Table = WORKSPACE.parse().context("the workspace's manifest")?;
    for (path, text) in MANIFESTS {
        let manifest = stand_alone(text.parse()?, &workspace).with_context(|| format!("the manifest `{path}`"))?;
        files.push((vendor.join(path), manifest.to_string()));
    }
    Ok(files)
}

/// The manifest with what it inherits from the workspace written out, and without what only our own checks need.
fn stand_alone(mut manifest: Table, workspace: &Table) -> anyhow::Result<Table> {
    let inherited = |part: &str, name: &str| {
        let value = workspace.get("workspace").and_then(|table| table.get(part)).and_then(|table| table.get(name));
        value.cloned().with_context(|| format!("the workspace has no `{part}.{name}`"))
    };
    for part in ["lints", "dev-dependencies", "target"] {
        manifest.remove(part);
    }
    leave_out_features(&mut manifest);
    for part in ["package", "dependencies"] {
        let Some(Value::Table(entries)) = manifest.get_mut(part) else { continue };
        for (name, value) in entries.iter_mut() {
            if value.get("workspace").is_none() {
                continue;
            }
            if value.as_table().is_some_and(|own| own.len() > 1) {
                bail!("`{name}` adds to what it inherits, which is not resolved here");
            }
            *value = inherited(part, name)?;
            // Relative to the workspace before, to the SDK now.
            if let Some(Value::String(path)) = value.get_mut("path") {
                *path = path.strip_prefix("guest-sdk/").context("a path outside of the SDK")?.to_owned();
            }
        }
    }
    Ok(manifest)
}

/// Without the features that need a crate from outside of the SDK. The sources still ask for them, which is no mistake.
fn leave_out_features(manifest: &mut Table) {
    let inside = |needed: &Value, dependencies: Option<&Value>| {
        let needed = needed.as_str().and_then(|needed| needed.strip_prefix("dep:"));
        needed.is_none_or(|needed| dependencies.is_some_and(|all| all.get(needed).is_some()))
    };
    let dependencies = manifest.get("dependencies").cloned();
    let Some(Value::Table(features)) = manifest.get_mut("features") else { return };
    let mut left_out = Vec::new();
    features.retain(|name, needs| {
        let kept = needs.as_array().is_none_or(|needs| needs.iter().all(|need| inside(need, dependencies.as_ref())));
        if !kept {
            left_out.push(Value::String(format!("cfg(feature, values({name:?}))")));
        }
        kept
    });
    if left_out.is_empty() {
        return;
    }
    let known = [("level".to_owned(), "warn".into()), ("check-cfg".to_owned(), Value::Array(left_out))];
    let rust = [("unexpected_cfgs".to_owned(), Value::Table(known.into_iter().collect()))];
    let lints = [("rust".to_owned(), Value::Table(rust.into_iter().collect()))];
    manifest.insert("lints".to_owned(), Value::Table(lints.into_iter().collect()));
}

/// All of the project or none of it, and never over something that is there.
fn write(folder: &Path, files: &[(PathBuf, String)]) -> anyhow::Result<()> {
    if let Some(parent) = folder.parent() {
        fs::create_dir_all(parent).with_context(|| format!("cannot create `{}`", parent.display()))?;
    }
    fs::create_dir(folder).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            anyhow::anyhow!("`{}` is there already; choose another name or `--path`", folder.display())
        }
        _ => anyhow::anyhow!("cannot create `{}`: {error}", folder.display()),
    })?;
    let written = files.iter().try_for_each(|(path, text)| {
        let path = folder.join(path);
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(path, text)
    });
    written.map_err(|error| {
        // The first error is the one to report, whether or not this works.
        let _ = fs::remove_dir_all(folder);
        anyhow::anyhow!("cannot write the project to `{}`: {error}", folder.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sdk_and_the_contract_are_embedded() {
        for expected in
            ["weft-sdk/src/lib.rs", "weft-sdk/src/nn/linear.rs", "weft-sdk/macros/src/lib.rs", "wit/trainer.wit"]
        {
            let found = SOURCES.iter().find(|(path, _)| *path == expected);
            assert!(found.is_some_and(|(_, text)| !text.is_empty()), "{expected}");
        }
    }

    #[test]
    fn manifests_stand_alone() {
        let name: Name = "counter".parse().expect("a name");
        let files = project(&name, true).expect("a project");
        let manifests: Vec<_> = files.iter().filter(|(path, _)| path.ends_with("Cargo.toml")).collect();
        assert_eq!(manifests.len(), 3);
        for (path, text) in manifests {
            let manifest: Table = text.parse().expect("valid TOML");
            assert!(!text.contains("workspace = true"), "{}: {text}", path.display());
            assert!(manifest["package"]["version"].is_str(), "{}: {text}", path.display());
            for (name, value) in manifest["dependencies"].as_table().expect("a table") {
                if let Some(dependency) = value.get("path").and_then(Value::as_str) {
                    let expected = path.parent().expect("a folder").join(dependency).join("Cargo.toml");
                    assert!(files.iter().any(|(path, _)| *path == expected), "{name} is not at {}", expected.display());
                }
            }
        }
    }

    #[test]
    fn a_feature_that_needs_a_crate_from_elsewhere_is_left_out() {
        let manifest = r#"
            [package]
            name = "sdk"
            [features]
            plain = []
            inner = ["dep:inside"]
            outer = ["plain", "dep:outside"]
            [dependencies]
            inside = "1"
            [target.'cfg(unix)'.dependencies]
            outside = { path = "../outside", optional = true }
        "#;
        let made = stand_alone(manifest.parse().expect("valid TOML"), &Table::new()).expect("a manifest");
        let features: Vec<_> = made["features"].as_table().expect("a table").keys().collect();
        assert_eq!(features, ["inner", "plain"]);
        assert!(!made.contains_key("target"));
        let known = &made["lints"]["rust"]["unexpected_cfgs"]["check-cfg"];
        assert_eq!(known[0].as_str(), Some(r#"cfg(feature, values("outer"))"#));
    }

    #[test]
    fn names_that_no_crate_can_have_are_refused() {
        for bad in ["3d", "Upper", "a_b", "", "fn", "test", "weft-sdk", "../x"] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
        assert!(check_name("column-stats").is_ok());
    }

    #[test]
    fn an_existing_folder_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let error = write(folder.path(), &[("x".into(), String::new())]).expect_err("refused");
        assert!(error.to_string().contains("there already"), "{error}");
        assert!(!folder.path().join("x").exists());
    }

    #[test]
    fn a_project_that_cannot_be_written_whole_is_not_left_behind() {
        let parent = tempfile::tempdir().expect("a folder");
        let folder = parent.path().join("counter");
        // A file cannot have another below it.
        let files = [("a".into(), String::new()), ("a/b".into(), String::new())];
        assert!(write(&folder, &files).is_err());
        assert!(!folder.exists());
    }
}
