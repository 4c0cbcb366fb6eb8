#!/usr/bin/env bash
# rustc with AddressSanitizer for `gpu-bridge` and its tests. Cargo calls this for the packages of this repository only
# (`RUSTC_WORKSPACE_WRAPPER`). The sanitizer comes with stable rustc, which wants to be asked twice for it.
set -euo pipefail

case " $* " in
*" --crate-name weft_gpu "* | *" --test "*)
    export RUSTC_BOOTSTRAP=1
    exec "$@" -Z sanitizer=address
    ;;
*) exec "$@" ;;
esac
