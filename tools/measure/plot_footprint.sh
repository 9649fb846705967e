#!/usr/bin/env bash
# Updates the tables of docs/results/footprint.md and the charts in docs/results/footprint/: builds fragtest and replays the bundled traces
# on the sim driver. Needs no GPU and takes about a minute.
#
# usage: tools/measure/plot_footprint.sh [FOLDER]      FOLDER: stores the measurements there
#
# FOLDER holds fragtest's JSON; "-wait" is encoder_streams with --reuse stream_wait; a pass is a whole trace:
#   baselines-0, baselines-10000           both baselines, without lag and with a large lag
#   lag-LAG, lag-LAG-wait                  vmmcache, one pass
#   passes-LAG, passes-LAG-wait            vmmcache, two passes
#   knob-N, knob-N-wait                    vmmcache with --footprint N, two passes at lag 1000
#   least-on, least-off                    least memory at lag 1000; -off: vmmcache without compaction
#   trims-on, trims-off                    100 trims at lag 1000; -off: vmmcache without compaction
#   time.csv, time-wait.csv                live and reserved memory over time at lag 1000
set -euo pipefail
home=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

if [ $# -gt 1 ]; then
    echo "usage: tools/measure/plot_footprint.sh [FOLDER]" >&2
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

# measure NAME ARGUMENT...: measures all policies and traces unless the arguments name others.
measure() {
    "$home/build/tools/bin/fragtest" --driver sim --memory none --quiet --json "$out/$1.json" \
        "${@:2}" >/dev/null
}

# vmmcache_measure NAME ARGUMENT...: measures all traces, then encoder_streams with waiting streams.
vmmcache_measure() {
    measure "$1" "${traces[@]}" --policy vmmcache "${@:2}"
    measure "$1-wait" --trace encoder_streams --policy vmmcache --reuse stream_wait "${@:2}"
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
measure time-wait --trace encoder_streams --policy vmmcache --reuse stream_wait --lag 1000 \
    --timeline "$out/time-wait.csv"
echo "== two passes, and the knob"
for lag in 0 1000; do
    vmmcache_measure "passes-$lag" --lag "$lag" --passes 2
done
for knob in 1 2 5 10 20 50 100 250 any; do
    vmmcache_measure "knob-$knob" --lag 1000 --passes 2 --footprint "$knob"
done
echo "== least memory"
measure least-on "${traces[@]}" --lag 1000 --least --compaction on
measure least-off "${traces[@]}" --policy vmmcache --lag 1000 --least --compaction off
echo "== trims"
measure trims-on "${traces[@]}" --lag 1000 --trims 100 --compaction on
measure trims-off "${traces[@]}" --policy vmmcache --lag 1000 --trims 100 --compaction off
"$home/tools/pages/plot_footprint.py" "$out" "$home/docs/results/footprint.md"
echo "== written: docs/results/footprint.md, docs/results/footprint/"
