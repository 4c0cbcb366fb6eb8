//! From a Rust crate to a component: cargo, then `wit-component`, in process.
//!
//! Cargo compiles the crate for wasm32-unknown-unknown and speaks for itself on stderr; what it made is found in its own
//! messages, never guessed from names. The core module is then wrapped in a component by the world that `wit-bindgen`
//! left in it. Neither compiles the component to machine code nor checks that a node would take it: that is the
//! registry's, which trusts no upload anyway.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};
use wasmparser::{Parser, Payload};
use wit_component::ComponentEncoder;
use wit_parser::decoding::{DecodedWasm, decode};
use wit_parser::{Resolve, TypeDefKind, WorldItem, WorldKey};

use crate::digest::Digest;
use crate::units::{BadUnit, Size};

const TARGET: &str = "wasm32-unknown-unknown";

/// What a crate may ask for.
const STACKS: RangeInclusive<u64> = 16 << 10..=1 << 30;

/// What a function has for its stack. Rust asks for 1 MiB, which every instance would pay for and few need.
const STACK: Size = Size(256 << 10);

/// How to build.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the component goes; by default `weft/NAME.wasm` in cargo's target folder.
    pub output: Option<PathBuf>,
    /// The cargo profile.
    pub profile: String,
    /// Also drop function names. They cost a few kilobytes and make the backtrace of a trap readable.
    pub strip: bool,
    /// No progress from cargo; warnings and errors still show.
    pub quiet: bool,
    /// More arguments for `cargo build`, such as `--features` or `--locked`.
    pub cargo_arguments: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { output: None, profile: "release".into(), strip: false, quiet: false, cargo_arguments: Vec::new() }
    }
}

/// A component, and what can be said of it without running it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Built {
    /// The crate's library, with hyphens; the file's stem for a `.wasm` that was given.
    pub name: String,
    pub path: PathBuf,
    pub bytes: u64,
    pub digest: Digest,
    /// The interfaces that a host must offer it, such as `weft:train/job@0.1.0`.
    pub imports: Vec<String>,
    /// The functions and interfaces it offers, such as `handle`.
    pub exports: Vec<String>,
}

/// A component that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error("there is no crate at `{0}`: give the folder of a Cargo.toml, the Cargo.toml itself or a .wasm file")]
    NoCrate(PathBuf),
    #[error("`{path}`: `package.metadata.weft`: {problem}; for example `stack = \"1MiB\"`")]
    Metadata { path: PathBuf, problem: String },
    #[error("cannot run `cargo`: {0}; install Rust from https://rustup.rs")]
    NoCargo(io::Error),
    #[error("the Rust target `{TARGET}` is not installed; run `rustup target add {TARGET}`")]
    NoTarget,
    #[error("cargo could not build `{0}`; its messages are above")]
    Cargo(PathBuf),
    #[error("`{0}` makes no wasm library; add this to its Cargo.toml:\n\n    [lib]\n    crate-type = [\"cdylib\"]\n")]
    NoLibrary(PathBuf),
    #[error("`{path}` makes several wasm libraries (`{}`); give the folder of one of them", .names.join("`, `"))]
    SeveralLibraries { path: PathBuf, names: Vec<String> },
    #[error("`{0}` is not a WebAssembly file")]
    NotWasm(PathBuf),
    #[error(
        "`{0}` says nothing of its world: build it with weft-sdk, or with wit-bindgen and the world `weft:train/task`"
    )]
    NoWorld(PathBuf),
    #[error("`{0}` exports no function: mark one with `#[weft_sdk::function]`")]
    NoExport(PathBuf),
    #[error("`{path}` cannot be made a component: {reason}")]
    Encode { path: PathBuf, reason: String },
    #[error("cannot {action} `{path}`: {source}")]
    File { action: &'static str, path: PathBuf, source: io::Error },
}

/// Build the crate at `path` (its folder or its Cargo.toml), or wrap the `.wasm` file there.
pub fn build(path: &Path, options: &Options) -> Result<Built, BuildError> {
    if path.extension().is_some_and(|extension| extension == "wasm") && path.is_file() {
        return wrap_file(path, options);
    }
    let manifest = if path.is_dir() { path.join("Cargo.toml") } else { path.to_owned() };
    if !manifest.is_file() {
        return Err(BuildError::NoCrate(path.to_owned()));
    }
    let manifest = fs::canonicalize(&manifest).map_err(file_error("find", &manifest))?;
    let library = compile(&manifest, options)?;
    let output = options.output.clone().unwrap_or_else(|| library.default_output());
    wrap(library.name, &library.module, &read(&library.module)?, &output, options)
}

fn wrap_file(path: &Path, options: &Options) -> Result<Built, BuildError> {
    let bytes = read(path)?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    if Parser::is_component(&bytes) {
        let output = options.output.as_deref().unwrap_or(path);
        if output != path {
            write_atomically(output, &bytes)?;
        }
        return report(name, output, &bytes);
    }
    let output = options.output.clone().unwrap_or_else(|| path.with_extension("component.wasm"));
    wrap(name, path, &bytes, &output, options)
}

fn wrap(name: String, path: &Path, module: &[u8], output: &Path, options: &Options) -> Result<Built, BuildError> {
    let component = componentize(path, module, options.strip)?;
    let built = report(name, output, &component)?;
    // The linker keeps only what is exported: without an export the rest of the crate is gone as well.
    if built.exports.is_empty() {
        return Err(BuildError::NoExport(path.into()));
    }
    write_atomically(output, &component)?;
    Ok(built)
}

/// A core module that cargo made.
struct Library {
    name: String,
    module: PathBuf,
}

impl Library {
    /// `TARGET_DIR/weft/NAME.wasm`, given a module at `TARGET_DIR/TRIPLE/PROFILE/NAME.wasm`.
    fn default_output(&self) -> PathBuf {
        let folder = self.module.ancestors().nth(3).unwrap_or(Path::new("."));
        folder.join("weft").join(format!("{}.wasm", self.name))
    }
}

/// The part of cargo's messages that names what it made.
#[derive(Deserialize)]
struct Message {
    reason: String,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    #[serde(default)]
    filenames: Vec<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    #[serde(default)]
    crate_types: Vec<String>,
}

fn compile(manifest: &Path, options: &Options) -> Result<Library, BuildError> {
    let folder = manifest.parent().unwrap_or(Path::new("."));
    let mut command = cargo(folder);
    command
        .args(["build", "--target", TARGET, "--message-format", "json-render-diagnostics"])
        .args(["--profile", &options.profile])
        .arg("--manifest-path")
        .arg(manifest)
        .arg("--config")
        .arg(format!("target.{TARGET}.rustflags={}", toml::Value::from(rust_flags(stack_of(manifest)?))))
        .args(options.quiet.then_some("--quiet"))
        .args(&options.cargo_arguments);
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(BuildError::NoCargo)?;

    let mut libraries = Vec::new();
    if let Some(messages) = child.stdout.take() {
        for line in BufReader::new(messages).lines() {
            let line = line.map_err(BuildError::NoCargo)?;
            // What a build script or a newer cargo prints there is not for us.
            if let Ok(message) = serde_json::from_str::<Message>(&line) {
                libraries.extend(library_of(message));
            }
        }
    }
    let status = child.wait().map_err(BuildError::NoCargo)?;
    if !status.success() {
        return Err(if target_installed(folder) { BuildError::Cargo(folder.into()) } else { BuildError::NoTarget });
    }
    choose(libraries, manifest)
}

/// The wasm library that a message announces, and the manifest it comes from.
fn library_of(message: Message) -> Option<(PathBuf, Library)> {
    let target = message.target.filter(|_| message.reason == "compiler-artifact")?;
    if !target.crate_types.iter().any(|kind| kind == "cdylib") {
        return None;
    }
    let module = message.filenames.into_iter().find(|file| file.extension().is_some_and(|end| end == "wasm"))?;
    Some((message.manifest_path?, Library { name: target.name.replace('_', "-"), module }))
}

/// A dependency may be a function too; the crate that was asked for comes first.
fn choose(mut libraries: Vec<(PathBuf, Library)>, manifest: &Path) -> Result<Library, BuildError> {
    let folder = manifest.parent().unwrap_or(Path::new("."));
    if let Some(own) = libraries.iter().position(|(from, _)| from == manifest) {
        return Ok(libraries.swap_remove(own).1);
    }
    match libraries.len() {
        0 => Err(BuildError::NoLibrary(folder.into())),
        1 => Ok(libraries.swap_remove(0).1),
        _ => {
            let names = libraries.into_iter().map(|(_, library)| library.name).collect();
            Err(BuildError::SeveralLibraries { path: folder.into(), names })
        }
    }
}

/// In the crate's own folder, where its `rust-toolchain.toml` and `.cargo/config.toml` count.
fn cargo(folder: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(folder).stdin(Stdio::null());
    command
}

/// The stack that a crate asks for in `package.metadata.weft`, or what every function has.
fn stack_of(manifest: &Path) -> Result<Size, BuildError> {
    let bad = |problem: String| BuildError::Metadata { path: manifest.to_owned(), problem };
    let text = fs::read_to_string(manifest).map_err(file_error("read", manifest))?;
    // What cargo cannot read either, it says more about.
    let Ok(crate_facts) = text.parse::<toml::Table>() else { return Ok(STACK) };
    let metadata = crate_facts.get("package").and_then(|package| package.get("metadata")?.get("weft"));
    let Some(metadata) = metadata else { return Ok(STACK) };
    let metadata = CrateMetadata::deserialize(metadata.clone()).map_err(|error| bad(error.message().to_owned()))?;
    let Some(stack) = metadata.stack else { return Ok(STACK) };
    let stack: Size = stack.parse().map_err(|error: BadUnit| bad(format!("`stack`: {error}")))?;
    match STACKS.contains(&stack.0) && stack.0.is_multiple_of(16) {
        true => Ok(stack),
        false => Err(bad(format!("`stack` must be from {} to {} bytes, by 16", STACKS.start(), STACKS.end()))),
    }
}

/// What a crate may say of itself.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CrateMetadata {
    stack: Option<String>,
}

fn rust_flags(stack: Size) -> Vec<String> {
    let mut flags = remap_paths();
    flags.push(format!("-Clink-arg=-zstack-size={}", stack.0));
    flags
}

/// Panic messages name source files. Without the builder's home folder in them the same source gives the same digest
/// on every machine, and the component tells nobody who built it.
fn remap_paths() -> Vec<String> {
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    let Some(sources) = home.map(|home| home.join("registry/src")) else { return Vec::new() };
    // Below it is one folder per registry, named after a server and a hash that both differ between machines.
    let registries = fs::read_dir(sources).into_iter().flatten().flatten().map(|entry| entry.path());
    let flag = |registry: PathBuf| registry.to_str().map(|path| format!("--remap-path-prefix={path}=crates"));
    registries.filter_map(flag).collect()
}

/// Asked of the toolchain that the crate's folder selects, and only after a failure: it costs a process.
fn target_installed(folder: &Path) -> bool {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let printed =
        Command::new(rustc).args(["--print", "target-libdir", "--target", TARGET]).current_dir(folder).output();
    let Ok(printed) = printed else { return true };
    let libraries = fs::read_dir(String::from_utf8_lossy(&printed.stdout).trim()).into_iter().flatten().flatten();
    libraries.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with("libcore"))
}

fn componentize(path: &Path, module: &[u8], strip: bool) -> Result<Vec<u8>, BuildError> {
    if !Parser::is_core_wasm(module) {
        return Err(BuildError::NotWasm(path.into()));
    }
    let encode_error = |reason: String| BuildError::Encode { path: path.into(), reason };
    let Stripped { module, has_world } =
        strip_module(module, strip).map_err(|error| encode_error(error.to_string()))?;
    if !has_world {
        return Err(BuildError::NoWorld(path.into()));
    }
    ComponentEncoder::default()
        .validate(true)
        .module(&module)
        .and_then(|mut encoder| encoder.encode())
        .map_err(|error| encode_error(format!("{error:#}")))
}

struct Stripped {
    module: Vec<u8>,
    /// Whether `wit-bindgen` left a description of the module's world in it.
    has_world: bool,
}

/// The module without its debug information, and without names if `names` are to go too.
fn strip_module(module: &[u8], names: bool) -> Result<Stripped, wasmparser::BinaryReaderError> {
    let mut kept = Vec::with_capacity(module.len());
    let mut has_world = false;
    // Sections follow each other without a gap, so a section's header starts where the one before it ended.
    let mut end = 0;
    for payload in Parser::new(0).parse_all(module) {
        let payload = payload?;
        let keep = match &payload {
            Payload::CustomSection(section) => {
                has_world |= section.name().starts_with("component-type");
                let drop = section.name().starts_with(".debug") || (names && section.name() == "name");
                !drop
            }
            _ => true,
        };
        let section_end = match &payload {
            Payload::Version { range, .. } => range.end,
            other => match other.as_section() {
                Some((_, range)) => range.end,
                None => continue,
            },
        };
        if keep {
            kept.extend_from_slice(&module[end..section_end]);
        }
        end = section_end;
    }
    Ok(Stripped { module: kept, has_world })
}

fn report(name: String, path: &Path, component: &[u8]) -> Result<Built, BuildError> {
    let encode_error = |reason: String| BuildError::Encode { path: path.into(), reason };
    let decoded = decode(component).map_err(|error| encode_error(format!("{error:#}")))?;
    let DecodedWasm::Component(resolve, world) = decoded else {
        return Err(encode_error("it is an encoded WIT package, with no code in it".into()));
    };
    let world = &resolve.worlds[world];
    Ok(Built {
        name,
        path: path.to_owned(),
        bytes: component.len() as u64,
        digest: Digest::of(component),
        imports: callable(&resolve, &world.imports),
        exports: callable(&resolve, &world.exports),
    })
}

/// The names of what can be called; an interface of plain types asks nothing of a host.
fn callable<'a>(resolve: &Resolve, items: impl IntoIterator<Item = (&'a WorldKey, &'a WorldItem)>) -> Vec<String> {
    let can_be_called = |item: &WorldItem| match item {
        WorldItem::Function(_) => true,
        WorldItem::Type { .. } => false,
        WorldItem::Interface { id, .. } => {
            let interface = &resolve.interfaces[*id];
            let is_resource = |id: &wit_parser::TypeId| matches!(resolve.types[*id].kind, TypeDefKind::Resource);
            !interface.functions.is_empty() || interface.types.values().any(is_resource)
        }
    };
    items.into_iter().filter(|(_, item)| can_be_called(item)).map(|(key, _)| resolve.name_world_key(key)).collect()
}

fn read(path: &Path) -> Result<Vec<u8>, BuildError> {
    fs::read(path).map_err(file_error("read", path))
}

/// Beside its place first, then renamed: nobody deploys half a component.
fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), BuildError> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(file_error("create", folder))?;
    }
    let mut partial = path.as_os_str().to_owned();
    partial.push(format!(".{}.partial", std::process::id()));
    let partial = PathBuf::from(partial);
    fs::write(&partial, bytes).and_then(|()| fs::rename(&partial, path)).map_err(|source| {
        // It may not even exist; the error to report is the first one.
        let _ = fs::remove_file(&partial);
        file_error("write", path)(source)
    })
}

fn file_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BuildError {
    let path = path.to_owned();
    move |source| BuildError::File { action, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifact(manifest: &str, name: &str, kinds: &str) -> Option<(PathBuf, Library)> {
        let text = format!(
            r#"{{"reason":"compiler-artifact","manifest_path":"{manifest}","filenames":["/t/x/release/lib{name}.rlib","/t/x/release/{name}.wasm"],
                "target":{{"name":"{name}","crate_types":[{kinds}]}},"fresh":true}}"#
        );
        library_of(serde_json::from_str(&text).expect("a message of cargo's"))
    }

    #[test]
    fn only_a_cdylib_counts_as_a_wasm_library() {
        assert!(artifact("/a/Cargo.toml", "a_b", r#""rlib""#).is_none());
        let (_, library) = artifact("/a/Cargo.toml", "a_b", r#""rlib","cdylib""#).expect("a library");
        assert_eq!(library.name, "a-b");
        assert_eq!(library.default_output(), Path::new("/t/weft/a-b.wasm"));
    }

    #[test]
    fn a_crate_may_ask_for_its_stack() {
        let folder = tempfile::tempdir().expect("a folder");
        let manifest = folder.path().join("Cargo.toml");
        let stack = |text: &str| {
            fs::write(&manifest, text).expect("written");
            stack_of(&manifest).map(|stack| stack.0).map_err(|error| error.to_string())
        };
        assert_eq!(stack("[package]\nname = \"a\""), Ok(256 << 10));
        assert_eq!(stack("[package.metadata.weft]\nstack = \"2MiB\""), Ok(2 << 20));
        for (wrong, why) in [
            ("stack = \"much\"", "`much` is not a size"),
            ("stack = \"1KiB\"", "from 16384 to"),
            ("stack = \"16385\"", "by 16"),
            ("heap = \"1MiB\"", "unknown field `heap`"),
        ] {
            let error = stack(&format!("[package.metadata.weft]\n{wrong}")).expect_err(wrong);
            assert!(error.contains(why) && error.contains("Cargo.toml"), "{error}");
        }
    }

    #[test]
    fn the_crate_asked_for_wins_over_a_dependency_that_is_a_function_too() {
        let both = ["/dep/Cargo.toml", "/own/Cargo.toml"]
            .into_iter()
            .filter_map(|path| artifact(path, &path[1..4], r#""cdylib""#));
        assert_eq!(choose(both.collect(), Path::new("/own/Cargo.toml")).expect("a library").name, "own");
    }

    #[test]
    fn a_workspace_of_several_functions_names_them() {
        let both =
            ["one", "two"].into_iter().filter_map(|name| artifact("/x/Cargo.toml", name, r#""cdylib""#)).collect();
        let error = choose(both, Path::new("/Cargo.toml")).err().map(|error| error.to_string());
        assert!(error.is_some_and(|text| text.contains("`one`, `two`")));
    }

    #[test]
    fn a_crate_without_a_wasm_library_is_told_what_to_add() {
        let error = choose(Vec::new(), Path::new("/a/Cargo.toml")).err().map(|error| error.to_string());
        assert!(error.is_some_and(|text| text.contains("crate-type = [\"cdylib\"]")));
    }

    /// An empty core module with the named custom sections.
    fn module(sections: &[&str]) -> Vec<u8> {
        let mut module = b"\0asm\x01\0\0\0".to_vec();
        for name in sections {
            module.extend([0, name.len() as u8 + 2, name.len() as u8]);
            module.extend(name.bytes());
            module.push(7);
        }
        module
    }

    #[test]
    fn debug_information_goes_and_names_stay() {
        let stripped = strip_module(&module(&[".debug_info", "name", ".debug_line"]), false).expect("a valid module");
        assert_eq!(stripped.module, module(&["name"]));
        let stripped = strip_module(&module(&["name", "producers"]), true).expect("a valid module");
        assert_eq!(stripped.module, module(&["producers"]));
    }

    #[test]
    fn a_module_of_another_tool_is_told_that_its_world_is_missing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("plain.wasm");
        fs::write(&path, module(&["name"])).expect("written");
        assert!(matches!(build(&path, &Options::default()), Err(BuildError::NoWorld(_))));
        fs::write(&path, b"GIF89a").expect("written");
        assert!(matches!(build(&path, &Options::default()), Err(BuildError::NotWasm(_))));
    }

    #[test]
    fn a_folder_without_a_manifest_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(matches!(build(folder.path(), &Options::default()), Err(BuildError::NoCrate(_))));
    }
}
