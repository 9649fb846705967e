#!/usr/bin/env bash
# Makes the tables of docs/footprint.md and the pictures in docs/footprint/ anew: builds fragtest,
# replays the shipped traces on the sim driver and writes what it measured. No GPU is needed; it
# takes about a minute.
#
# usage: tools/plot_footprint.sh [FOLDER]      FOLDER: keeps the measurements there
#
# FOLDER holds fragtest's JSON; "-wait" is encoder_streams with --sharing wait, a pass is a whole trace:
#   baselines-0, baselines-10000           both baselines with no work in flight and with much
#   lag-LAG, lag-LAG-wait                  vmmcache, one pass
#   passes-LAG, passes-LAG-wait            vmmcache, two passes
#   knob-N, knob-N-wait                    vmmcache with --footprint N, two passes at lag 1000
#   least-auto, least-off                  the least memory at lag 1000; with compaction off vmmcache
#   trims-auto, trims-off                  100 trims at lag 1000; the same
#   time.csv, time-wait.csv                live and reserved memory over time at lag 1000
set -euo pipefail
home=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

if [ $# -gt 1 ]; then
    echo "usage: tools/plot_footprint.sh [FOLDER]" >&2
    exit 2
fi
if [ $# -eq 1 ]; then
    mkdir -p "$1"
    out=$(cd "$1" && pwd)
else
    out=$(mktemp -d)
    trap 'rm -rf "$out"' EXIT
fi
traces=()
for trace in detection encoder_streams gnn llm_generate llm_train_varlen; do
    traces+=(--trace "$trace")
done

# measure NAME ARGUMENT...: all policies and traces unless the arguments name others.
measure() {
    "$home/build/release/bin/fragtest" --driver sim --memory none --quiet --json "$out/$1.json" \
        "${@:2}" >/dev/null
}

# vmmcache_measure NAME ARGUMENT...: all traces, then encoder_streams with streams that wait.
vmmcache_measure() {
    measure "$1" "${traces[@]}" --policy vmmcache "${@:2}"
    measure "$1-wait" --trace encoder_streams --policy vmmcache --sharing wait "${@:2}"
}

"$home/tools/setup.sh" python3
"$home/tools/run-fragtest.sh" --help >/dev/null
echo "== footprints, and memory over time"
measure baselines-0 "${traces[@]}" --policy block-splitting,expandable
measure baselines-10000 "${traces[@]}" --policy block-splitting,expandable --lag 10000
for lag in 0 100 1000 10000; do
    vmmcache_measure "lag-$lag" --lag "$lag"
done
measure time "${traces[@]}" --lag 1000 --timeline "$out/time.csv"
measure time-wait --trace encoder_streams --policy vmmcache --sharing wait --lag 1000 \
    --timeline "$out/time-wait.csv"
echo "== two passes, and the knob"
for lag in 0 1000; do
    vmmcache_measure "passes-$lag" --lag "$lag" --passes 2
done
for knob in 1 2 5 10 20 50 100 250 any; do
    vmmcache_measure "knob-$knob" --lag 1000 --passes 2 --footprint "$knob"
done
echo "== least memory"
measure least-auto "${traces[@]}" --lag 1000 --least
measure least-off "${traces[@]}" --policy vmmcache --lag 1000 --least --compaction off
echo "== trims"
measure trims-auto "${traces[@]}" --lag 1000 --trims 100
measure trims-off "${traces[@]}" --policy vmmcache --lag 1000 --trims 100 --compaction off
"$home/tools/plot_footprint.py" "$out" "$home/docs/footprint.md"
echo "== written: docs/footprint.md, docs/footprint/"
