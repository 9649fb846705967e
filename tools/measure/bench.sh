#!/usr/bin/env bash
# Measures every allocator that this machine has with the same benches, and writes docs/results/benchmarks.md with its charts.
# With a GPU and 16 cores it takes about five minutes.
#
# usage: tools/measure/bench.sh OUT      OUT: folder for the measurements
#
# CMAKE_PREFIX_PATH in the environment says where RMM and others are, if CMake does not find them.
# Writes into OUT:
#   bench.json              vmmcache, glibc, cudaMalloc, cudaMallocAsync and RMM, if they are found
#   torch-native.json       PyTorch's allocator, if PyTorch and a GPU are found
#   torch-expandable.json   the same with expandable segments
#   *.txt                   the same for people
#   machine.txt             the machine, versions, commands and their times
# Exits with 1 if a bench found a wrong result.
set -euo pipefail
home=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

if [ $# -ne 1 ]; then
    echo "usage: tools/measure/bench.sh OUT" >&2
    exit 2
fi
mkdir -p "$1"
out=$(cd "$1" && pwd)
build=$home/build/tools
bin=$build/bin
machine=$out/machine.txt
failed=0

"$home/tools/setup.sh" cc cxx make cmake python3 zlib benchmark
echo "== building (build/tools)"
"$home/tools/build.sh" tools
rm -f "$out"/*.json

has_gpu() { command -v nvidia-smi >/dev/null && nvidia-smi --id=0 >/dev/null 2>&1; }

cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }

describe() {
    echo "cpu: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) CPUs"
    if has_gpu; then
        echo "gpu: $(nvidia-smi --id=0 --query-gpu=name,memory.total --format=csv,noheader)"
        echo "driver: $(nvidia-smi --id=0 --query-gpu=driver_version --format=csv,noheader)"
    else
        echo "gpu: none"
    fi
    echo "system: $(uname -sr)"
    echo "compiler: $("$(cached CMAKE_C_COMPILER)" --version | head -n 1)"
    echo "vmmcache: $(git -C "$home" rev-parse --short=10 HEAD 2>/dev/null || echo unknown)"
}

# measure NAME PROGRAM [ENVIRONMENT]...
measure() {
    local file=$1 program=$2 status=0 start=$SECONDS
    shift 2
    echo "== ${*:+$* }$program"
    (cd "$out" && env "$@" timeout 400 "$bin/$program" --benchmark_out="$file.json" \
        --benchmark_out_format=json >"$file.txt" 2>&1) || status=$?
    echo "run: ${*:+$* }$program: $((SECONDS - start)) s, status $status" | tee -a "$machine"
    if [ "$status" -ne 0 ]; then
        grep -i error "$out/$file.txt" >&2 || tail -n 5 "$out/$file.txt" >&2
        failed=1
    fi
    # A bench that crashed or timed out leaves an incomplete file.
    python3 -m json.tool "$out/$file.json" >/dev/null 2>&1 || rm -f "$out/$file.json"
}

describe >"$machine"
measure bench vmmcache_bench
if has_gpu && [ -x "$bin/vmmcache_bench_torch" ]; then
    measure torch-native vmmcache_bench_torch
    measure torch-expandable vmmcache_bench_torch PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True \
        PYTORCH_ALLOC_CONF=expandable_segments:True
fi
"$home/tools/pages/bench_report.py" "$out" "$home/docs/results/benchmarks.md"
echo "== written: docs/results/benchmarks.md, docs/results/benchmarks/"
exit "$failed"
