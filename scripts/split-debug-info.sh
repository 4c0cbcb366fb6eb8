#!/usr/bin/env bash
# A binary and its debug information, apart: FOLDER/NAME runs alone, and as long as FOLDER/NAME.debug lies beside it, its
# backtraces and debuggers find files and lines there.
#
#   scripts/split-debug-info.sh BINARY FOLDER
set -euo pipefail

command -v objcopy >/dev/null || {
    echo "there is no \`objcopy\` here; it comes with binutils" >&2
    exit 1
}
name=$(basename "$1")
mkdir -p "$2"
objcopy --only-keep-debug "$1" "$2/$name.debug"
objcopy --strip-debug "$1" "$2/$name"
# The link names the file without a folder, so both can be moved together.
(cd "$2" && objcopy --add-gnu-debuglink="$name.debug" "$name")
ls -l "$2/$name" "$2/$name.debug"
