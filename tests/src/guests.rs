//! Components that no compiler would make: hand-written ones from `guests/wat`, and ones that are made to do harm.
//!
//! What misbehaves only when it is called is the crate `guests/hostile`, built like any other function.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result};

/// The component (or module) that `guests/wat/NAME.wat` describes.
pub fn wat(name: &str) -> Result<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("guests/wat").join(name).with_extension("wat");
    wat::parse_file(&path).with_context(|| format!("`{}` does not parse", path.display()))
}

/// The first `numerator` of `denominator` parts of a component: an upload that broke off.
pub fn truncated(component: &[u8], numerator: usize, denominator: usize) -> &[u8] {
    &component[..component.len() * numerator / denominator]
}

/// How many loops stand inside each other in the compile bomb, and how many variables each of them carries around.
const LOOPS: usize = 2500;
const VARIABLES: usize = 2500;

/// A small, valid task that takes a compiler minutes and gigabytes.
///
/// Loops inside loops, the innermost of which changes every variable: each loop has to carry each variable, so the
/// number of values a compiler keeps is the product of two numbers that the file only holds the sum of.
pub fn compile_bomb() -> Result<Vec<u8>> {
    let mut function = String::new();
    write!(function, "(func (export \"bomb\") (param i32) (result i32) (local{})", " i32".repeat(VARIABLES))?;
    function.push_str(&" loop".repeat(LOOPS));
    for variable in 1..=VARIABLES {
        let other = variable % VARIABLES + 1;
        write!(function, " local.get {variable} local.get {other} i32.add local.get 0 i32.xor local.set {variable}")?;
    }
    for depth in 0..LOOPS {
        write!(function, " local.get {} br_if 0 end", depth % VARIABLES + 1)?;
    }
    function.push_str(" i32.const 0");
    for variable in 1..=VARIABLES {
        write!(function, " local.get {variable} i32.add")?;
    }
    function.push(')');

    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("guests/wat/plain.wat");
    let plain = std::fs::read_to_string(&path).with_context(|| format!("reading `{}`", path.display()))?;
    let (before, after) =
        plain.split_once(";; more functions").context("`plain.wat` has no place for more functions")?;
    Ok(wat::parse_str(format!("{before}{function}{after}"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hand_written_guest_parses() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("guests/wat");
        for entry in std::fs::read_dir(folder).expect("the folder of guests") {
            let path = entry.expect("an entry").path();
            wat(&path.file_stem().expect("a name").to_string_lossy()).expect("valid text");
        }
    }

    #[test]
    fn the_compile_bomb_is_a_small_upload() {
        assert!(compile_bomb().expect("a component").len() < 1_000_000);
    }
}
