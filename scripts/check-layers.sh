#!/usr/bin/env bash
# Which parts of the runtime may name which: what docs/architecture.md says of modules that share a crate, so that the
# compiler does not see to it. What is a crate of its own, such as `weft-core`, the compiler keeps apart.
set -euo pipefail
shopt -s extglob inherit_errexit
cd "$(dirname "$0")/../runtime/src"

# lines_that_name MODULE PATHS...: lines of code below these paths that name a module of the crate. Comments may.
lines_that_name() {
    local found
    # 1 is that nothing was found; anything else is an error, and no answer.
    found=$(grep -rnE --include='*.rs' "\b(crate|super)::(\{([^}]*[ ,{])?)?$1\b" "${@:2}") || [ $? = 1 ]
    [ -z "$found" ] || grep -vE '^[^:]+:[0-9]+: *//' <<<"$found" || [ $? = 1 ]
}

# Whoever is asked from outside, or keeps a node in order, knows the node. Nobody else does.
problems=$(
    lines_that_name node !(api|api.rs|backup.rs|cli|cli.rs|node|node.rs|resident.rs|server|server.rs)
    # A job does not know by which way it is asked for.
    lines_that_name '(server|cli)' job job.rs
    # A job does not know who looks for the best of many.
    lines_that_name study job job.rs
    # What jobs are made of knows no jobs.
    lines_that_name job @(catalog|dataset|devices|host|params|places|registry|sandbox|tenant|train)?(.rs)
)

if [ -n "$problems" ]; then
    printf 'these name what they must not know (docs/architecture.md, "What must stay true"):\n%s\n' "$problems" >&2
    exit 1
fi
echo "layers: nothing below the node knows it, and nothing below jobs knows them"
