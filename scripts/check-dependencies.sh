#!/usr/bin/env bash
# What we depend on: every crate from the public registry or from here, under a licence that lets people use Weft, and
# none of those that we have decided against.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly allowed='["0BSD","Apache-2.0","Apache-2.0 WITH LLVM-exception","BSD-2-Clause","BSD-3-Clause","BSL-1.0","CC0-1.0","CDLA-Permissive-2.0","ISC","MIT","MIT-0","Unicode-3.0","Unlicense","Zlib"]'
# openssl: rustls is enough.
readonly unwanted='["openssl","openssl-sys","native-tls","atty","serde_yaml"]'

metadata=$(cargo metadata --locked --format-version 1 --filter-platform x86_64-unknown-linux-gnu)

# An expression such as `MIT OR (Apache-2.0 AND ISC)` is acceptable if some choice of its OR parts is; a part is
# acceptable if all of its AND parts are. Deeper nesting does not occur, and would be reported.
problems=$(jq -r --argjson allowed "$allowed" --argjson unwanted "$unwanted" '
  def parts($word): gsub("[()]"; "") | split($word) | map(gsub("^\\s+|\\s+$"; ""));
  def acceptable: gsub("/"; " OR ") | parts(" OR ") | any(parts(" AND ") | all(. as $one | $allowed | index($one) != null));
  .packages[]
  | (if .source == null or (.source | startswith("registry+")) then empty
     else "\(.name) \(.version): from \(.source), which is no registry" end),
    (if (.license // "none" | acceptable) then empty else "\(.name) \(.version): licence `\(.license)`" end),
    (.name as $name | if ($unwanted | index($name)) then "\(.name) \(.version): we have decided against it" else empty end)
' <<<"$metadata")

if [ -n "$problems" ]; then
    printf 'dependencies that must not be here:\n%s\n' "$problems" >&2
    exit 1
fi
printf 'dependencies: %s crates, all from the registry, all under licences we accept\n' \
    "$(jq '[.packages[] | select(.source)] | length' <<<"$metadata")"

# Known vulnerabilities, by whichever tool is here. Both bring a database of advisories up to date first, from the network;
# where it cannot be reached, an older copy of theirs is used, and without any there is nothing to compare with.
readonly fetch_seconds=120
advisories() {
    if cargo audit --version >/dev/null 2>&1; then
        timeout "$fetch_seconds" cargo audit --quiet "$@"
    elif cargo deny --version >/dev/null 2>&1; then
        timeout "$fetch_seconds" cargo deny ${1:+--offline} check --hide-inclusion-graph advisories
    else
        return 127
    fi
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
ended=0
advisories >"$log" 2>&1 || ended=$?
# Unreachable is not vulnerable: both tools end with the same status, and differ in what they say.
if [ "$ended" != 0 ] && [ "$ended" != 127 ] && ! grep -qE 'RUSTSEC-[0-9]{4}-[0-9]{4}' "$log"; then
    ended=0
    advisories --no-fetch >"$log" 2>&1 || ended=$?
    if [ "$ended" != 0 ] && ! grep -qE 'RUSTSEC-[0-9]{4}-[0-9]{4}' "$log"; then
        ended=126
    fi
fi
case $ended in
0) echo "advisories: none of the crates has a known vulnerability" ;;
126) echo "advisories: SKIPPED, there is no database to compare with: $(tail -n 1 "$log")" ;;
127) echo "advisories: SKIPPED, neither cargo-audit nor cargo-deny is here; \`cargo install cargo-audit --locked\` brings one" ;;
*)
    cat "$log" >&2
    echo "advisories: the crates above have known vulnerabilities" >&2
    exit 1
    ;;
esac
