//! Lists the sources of the SDK and the contract, which `weft new` writes into each project.

use std::env;
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where they are in the repository, and where they go.
const FOLDERS: [(&str, &str); 3] =
    [("guest-sdk/src", "weft-sdk/src"), ("guest-sdk/macros/src", "weft-sdk/macros/src"), ("wit", "wit")];

fn main() -> io::Result<()> {
    let variable = |name| env::var_os(name).map(PathBuf::from).ok_or_else(|| io::Error::other(name));
    let repository = variable("CARGO_MANIFEST_DIR")?.join("..");
    let mut list = "&[\n".to_owned();
    for (from, to) in FOLDERS {
        let folder = repository.join(from);
        println!("cargo::rerun-if-changed={}", folder.display());
        add(&folder, to, &mut list)?;
    }
    list.push_str("]\n");
    fs::write(variable("OUT_DIR")?.join("sdk_sources.rs"), list)
}

/// The files below a folder as pairs of where they go and what is in them, in the order of their names.
fn add(folder: &Path, to: &str, list: &mut String) -> io::Result<()> {
    let mut paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let to = format!("{to}/{name}");
        if path.is_dir() {
            add(&path, &to, list)?;
        } else {
            writeln!(list, "({to:?}, include_str!({path:?})),").map_err(io::Error::other)?;
        }
    }
    Ok(())
}
