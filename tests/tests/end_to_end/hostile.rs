//! Guests that do harm, each on a node of its own, over and over, beside a tenant that does none.
//!
//! A harm is one entry of the table below: what is uploaded, what it is called with, and what is to come of it. Each
//! becomes a module of tests, which all look at the same run. `WEFT_SOAK=1000` does each harm a thousand times instead of
//! twenty; those that take seconds (`seldom`) a tenth of that.

use anyhow::Result;

mod harm;
mod seen;

pub use harm::Harm;
use harm::Upload::{CompileBomb, Garbage, Hostile, Nothing, Truncated, Wat};
pub use seen::Held as ProcessHeld;

macro_rules! harms {
    ($($(#[doc = $doc:literal])+ $name:ident: $harm:expr;)+) => {
        $(
            $(#[doc = $doc])+
            mod $name {
                use std::sync::OnceLock;

                use anyhow::Result;

                use super::*;

                fn seen() -> Result<&'static seen::Seen> {
                    static SEEN: OnceLock<Result<seen::Seen, String>> = OnceLock::new();
                    seen::Seen::once(&SEEN, || Ok($harm))
                }

                #[test]
                fn the_caller_is_told() -> Result<()> {
                    seen()?.the_caller_is_told()
                }

                #[test]
                fn the_ledger_is_right() -> Result<()> {
                    seen()?.the_ledger_is_right()
                }

                #[test]
                fn the_log_says_what_it_should() -> Result<()> {
                    seen()?.the_log_says_what_it_should()
                }

                #[test]
                fn only_what_was_accepted_is_stored() -> Result<()> {
                    seen()?.only_what_was_accepted_is_stored()
                }

                #[test]
                fn other_tenants_go_on() -> Result<()> {
                    seen()?.other_tenants_go_on()
                }

                #[test]
                fn the_node_is_healthy_afterwards() -> Result<()> {
                    seen()?.the_node_is_healthy_afterwards()
                }

                #[test]
                fn nothing_leaks() -> Result<()> {
                    seen()?.nothing_leaks()
                }
            }
        )+

        /// Every harm, for those who want them all at once.
        pub fn all() -> Result<Vec<(&'static str, Harm)>> {
            Ok(vec![$((stringify!($name), $harm)),+])
        }
    };
}

harms! {
    /// Never returns and calls nothing.
    endless_loop: Harm::call(Hostile, "loop")?.with("cpu_ms", 100).runs_out_of("cpu_ms").costs_cpu_ms(100);
    /// Never returns, and has CPU time to spare.
    endless_loop_by_the_wall_clock: Harm::call(Hostile, "loop")?.with("wall_ms", 150).runs_out_of("wall_ms");
    /// Never returns from making the instance.
    endless_start: Harm::call(Wat("start-loop"), "")?.with("cpu_ms", 100).runs_out_of("cpu_ms").costs_cpu_ms(100);
    /// Waits in the host for an hour.
    endless_sleep: Harm::call(Wat("wasi-sleep"), "3600")?.with("wall_ms", 150).runs_out_of("wall_ms");
    /// Takes memory until it is refused.
    memory_bomb: Harm::call(Hostile, "alloc")?.exceeds("instance_memory");
    /// Takes more memory than its tenant has, though less than an instance may.
    memory_bomb_within_the_instance: Harm::call(Hostile, "alloc")?.with("memory", 16 << 20).exceeds("memory");
    /// Takes more memory than the operator lets any instance have.
    memory_bomb_on_a_small_node: Harm::call(Hostile, "alloc")?
        .node("max-instance-memory", "16MiB")
        .exceeds("max_instance_memory");
    /// Fills 400 MB with one instruction. Nothing can interrupt that, so others are let in beside it.
    long_instruction: Harm::call(Hostile, "alloc:400000000")?
        .with("instance_memory", 512 << 20)
        .with("memory", 2u64 << 30)
        .answers("400000000");
    /// Asks for 3 GiB before its first instruction.
    big_memory: Harm::call(Wat("big-memory"), "")?.exceeds("instance_memory");
    /// Has 41 memories, none of them large.
    many_memories: Harm::upload(Wat("many-memories"))?.refused("memor");
    /// Grows a table until it is refused.
    table_bomb: Harm::call(Wat("table-bomb"), "")?.exceeds("max_table_elements");
    /// Has ten million table entries before its first instruction.
    big_table: Harm::upload(Wat("big-table"))?.refused("table");
    /// Calls itself for ever.
    deep_recursion: Harm::call(Hostile, "recurse")?.exceeds("max_wasm_stack");
    /// Executes `unreachable`.
    trap: Harm::call(Hostile, "trap")?.traps("unreachable");
    /// Panics: what it said is for the caller and for the log.
    panic: Harm::call(Hostile, "panic")?.traps("told to panic").logs("told to panic");
    /// Logs until it is stopped.
    endless_log: Harm::call(Hostile, "flood")?
        .with("cpu_ms", 100).runs_out_of("cpu_ms").costs_log_bytes(62 << 10..=64 << 10).logs("bytes of log were dropped");
    /// Logs far more than it may, and comes to an end.
    log_flood: Harm::call(Hostile, "flood:2000")?
        .answers("2000").costs_log_bytes(62 << 10..=64 << 10).logs("bytes of log were dropped");
    /// Answers with more than an answer may have.
    huge_response: Harm::call(Hostile, "huge:20000000")?.exceeds("max_payload");
    /// Makes host resources and drops none.
    handle_leak: Harm::call(Wat("handle-leak"), "")?.exceeds("max_handles");
    /// Asks for 4 GiB of random bytes, and is given an error that it can handle.
    huge_randomness: Harm::call(Hostile, "random:4294967295")?.answers("max_payload");
    /// Asks WASI for a terabyte of random bytes, where there is no error to give.
    huge_wasi_randomness: Harm::call(Wat("wasi-random"), "1099511627776")?.exceeds("max_payload");
    /// Wants an interface that no host offers.
    unknown_import: Harm::upload(Wat("unknown-import"))?.refused("evil:host/files");
    /// Exports no `handle`.
    no_handle: Harm::upload(Wat("no-handle"))?.refused("weft:train/task");
    /// Exports a `handle` of another type.
    wrong_type: Harm::upload(Wat("wrong-type"))?.refused("weft:train/task");
    /// Is a core module.
    core_module: Harm::upload(Wat("core-module"))?.refused("core module");
    /// Is nothing of the kind.
    garbage: Harm::upload(Garbage)?.refused("not a WebAssembly component");
    /// Is nothing at all.
    empty_upload: Harm::upload(Nothing)?.refused("not a WebAssembly component");
    /// Is half of a component.
    truncated: Harm::upload(Truncated)?.refused("the component was refused");
    /// Is larger than an upload may be.
    large_upload: Harm::upload(Garbage)?.with("upload_bytes", 65_536).too_large("upload_bytes");
    /// Takes the compiler minutes.
    compile_bomb: Harm::upload(CompileBomb)?
        .node("compile-timeout", "3s").node("compile-memory", "16GiB").takes_the_compiler_past("compile_timeout").seldom();
    /// Takes the compiler gigabytes.
    compile_memory_bomb: Harm::upload(CompileBomb)?
        .node("compile-memory", "512MiB").takes_the_compiler_past("compile_memory").seldom();
}
