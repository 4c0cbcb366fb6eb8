#!/usr/bin/env bash
# Makes a Python environment with TensorFlow, which the benchmark `tta` compares with.
#
#   scripts/tensorflow-venv.sh   in $WEFT_TENSORFLOW, or else ~/.cache/weft/tensorflow
set -euo pipefail
exec "$(dirname "$0")/framework-venv.sh" TensorFlow "${WEFT_TENSORFLOW:-$HOME/.cache/weft/tensorflow}" WEFT_TENSORFLOW "2 GB" \
    tensorflow tensorflow-cpu
