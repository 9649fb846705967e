#!/usr/bin/env bash
# Runs PyTorch on libvmmcache on a machine with a GPU, for docs/results/torchbench.md and docs/tour.md.
#
# usage: tools/measure/torchbench.sh FOLDER [BUILD] [PART...]
#        tools/torchbench/report.py FOLDER docs/results/torchbench.md
#        tools/torchbench/tour.py --splice FOLDER/tour.json docs/tour.md
#
# BUILD: a build with libvmmcache_torch.so (build/release). Parts, by default all, in this order:
#   checks    tools/torch/native_check.py                                                     (2 minutes)
#   tour      the programs of guides to PyTorch's memory; out of memory                       (1)
#   equality  the same training under both, compared                                         (1)
#   steps     step times, time inside the allocator, peaks and results of real models         (6)
#   cap       the largest sizes that train under a limit                                      (3)
# Environment: REPEAT=3 repetitions of steps; WORKLOADS=gnn,llm for some of the models;
# BUDGET=520 seconds after which a part starts no process.
#
# Writes into FOLDER: log.txt (machine, versions, commands and their status), checks.txt, tour.txt, tour.json,
# equality.txt, steps.txt, cap.txt and results.tar.gz. Exits with 1 if a part fails.
set -uo pipefail
home=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

if [ $# -lt 1 ]; then
    echo "usage: tools/measure/torchbench.sh FOLDER [BUILD] [PART...]" >&2
    exit 2
fi
mkdir -p "$1"
out=$(cd "$1" && pwd)
build=${2:-$home/build/release}
parts=${*:3}
parts=${parts:-checks tour equality steps cap}
log=$out/log.txt
failed=0

VMMCACHE_LIBRARY=$(find "$build" -name libvmmcache_torch.so -print -quit)
[ -n "$VMMCACHE_LIBRARY" ] || {
    echo "error: there is no libvmmcache_torch.so in $build; tools/build.sh release makes one" >&2
    exit 2
}
VMMCACHE_LIBRARY=$(realpath "$VMMCACHE_LIBRARY")
export VMMCACHE_LIBRARY PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH=$home/tools/python${PYTHONPATH:+:$PYTHONPATH}
results=$out/results
mkdir -p "$results"

# run FILE SECONDS COMMAND...: appends the command's output to the file.
run() {
    local file=$1 seconds=$2 status=0 start=$SECONDS
    shift 2
    timeout "$seconds" "$@" 2>&1 | tee -a "$out/$file" || status=$?
    local said=${*//"$home"\//}
    echo "run: $status, $((SECONDS - start)) s: ${said//"$out"/FOLDER}" | tee -a "$log"
    [ "$status" -eq 0 ]
}

bench=$home/tools/torchbench
{
    echo "gpu: $(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | paste -sd ';')"
    echo "cpu: $(nproc) cores, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)"
    echo "commit: ${COMMIT:-$(git -C "$home" describe --always --dirty 2>/dev/null || echo unknown)}"
    echo "date: $(date -u +%Y-%m-%d)"
    PYTHONPATH=$home/tools/pages:$PYTHONPATH python3 -c 'import sys, documents
for line in documents.versions(*sys.argv[1:]):
    print(*line, sep=": ")' torch transformers peft torchvision torch_geometric triton cupy-cuda13x
} >>"$log"

for part in $parts; do
    case $part in
    checks) run checks.txt 600 python3 "$home/tools/torch/native_check.py" || failed=1 ;;
    tour) run tour.txt 240 python3 "$bench/tour.py" "$out/tour.json" || failed=1 ;;
    equality) run equality.txt 300 python3 "$bench/equality.py" || failed=1 ;;
    steps | cap)
        run "$part.txt" $((${BUDGET:-520} + 60)) python3 "$bench/run.py" --out "$results" --parts "$part" \
            ${WORKLOADS:+--workloads "$WORKLOADS"} --repeat "${REPEAT:-2}" --seconds "${BUDGET:-520}" || failed=1
        ;;
    *)
        echo "error: unknown part $part" >&2
        exit 2
        ;;
    esac
done
mv -f "$out/snapshot.pickle" "$results" 2>/dev/null || true
rm -f "$out"/trace_plot.html "$out"/segment_plot.html
rm -rf "$results/log/inductor" "$results/log/inside"
tar -C "$results" -czf "$out/results.tar.gz" . && rm -rf "$results"
exit "$failed"
