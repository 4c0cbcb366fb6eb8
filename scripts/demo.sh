#!/usr/bin/env bash
# The main job from end to end: build functions, start a node, deploy, call, train with four workers, look, stop.
#
#   scripts/demo.sh PATH_TO_WEFT
set -euo pipefail
weft=$(realpath "$1")
cd "$(dirname "$0")/.."

scratch=$(mktemp -d)
node=
finish() {
    # Only where a step failed; the node may have gone by itself, and then there is nothing to kill.
    [ -z "$node" ] || kill -9 "$node" 2>/dev/null || true
    rm -rf "$scratch"
}
trap finish EXIT

step() { printf '\n\033[1m%s\033[0m\n' "$*"; }
[ -t 1 ] && [ -z "${NO_COLOR:-}" ] || step() { printf '\n%s\n' "$*"; }
run() {
    printf '$ weft %s\n' "$*"
    "$weft" "$@"
}

step "1. Build functions to WebAssembly components"
run build functions/echo --output "$scratch/echo.wasm"
run build functions/column-stats --output "$scratch/column-stats.wasm"
run build functions/lenet --output "$scratch/lenet.wasm"

step "2. Start a node (one developer, no key, on loopback)"
"$weft" serve --dev --listen 127.0.0.1:0 --data-dir "$scratch/data" >"$scratch/out" 2>"$scratch/log" &
node=$!
for _ in $(seq 200); do
    WEFT_URL=$(sed -n 's/^listening on //p' "$scratch/out")
    [ -z "$WEFT_URL" ] || break
    kill -0 "$node" 2>/dev/null || { cat "$scratch/log" >&2; exit 1; }
    sleep 0.05
done
export WEFT_URL
echo "node $node listens on $WEFT_URL"

step "3. Deploy"
run deploy "$scratch/echo.wasm" --name echo
run deploy "$scratch/column-stats.wasm" --name column-stats

step "4. Call"
run invoke echo --data 'hello, weft'
printf '\n'
printf 'height,weight\n1.70,65\n1.82,\n1.65,58\n' >"$scratch/people.csv"
run invoke column-stats --data @"$scratch/people.csv"
printf '\n'

step "5. A thousand cold starts: a fresh sandbox for every call"
run invoke echo --data 'hello' --repeat 1000

step "6. Train LeNet on handwritten digits: four workers, their weights averaged every 8 steps"
run deploy "$scratch/lenet.wasm" --name lenet
run dataset pull digits
run train lenet --dataset digits --name demo --workers 4 --k 8 --batch 16 --lr 0.02 --epochs 20 --goal-accuracy 0.97 \
    --memory 64MiB --seed 1

step "7. What the job came to, and its model"
run job history demo
run model pull demo --output "$scratch/demo.safetensors"

step "8. What it used"
run usage

step "9. Stop"
kill -TERM "$node"
wait "$node"
node=
echo "stopped cleanly"
