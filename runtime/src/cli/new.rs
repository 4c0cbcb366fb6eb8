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

/// Start a project for a function.
#[derive(Debug, clap::Args)]
pub struct NewArgs {
    /// The name of the function: lower-case letters, digits and inner hyphens
    name: String,

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

macro_rules! sources {
    ($($from:literal => $to:literal),* $(,)?) => {
        &[$(($to, include_str!(concat!("../../../", $from)))),*]
    };
}

const SOURCES: &[Source] = sources! {
    "guest-sdk/src/allocator.rs" => "weft-sdk/src/allocator.rs",
    "guest-sdk/src/bindings.rs" => "weft-sdk/src/bindings.rs",
    "guest-sdk/src/error.rs" => "weft-sdk/src/error.rs",
    "guest-sdk/src/job.rs" => "weft-sdk/src/job.rs",
    "guest-sdk/src/job/stand_in.rs" => "weft-sdk/src/job/stand_in.rs",
    "guest-sdk/src/lib.rs" => "weft-sdk/src/lib.rs",
    "guest-sdk/src/panic.rs" => "weft-sdk/src/panic.rs",
    "guest-sdk/src/task.rs" => "weft-sdk/src/task.rs",
    "guest-sdk/macros/src/lib.rs" => "weft-sdk/macros/src/lib.rs",
    "wit/job.wit" => "wit/job.wit",
    "wit/task.wit" => "wit/task.wit",
    "wit/types.wit" => "wit/types.wit",
};

/// Manifests, which lean on the workspace's and so cannot be written as they are.
const MANIFESTS: &[Source] = sources! {
    "guest-sdk/Cargo.toml" => "weft-sdk/Cargo.toml",
    "guest-sdk/macros/Cargo.toml" => "weft-sdk/macros/Cargo.toml",
};

const WORKSPACE: &str = include_str!("../../../Cargo.toml");

pub fn run(args: NewArgs, out: &Output) -> anyhow::Result<()> {
    let name = check_name(&args.name)?;
    let folder = args.path.unwrap_or_else(|| name.as_str().into());
    let files = project(&name)?;
    write(&folder, &files)?;
    let shown = folder.display();
    let value = serde_json::json!({ "name": name.as_str(), "path": &folder });
    out.done(&value, format!("made `{name}` in {shown}; put it on a node with `weft deploy {shown}`"))
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
fn project(name: &Name) -> anyhow::Result<Vec<(PathBuf, String)>> {
    let template = |text: &str| text.replace("{name}", name.as_str());
    let mut files = vec![
        ("Cargo.toml".into(), template(MANIFEST)),
        ("src/lib.rs".into(), template(FUNCTION)),
        ("README.md".into(), template(README)),
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
    for part in ["lints", "dev-dependencies"] {
        manifest.remove(part);
    }
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

const MANIFEST: &str = r#"[package]
name = "{name}"
version = "0.1.0"
edition = "2024"
publish = false

[lib]
crate-type = ["cdylib"]

[dependencies]
weft-sdk = { path = "vendor/weft-sdk" }

# Small components upload, compile and start faster.
[profile.release]
opt-level = "s"
lto = true
codegen-units = 1

# A workspace of its own, also when it lies inside another.
[workspace]
"#;

const FUNCTION: &str = r#"//! {name}: counts the words of a text.

use weft_sdk::{Request, Response, Result};

/// Called once per request, each time in a fresh instance: nothing is left of the request before.
#[weft_sdk::function]
fn handle(request: Request) -> Result<Response> {
    // A body that is not text is the caller's mistake, and `?` tells them so.
    let words = request.text()?.split_whitespace().count();
    // Logged lines are kept on the node; `weft logs {name}` shows them.
    weft_sdk::info!("counted {words} words");
    Ok(Response::text(format!("{words}\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Plain `cargo test` runs this natively, without a node.
    #[test]
    fn words_are_counted() {
        let request = Request { body: b"three little words".to_vec(), ..Request::default() };
        assert_eq!(handle(request), Ok(Response::text("3\n")));
    }
}
"#;

const README: &str = r#"# {name}

A function for Weft.

```
weft serve --dev                               # a node on this machine, in another terminal
weft deploy . --name {name}                    # builds the function and puts it on the node
weft invoke {name} --data "three little words"
weft logs {name}
```

`vendor/` holds the SDK that the function is built with, as it came with the `weft` that made this project.
"#;

#[cfg(test)]
mod tests {
    use super::*;

    fn files_below(folder: &Path, prefix: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).expect("a folder of the repository") {
            let path = entry.expect("an entry").path();
            let name = prefix.join(path.file_name().expect("a name"));
            if path.is_dir() { files_below(&path, &name, found) } else { found.push(name) }
        }
    }

    #[test]
    fn every_source_of_the_sdk_and_the_contract_is_embedded() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut present = Vec::new();
        for (folder, to) in
            [("guest-sdk/src", "weft-sdk/src"), ("guest-sdk/macros/src", "weft-sdk/macros/src"), ("wit", "wit")]
        {
            files_below(&root.join(folder), Path::new(to), &mut present);
        }
        let mut embedded: Vec<PathBuf> = SOURCES.iter().map(|(path, _)| path.into()).collect();
        present.sort();
        embedded.sort();
        assert_eq!(embedded, present);
    }

    #[test]
    fn manifests_stand_alone() {
        let name: Name = "counter".parse().expect("a name");
        let files = project(&name).expect("a project");
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
