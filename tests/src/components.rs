//! Functions and guests of this repository, built with `weft build`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};

use anyhow::{Context, Result, ensure};

/// The repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The `weft` binary that belongs to this build: it lies beside the running test.
pub fn weft() -> Result<PathBuf> {
    let here = std::env::current_exe()?;
    let folders = here.ancestors().skip(1).take(2);
    let found = folders.map(|folder| folder.join("weft")).find(|path| path.is_file());
    found.with_context(|| format!("no `weft` binary beside `{}`: run `make test`, or build it first", here.display()))
}

/// The component of a crate, such as `functions/echo`. Each is built once per process.
pub fn component(crate_folder: &str) -> Result<Arc<Vec<u8>>> {
    static BUILT: OnceLock<Mutex<HashMap<String, Arc<Vec<u8>>>>> = OnceLock::new();
    let mut built = BUILT.get_or_init(Mutex::default).lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(component) = built.get(crate_folder) {
        return Ok(component.clone());
    }
    let output = tempfile::Builder::new().suffix(".wasm").tempfile()?.into_temp_path();
    let status = Command::new(weft()?)
        .args(["--quiet", "build"])
        .arg(repository().join(crate_folder))
        .arg("--output")
        .arg(&output)
        .stdout(Stdio::null())
        .status()?;
    ensure!(status.success(), "`weft build {crate_folder}` failed");
    let component = Arc::new(std::fs::read(&output)?);
    built.insert(crate_folder.to_owned(), component.clone());
    Ok(component)
}

/// The same component under another digest: with a custom section that holds `mark`.
pub fn marked(component: &[u8], mark: u64) -> Vec<u8> {
    const NAME: &[u8] = b"mark";
    let size = 1 + NAME.len() + size_of_val(&mark);
    let section = [&[0, size as u8, NAME.len() as u8], NAME, &mark.to_le_bytes()].concat();
    [component, &section].concat()
}

/// Answers with what it was sent.
pub fn echo() -> Result<Arc<Vec<u8>>> {
    component("functions/echo")
}

/// Does whatever harm its request names.
pub fn hostile() -> Result<Arc<Vec<u8>>> {
    component("tests/guests/hostile")
}

/// The component that was built with the first version of the contract and never again.
pub fn stored() -> Result<Vec<u8>> {
    Ok(std::fs::read(repository().join("tests/stored/task-0.1.0.wasm"))?)
}
