//! What functions are built with, and what a node can make use of.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Finding;
use super::machine::version;

/// The first Rust that functions and this repository build with.
const RUST: (u32, u32) = (1, 95);
const TARGET: &str = "wasm32-unknown-unknown";
const VULKAN_DRIVERS: [&str; 2] = ["/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d"];

pub fn look() -> Vec<Finding> {
    vec![rust("rustc"), rust("cargo"), target(), linker(), devices(), redis()]
}

/// What a program prints, if it can be run.
fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Nothing here is a problem: a node runs without, and functions can be built elsewhere.
fn rust(program: &'static str) -> Finding {
    let (major, minor) = RUST;
    match output(program, &["--version"]) {
        None => Finding::note(program, "not found: functions cannot be built here")
            .remedy("install Rust: https://rustup.rs"),
        Some(text) if version(&text).is_some_and(|found| found >= RUST) => Finding::ok(program, text),
        Some(text) => Finding::note(program, format!("{text} is too old to build functions"))
            .remedy(format!("`rustup update`: {major}.{minor} or later is needed")),
    }
}

fn target() -> Finding {
    let folder = output("rustc", &["--print", "sysroot"])
        .map(|sysroot| Path::new(&sysroot).join("lib/rustlib").join(TARGET).join("lib"));
    match folder {
        Some(folder) if folder.is_dir() => Finding::ok("wasm target", TARGET),
        _ => Finding::note("wasm target", format!("{TARGET} is not installed: functions cannot be built here"))
            .remedy(format!("`rustup target add {TARGET}`")),
    }
}

fn linker() -> Finding {
    match on_path("cc") {
        Some(path) => Finding::ok("linker", path.display().to_string()),
        None => Finding::note("linker", "there is no `cc`: build scripts and macros of functions cannot be built here")
            .remedy("install a C compiler, such as the package `gcc` or `build-essential`"),
    }
}

fn on_path(program: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(program)).find(|path| path.is_file())
}

fn devices() -> Finding {
    let mut drivers: Vec<String> = VULKAN_DRIVERS
        .iter()
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flat_map(|entries| entries.filter_map(Result::ok))
        .filter_map(|entry| Some(Path::new(&entry.file_name()).file_stem()?.to_string_lossy().into_owned()))
        .collect();
    drivers.sort();
    if drivers.is_empty() {
        return Finding::note("devices", "the CPU; GPU devices: none, there is no Vulkan driver");
    }
    Finding::ok(
        "devices",
        format!("the CPU; Vulkan drivers {}: `weft devices` lists what they find", drivers.join(", ")),
    )
}

fn redis() -> Finding {
    let detail = match on_path("redis-server").or_else(|| on_path("valkey-server")) {
        Some(path) => format!("{}; a single node does not need it", path.display()),
        None => "not installed; a single node does not need it".to_owned(),
    };
    Finding::note("redis", detail)
}
