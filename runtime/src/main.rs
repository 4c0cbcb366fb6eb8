//! The `weft` program. Everything is in [`weft::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    weft::cli::main()
}
