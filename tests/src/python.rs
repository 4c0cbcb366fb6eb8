//! A real Python with the libraries whose files Weft reads and writes.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::components::repository;

/// The interpreter: `WEFT_PYTHON`, or the one that the setup made.
///
/// # Panics
/// Where neither is there: a test that needs it must not pass without it.
pub fn python() -> PathBuf {
    let set_up = || repository().join("target/python/bin/python");
    let path = std::env::var_os("WEFT_PYTHON").map_or_else(set_up, PathBuf::from);
    assert!(path.is_file(), "no Python at `{}`: run scripts/setup.sh test", path.display());
    path
}

/// Runs a script in a folder and gives what it printed.
pub fn run(script: &str, folder: &Path) -> Result<String> {
    let output = Command::new(python()).args(["-c", script]).current_dir(folder).output().context("python")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "python ended with {}:\n{errors}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}
