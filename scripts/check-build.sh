#!/usr/bin/env bash
# Nothing is compiled twice: the largest dependencies have one build each, and once everything is built, none of our
# other builds has anything left to compile.
#
#   scripts/check-build.sh BUILD_ALL OTHER_BUILD...    cargo commands; the first has just been run
set -euo pipefail
cd "$(dirname "$0")/.."

readonly large='["cranelift-codegen","naga","wasmtime","wgpu","wgpu-core","wgpu-hal"]'

# Cargo's messages: one line of JSON for each artifact that the command needs, built now or found.
artifacts() {
    $1 --quiet --message-format=json | jq -c 'select(.reason == "compiler-artifact")'
}

twice=$(artifacts "$1" | jq -rs --argjson large "$large" '
    map(select(.target.kind[0] == "lib")
        | .package_id |= (split("#")[-1])
        | select((.package_id | split("@")[0]) as $name | $large | index($name)))
    | group_by(.package_id)[] | select(length > 1) | .[]
    | "\(.package_id): opt-level \(.profile.opt_level), features \(.features | join(" "))"')
if [ -n "$twice" ]; then
    printf 'compiled more than once by `%s`:\n%s\n' "$1" "$twice" >&2
    exit 1
fi

for command in "${@:2}"; do
    again=$(artifacts "$command" | jq -r 'select(.fresh | not) | .package_id | split("/")[-1]' | sort -u)
    if [ -n "$again" ]; then
        printf '`%s` compiled these again, though `%s` had built everything:\n%s\n' "$command" "$1" "$again" >&2
        exit 1
    fi
done
echo "builds: nothing is compiled twice"
