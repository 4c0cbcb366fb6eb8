#!/usr/bin/env bash
# Makes a Python environment with numpy, scikit-learn and safetensors, whose files the tests read, with Optuna and TensorBoard,
# which read what studies are exported to, and with a validator of OpenAPI documents.
#
#   scripts/python-venv.sh       in $WEFT_PYTHON, or else target/python
#
# It can be deleted at any time. Nothing happens if it is there already.
set -euo pipefail
cd "$(dirname "$0")/.."

# Pinned, so that a test that fails tomorrow fails because of us.
readonly packages=(numpy==2.2.6 scipy==1.15.3 scikit-learn==1.7.2 safetensors==0.6.2 openapi-spec-validator==0.9.0 optuna==5.0.0 tensorboard==2.21.0)
readonly folder=${WEFT_PYTHON:-target/python}
# Names what is in there: another list makes it anew.
readonly mark=$folder/weft-packages

say() { printf 'python-venv: %s\n' "$*"; }

works() {
    [ "$(cat "$mark" 2>/dev/null)" = "${packages[*]}" ] &&
        "$folder/bin/python" -c 'import numpy, sklearn, safetensors, openapi_spec_validator, optuna, tensorboard' 2>/dev/null
}

if works; then
    exit 0
fi
command -v python3 >/dev/null || { say "error: there is no \`python3\` here; install it first"; exit 1; }
say "installing ${packages[*]} from PyPI into \`$folder\` (about 300 MB; set WEFT_PYTHON for another place)"
rm -rf "$folder"
python3 -m venv "$folder" || { say "error: \`python3 -m venv\` failed; on Debian it needs the package python3-venv"; exit 1; }
"$folder/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}"
printf '%s\n' "${packages[*]}" >"$mark"
works || { say "error: the packages are installed but cannot be imported; see \`$folder/bin/python -c 'import numpy, sklearn, safetensors, openapi_spec_validator, optuna, tensorboard'\`"; exit 1; }
say "done"
