#!/usr/bin/env bash
# Makes a Python environment with PyTorch, which the benchmarks `native_vs_torch`, `wasm_vs_torch` and `tta` compare with.
#
#   scripts/torch-venv.sh        in $WEFT_TORCH, or else ~/.cache/weft/torch
set -euo pipefail
exec "$(dirname "$0")/framework-venv.sh" PyTorch "${WEFT_TORCH:-$HOME/.cache/weft/torch}" WEFT_TORCH "5 GB" \
    "torch, torchvision" torch torchvision
