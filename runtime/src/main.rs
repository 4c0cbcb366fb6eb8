//! The `weft` program. Everything is in [`weft::cli`].

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: weft::resident::Allocator = weft::resident::Allocator;

fn main() -> ExitCode {
    weft::cli::main()
}
