//! The compiler's own process: a component on standard input, native code on standard output.
//!
//! Started by [`super::Compiler`] with an environment that only says what it is. It takes its limits from its arguments and sets them on
//! itself before it reads a byte, so that a component made to exhaust the compiler exhausts only this process; and it puts
//! itself in a [`jail`]. Why a component was refused goes to standard error as one line of text.

use std::io::{self, Read, Write};
use std::process::ExitCode;

use rustix::process::{Resource, Rlimit, setrlimit};

use super::{engine, jail};

/// The exit code for a component that is not acceptable, as opposed to a compiler that died.
pub const REFUSED: u8 = 3;

/// Compiles; `memory` and `output` are in bytes, `seconds` is CPU time.
pub fn run(memory: u64, output: u64, seconds: u64) -> ExitCode {
    let confined = limit_self(memory, output, seconds).and_then(|()| jail::enter());
    match confined.map_err(|error| format!("limits: {error}")).and_then(|()| compile()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{}", reason.replace('\n', " "));
            ExitCode::from(REFUSED)
        }
    }
}

fn limit_self(memory: u64, output: u64, seconds: u64) -> io::Result<()> {
    let both = |value| Rlimit { current: Some(value), maximum: Some(value) };
    setrlimit(Resource::As, both(memory))?;
    setrlimit(Resource::Cpu, both(seconds))?;
    setrlimit(Resource::Fsize, both(output))?;
    setrlimit(Resource::Core, both(0))?;
    setrlimit(Resource::Nofile, both(16))?;
    // A deploy must not slow down what is already running.
    rustix::process::nice(10)?;
    Ok(())
}

fn compile() -> Result<(), String> {
    let mut wasm = Vec::new();
    io::stdin().lock().read_to_end(&mut wasm).map_err(|error| format!("reading the component: {error}"))?;
    let artifact = precompile(&wasm)?;
    io::stdout().lock().write_all(&artifact).map_err(|error| format!("writing the artifact: {error}"))
}

/// Native code of a component. It takes as much time and memory as the component makes it take, so only a process with
/// limits calls it.
pub fn precompile(wasm: &[u8]) -> Result<Vec<u8>, String> {
    match wasm.get(..8) {
        Some([0, b'a', b's', b'm', 1, 0, 0, 0]) => {
            return Err("this is a core module, not a component: build it with `weft build`".to_owned());
        }
        Some([0, b'a', b's', b'm', 0x0d, 0, 1, 0]) => {}
        _ => return Err("this is not a WebAssembly component: build one with `weft build`".to_owned()),
    }
    let engine = engine::compiling().map_err(|error| format!("{error:#}"))?;
    engine.precompile_component(wasm).map_err(|error| format!("{error:#}"))
}
