#!/usr/bin/env bash
# Tests reliability on a machine with a GPU, for docs/results/reliability.md, "On a GPU".
#
# usage: tools/measure/gpu_reliability.sh FOLDER BUILD [--seconds N] [--only workers|marks|memcheck|initcheck|lost|tests]
#
#   BUILD      a build with tools and tests (tools/build.sh release: build/release)
#   --seconds  how long the stress test of threads runs (300)
#   --only     one part instead of all six, for machines that are available for minutes only
#
# Writes the machine and each part's output into FOLDER, as text:
#   machine.txt        GPU, driver, system, compute-sanitizer, date
#   workers.txt        8 threads on 16 streams: blocks filled and checked by kernels; one stream is stalled
#   marks-*.txt        compute-sanitizer with NVTX annotations of blocks: correct work, and seeded bugs
#   memcheck.txt       compute-sanitizer on a short stress test of threads
#   initcheck-*.txt    compute-sanitizer on reads: no uninitialised reads, and a seeded bug
#   lost.txt           kernels that break the context under a cache, resets, contexts that end
#   tests.txt          every test that needs a GPU
#   summary.txt        a line for each part: its result, and the command
# Exits with 1 if a part failed. compute-sanitizer does not work everywhere (not under gVisor).
set -euo pipefail
home=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

usage() {
    echo "usage: tools/measure/gpu_reliability.sh FOLDER BUILD [--seconds N] [--only workers|marks|memcheck|initcheck|lost|tests]" >&2
    exit 2
}

[ $# -ge 2 ] || usage
folder=$1 build=$2 seconds=300 only=all
shift 2
while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || usage
    case $1 in
    --seconds) seconds=$2 ;;
    --only) only=$2 ;;
    *) usage ;;
    esac
    shift 2
done
case $only in all | workers | marks | memcheck | initcheck | lost | tests) ;; *) usage ;; esac

mkdir -p "$folder"
out=$(cd "$folder" && pwd)
build=$(cd "$build" && pwd)
failed=0

for program in bin/stress_workers bin/overrun tests/test_life_gpu_lost; do
    [ -x "$build/$program" ] || {
        echo "error: $build/$program is missing; tools/build.sh release makes it" >&2
        exit 2
    }
done
export VMM_REQUIRE_GPU=1

# ended NAME STATUS WHAT: writes a line of the summary.
ended() {
    local verdict=ok
    [ "$2" -eq 0 ] || { verdict=FAILED && failed=1; }
    echo "$verdict: $1: $3" | tee -a "$out/summary.txt"
}

# run NAME COMMAND...: writes the command and its output to NAME.txt; returns its status.
run() {
    local file=$out/$1.txt status=0
    shift
    echo "\$ ${*/#$build\//BUILD/}" >"$file"
    "$@" >>"$file" 2>&1 || status=$?
    echo "exit status $status" >>"$file"
    return "$status"
}

sanitizer=(compute-sanitizer --tool memcheck --error-exitcode 9 --report-api-errors no)
initcheck=(compute-sanitizer --tool initcheck --error-exitcode 9)

# says NAME TEXT: whether the output contains the text.
says() { grep -qF -- "$2" "$out/$1.txt"; }

# clean NAME COMMAND...: on correct use of blocks the tool must report nothing.
clean() {
    local status=0
    run "$@" || status=$?
    says "$1" "ERROR SUMMARY: 0 errors" || status=1
    ended "$1" "$status" "$(grep -F 'ERROR SUMMARY' "$out/$1.txt" || echo 'no summary')"
}

# nvtx_planted NAME: the tool must report exactly the access of the seeded bug, at its address.
nvtx_planted() {
    local name=marks-$1 status=0 address block
    run "$name" "${sanitizer[@]}" --nvtx yes --destroy-on-device-error kernel "$build/bin/overrun" "$1" || true
    address=$(sed -n 's/^planted: 1 byte at \(0x[0-9a-f]*\) .*/\1/p' "$out/$name.txt")
    block=$(sed -n 's/^planted: .* bytes at \(0x[0-9a-f]*\)$/\1/p' "$out/$name.txt")
    { [ -n "$address" ] && says "$name" "Invalid __global__ write of size 1 bytes" &&
        says "$name" "Access to $address is out of bounds" &&
        says "$name" "ERROR SUMMARY: 1 error"; } || status=1
    if says "$name" "Call to nvtx"; then status=1; fi
    if [[ $1 == beyond* ]] && ! says "$name" "1 bytes after the nearest allocation at $block of size"; then status=1; fi
    ended "$name" "$status" "$(sed -n 's/^planted: //p' "$out/$name.txt"): $(grep -F 'ERROR SUMMARY' "$out/$name.txt" || true)"
}

part_workers() {
    local status=0
    run workers "$build/bin/stress_workers" cuda --threads 8 --streams 16 --seconds "$seconds" --stall 5 || status=$?
    ended workers "$status" "$(grep -E '^stress_workers: [0-9]+ threads' "$out/workers.txt" || tail -n 2 "$out/workers.txt")"
}

part_marks() {
    clean marks-clean "${sanitizer[@]}" --nvtx yes "$build/bin/overrun" clean
    nvtx_planted beyond
    nvtx_planted beyond-large
    nvtx_planted after-free
}

part_memcheck() {
    clean memcheck "${sanitizer[@]}" "$build/bin/stress_workers" cuda --threads 4 --streams 8 --seconds 30 --limit 512MiB
}

# Memory is written before it is read: the tool must report nothing. It must report the read of the seeded bug.
part_initcheck() {
    local status=0 address
    clean initcheck-clean "${initcheck[@]}" "$build/bin/overrun" clean
    run initcheck-unwritten "${initcheck[@]}" "$build/bin/overrun" unwritten || true
    address=$(sed -n 's/^planted: 1 byte at \(0x[0-9a-f]*\) .*/\1/p' "$out/initcheck-unwritten.txt")
    { [ -n "$address" ] && says initcheck-unwritten "Uninitialized __global__ memory read of size 1 bytes" &&
        grep -q "^=.*$address" "$out/initcheck-unwritten.txt" &&
        says initcheck-unwritten "ERROR SUMMARY: 1 error"; } || status=1
    ended initcheck-unwritten "$status" "$(grep -F 'ERROR SUMMARY' "$out/initcheck-unwritten.txt" || echo 'no summary')"
}

part_lost() {
    local status=0
    run lost "$build/tests/test_life_gpu_lost" || status=$?
    ended lost "$status" "$(grep -E '^\[  (PASSED|FAILED)  \].*test' "$out/lost.txt" | paste -sd' ' || tail -n 2 "$out/lost.txt")"
}

part_tests() {
    local status=0
    run tests env -C "$build" ctest -L gpu --output-on-failure || status=$?
    ended tests "$status" "$(grep -E 'tests passed' "$out/tests.txt" || tail -n 2 "$out/tests.txt")"
}

{
    date -u
    nvidia-smi --id=0 --query-gpu=name,driver_version,memory.total --format=csv,noheader || echo "no nvidia-smi"
    uname -srm
    compute-sanitizer --version || echo "no compute-sanitizer"
    git -C "$home" rev-parse --short HEAD 2>/dev/null || true
} >"$out/machine.txt" 2>&1
: >"$out/summary.txt"
[ "$only" != all ] || only="marks memcheck initcheck lost tests workers"
for part in $only; do
    "part_$part"
done
exit "$failed"
