#!/usr/bin/env bash
# Measures what docs/results/h200.md reports, on a machine with a GPU, in less than four minutes.
#
# usage: tools/measure/h200.sh FOLDER [BUILD]      BUILD: a build with tools and tests (build/release: tools/build.sh release)
#        tools/pages/h200_report.py FOLDER >docs/results/h200.md
#
# Writes into FOLDER:
#   all.json       all policies, no limit, two passes, verified
#   cuda1..3.json  vmmcache, no limit, one pass; the GPU runs only its driver calls
#   sim.json       the same on the sim driver
#   limit.json     all policies in 102 % of peak live memory, verified
#   tight.json     vmmcache in 100.5 %, verified: needs compaction
#   wait.json      vmmcache with streams that wait for each other, two passes, verified
#   trims.json     vmmcache, trimmed completely at 20 random moments, verified
#   default.txt    fragtest without arguments
#   log.txt        machine, commands and their exit status, API tests, GPU memory before and after
# A policy that runs out of memory under a limit is a valid result. Exits with 1 if an API test fails, if a command
# fails in any other way, or if GPU memory is lost.
set -euo pipefail
home=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
    echo "usage: tools/measure/h200.sh FOLDER [BUILD]" >&2
    exit 2
fi
mkdir -p "$1"
out=$(cd "$1" && pwd)
build=$(cd "${2:-$home/build/release}" && pwd)
fragtest=$build/bin/fragtest
log=$out/log.txt
failed=0

for needed in "$fragtest" "$build/tests"; do
    [ -e "$needed" ] || {
        echo "error: $needed is missing; tools/build.sh release makes it" >&2
        exit 2
    }
done
command -v nvidia-smi >/dev/null || {
    echo "error: nvidia-smi is missing: no GPU here" >&2
    exit 2
}

# smi FIELD: a property of the first GPU.
smi() { nvidia-smi --id=0 --query-gpu="$1" --format=csv,noheader; }

# run_fragtest FILE ARGUMENT...: writes the output to FILE, as JSON if its name ends so.
run_fragtest() {
    local file=$1 status=0
    shift
    if [[ $file == *.json ]]; then
        set -- "$@" --json "$file"
        (cd "$out" && timeout 150 "$fragtest" "$@" --quiet) >/dev/null || status=$?
    else
        timeout 150 "$fragtest" "$@" >"$out/$file" 2>/dev/null || status=$?
    fi
    echo "run: $status: fragtest${*:+ $*}" | tee -a "$log"
    [ "$status" -le 1 ] || failed=1
}

# run_test NAME: runs an API test on the GPU and logs cmocka's closing lines as one line.
run_test() {
    local status=0 said
    said=$(VMM_REQUIRE_GPU=1 timeout 150 "$build/tests/$1" cuda 2>&1) || status=$?
    grep -E 'chunks moved' <<<"$said" | sed 's/^/moved: /' >>"$log" || true
    said=$(grep -E '^\[  (PASSED|FAILED)  \]' <<<"$said" | awk '!seen[$0]++' | tr '\n' ' ' || true)
    echo "test: $status: $1: ${said% }" | tee -a "$log"
    [ "$status" -eq 0 ] || failed=1
}

traces=()
for file in "$home"/tools/fragtest/traces/*.trace.gz; do
    name=${file##*/}
    traces+=(--trace "${name%.trace.gz}")
done

before=$(smi memory.used)
{
    echo "gpu: $(smi name), driver $(smi driver_version), $(smi memory.total)"
    echo "commit: ${COMMIT:-$(git -C "$home" describe --always --dirty 2>/dev/null || echo unknown)}"
    echo "memory before: $before"
} >"$log"
run_fragtest all.json --driver cuda "${traces[@]}" --policy all --memory none --passes 2 --verify
for number in 1 2 3; do
    run_fragtest "cuda$number.json" --driver cuda "${traces[@]}" --policy vmmcache --memory none
done
run_fragtest sim.json --driver sim "${traces[@]}" --policy vmmcache --memory none
run_fragtest default.txt
run_fragtest limit.json --driver cuda "${traces[@]}" --policy all --memory 102% --verify
run_fragtest tight.json --driver cuda "${traces[@]}" --policy vmmcache --memory 100.5% --verify \
    --compaction on
run_fragtest wait.json --driver cuda --trace encoder_streams --policy vmmcache --memory none --passes 2 \
    --verify --reuse stream_wait
run_fragtest trims.json --driver cuda "${traces[@]}" --policy vmmcache --memory none --verify --trims 20 \
    --compaction on
for file in "$home"/tests/api/test_*.c; do
    name=${file##*/}
    run_test "${name%.c}"
done
after=$(smi memory.used)
echo "memory after: $after" >>"$log"
if [ "$before" != "$after" ]; then
    echo "error: GPU memory in use before: $before, after: $after" >&2
    failed=1
fi
exit "$failed"
