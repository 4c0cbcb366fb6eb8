#!/usr/bin/env bash
# rustc, which counts how often each branch of the crates that are fuzzed is taken, and what they compare. Cargo calls this
# for the packages of this repository only (`RUSTC_WORKSPACE_WRAPPER`); all others are those that everything else uses.
set -euo pipefail

case " $* " in
*" --crate-name weft "* | *" --crate-name weft_core "* | *" --crate-name weft_gpu "* | *" --crate-name fuzz_targets "*)
    exec "$@" -C passes=sancov-module -C llvm-args=-sanitizer-coverage-level=4 \
        -C llvm-args=-sanitizer-coverage-inline-8bit-counters -C llvm-args=-sanitizer-coverage-trace-compares \
        -C debug-assertions=yes -C overflow-checks=yes
    ;;
*) exec "$@" ;;
esac
