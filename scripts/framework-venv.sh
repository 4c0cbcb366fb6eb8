#!/usr/bin/env bash
# Makes a Python environment with a framework that benchmarks compare with.
#
#   scripts/framework-venv.sh FRAMEWORK FOLDER VARIABLE SIZE IMPORTS PACKAGE...
#
# `torch-venv.sh` and `tensorflow-venv.sh` say which. It lies outside the repository and can be deleted at any time.
# Nothing happens if it is there already, and nothing is printed on standard output: that belongs to the benchmark.
set -euo pipefail
exec 1>&2

readonly framework=$1 folder=$2 variable=$3 size=$4 imports=$5
shift 5

say() { printf '%s: %s\n' "$(basename "$0" .sh)" "$*"; }

works() { "$folder/bin/python" -c "import $imports" 2>/dev/null; }

if works; then
    exit 0
fi
command -v python3 >/dev/null || { say "error: there is no \`python3\` here; install it first"; exit 1; }
say "installing $* from PyPI into \`$folder\` (about $size; set $variable for another place)"
python3 -m venv "$folder" || { say "error: \`python3 -m venv\` failed; on Debian it needs the package python3-venv"; exit 1; }
"$folder/bin/pip" install --quiet --disable-pip-version-check "$@"
works || { say "error: $framework is installed but cannot be imported; see \`$folder/bin/python -c 'import $imports'\`"; exit 1; }
say "done"
