//! The price table of a node, or any other: from a file, or by its name.
//!
//! What a table says and how it is checked is in [`weft_core::plan::prices`].

use std::path::{Path, PathBuf};

use weft_core::plan::prices::{PRESETS, PriceTable, preset};

/// The most that is read of a file: a table has some dozen lines.
const MOST_BYTES: u64 = 1 << 20;

/// Why there is no table.
#[derive(Debug, thiserror::Error)]
pub enum NoPrices {
    #[error("there are no prices called `{name}`: use {known}, or a file's path, as in `/etc/weft/prices.toml`", known = known())]
    Unknown { name: String },
    #[error("price table `{}`: {error}", path.display())]
    Unreadable { path: PathBuf, error: std::io::Error },
    #[error("price table `{}` has more than {MOST_BYTES} bytes: that is none", path.display())]
    TooLarge { path: PathBuf },
    #[error("price table `{}`: {}", path.display(), error.to_string().trim_end())]
    Malformed { path: PathBuf, error: Box<toml::de::Error> },
}

fn known() -> String {
    PRESETS.map(|name| format!("`{name}`")).join(", ")
}

/// The table that a setting names: one that comes with Weft, or a file.
pub fn named(word: &str) -> Result<PriceTable, NoPrices> {
    match preset(word) {
        Ok(table) => Ok(table),
        Err(_) if !word.contains(['/', '\\', '.']) => Err(NoPrices::Unknown { name: word.chars().take(40).collect() }),
        Err(_) => from_file(Path::new(word)),
    }
}

/// A table from a TOML file. A key that is no price, and a price that is none, are errors that name them.
pub fn from_file(path: &Path) -> Result<PriceTable, NoPrices> {
    let unreadable = |error| NoPrices::Unreadable { path: path.to_owned(), error };
    if std::fs::metadata(path).map_err(unreadable)?.len() > MOST_BYTES {
        return Err(NoPrices::TooLarge { path: path.to_owned() });
    }
    let text = std::fs::read_to_string(path).map_err(unreadable)?;
    toml::from_str(&text).map_err(|error| NoPrices::Malformed { path: path.to_owned(), error: Box::new(error) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("prices.toml");
        std::fs::write(&path, text).unwrap();
        (folder, path)
    }

    #[test]
    fn a_setting_names_a_preset_or_a_file() {
        assert_eq!(named("lambdaml").unwrap(), preset("lambdaml").unwrap());
        let (_folder, path) = file("as_of = \"2026-11\"\ngib_second = 2e-5\n[device_second]\nt4 = 0.1\n");
        let table = named(path.to_str().unwrap()).unwrap();
        assert_eq!((table.gib_second, table.device_second["t4"]), (2e-5, 0.1));
        assert!(named("tomorrow").unwrap_err().to_string().contains("`feng`"));
        let missing = named("no/prices.toml").unwrap_err().to_string();
        assert!(missing.contains("no/prices.toml"), "{missing}");
    }

    #[test]
    fn what_is_wrong_in_a_file_is_named_with_the_file() {
        for (text, words) in [
            ("as_of = \"2026\"\ngib_second = -1", "`gib_second` is -1"),
            ("as_of = \"2026\"\ncpu = 1", "unknown field `cpu`"),
            ("as_of = \"2026\"\ncore_second = \"much\"", "core_second"),
            ("as_of = \"soon\"", "`as_of` is `soon`"),
            ("gib_second = 1", "as_of"),
            ("as_of = \"2026\"\n[device_second]\nt4 = nan", "`device_second.t4`"),
            ("as_of = ", "prices.toml"),
        ] {
            let (_folder, path) = file(text);
            let error = from_file(&path).unwrap_err().to_string();
            assert!(error.contains(words) && error.contains("prices.toml"), "{text}: {error}");
        }
    }
}
