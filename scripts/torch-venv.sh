#!/usr/bin/env bash
# Makes a Python environment with PyTorch, which the benchmark `native_vs_torch` compares with.
#
#   scripts/torch-venv.sh        in $WEFT_TORCH, or else ~/.cache/weft/torch
#
# It lies outside the repository and can be deleted at any time. Nothing happens if it is there already, and nothing is
# printed on standard output: that belongs to the benchmark.
set -euo pipefail
exec 3>&1 1>&2

folder=${WEFT_TORCH:-$HOME/.cache/weft/torch}

say() { printf 'torch-venv: %s\n' "$*"; }

works() { "$folder/bin/python" -c 'import torch, torchvision' 2>/dev/null; }

if works; then
    exit 0
fi
command -v python3 >/dev/null || { say "error: there is no \`python3\` here; install it first"; exit 1; }
say "installing PyTorch and torchvision from PyPI into \`$folder\` (about 5 GB; set WEFT_TORCH for another place)"
python3 -m venv "$folder" || { say "error: \`python3 -m venv\` failed; on Debian it needs the package python3-venv"; exit 1; }
"$folder/bin/pip" install --quiet --disable-pip-version-check torch torchvision
works || { say "error: PyTorch is installed but cannot be imported; see \`$folder/bin/python -c 'import torch, torchvision'\`"; exit 1; }
say "done"
