//! `weft build`: make a component from a crate and say what came out.

use std::path::PathBuf;

use super::output::Output;
use crate::build::{Built, Options, build};

/// Build a function's crate into a component. Cargo runs the build scripts and macros of the crate and of all that it
/// depends on, as you: build only what you would also run.
#[derive(Debug, clap::Args)]
pub struct BuildArgs {
    /// The crate's folder or Cargo.toml, or a core module or component in a .wasm file
    #[arg(default_value = ".")]
    path: PathBuf,

    /// Where the component goes [default: weft/NAME.wasm in cargo's target folder]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// The cargo profile to build with
    #[arg(long, default_value = "release", value_name = "PROFILE")]
    cargo_profile: String,

    /// Drop function names too; traps then have no readable backtrace
    #[arg(long)]
    strip: bool,

    /// More arguments for `cargo build`
    #[arg(last = true, value_name = "CARGO ARGUMENTS")]
    cargo_arguments: Vec<String>,
}

pub fn run(args: BuildArgs, out: &Output) -> anyhow::Result<()> {
    let BuildArgs { path, output, cargo_profile, strip, cargo_arguments } = args;
    let options = Options { output, profile: cargo_profile, strip, quiet: out.is_quiet(), cargo_arguments };
    let built = build(&path, &options)?;
    out.show(&built, || describe(&built))
}

fn describe(built: &Built) -> String {
    let list = |names: &[String]| if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
    format!(
        "{name}: {kilobytes:.1} kB, {digest}\n  exports {exports}\n  imports {imports}\n  in {path}\n",
        name = built.name,
        kilobytes = built.bytes as f64 / 1000.0,
        digest = built.digest,
        exports = list(&built.exports),
        imports = list(&built.imports),
        path = built.path.display(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Digest;

    #[test]
    fn a_component_without_imports_says_so() {
        let built = Built {
            name: "echo".into(),
            path: "target/weft/echo.wasm".into(),
            bytes: 21_340,
            digest: Digest::of(b""),
            imports: Vec::new(),
            exports: vec!["handle".into()],
        };
        let text = describe(&built);
        assert!(text.starts_with("echo: 21.3 kB, sha256:e3b0"), "{text}");
        assert!(text.contains("exports handle\n  imports nothing\n"), "{text}");
    }
}
