#!/usr/bin/env bash
# Runs clang-tidy, cppcheck and GCC's analyzer over the library and its tools; fails on any finding.
# It is slow and depends on the versions of these tools, so it is not part of the tests. Run it before a
# release and after large changes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

for tool in clang-tidy cppcheck gcc clang cmake; do
    command -v "$tool" >/dev/null || {
        echo "error: $tool is missing (Debian, Ubuntu: apt-get install $tool)" >&2
        exit 1
    }
done

failed=0
build=build/static
# The preset leaves out benches, because loops of Google Benchmark look like dead stores, and tests, because of their
# sums of small constants.
tools/build.sh static

cuda=$(sed -n 's/^VMM_CUDA_H_DIR:PATH=//p' "$build/CMakeCache.txt")
left_out=none
[ -f "$cuda/cuda.h" ] || left_out=src/driver/cuda
sources_of() { find "$@" -name '*.c' -not -path "$left_out*" -print0; }

echo "== clang-tidy"
sources_of src tools | xargs -0 -P "$(nproc)" -n 4 clang-tidy -p "$build" --quiet 2>/dev/null ||
    failed=1

# autoVariables warns of a record on the waiting thread's stack, which is intended.
echo "== cppcheck"
cppcheck --enable=warning,performance,portability --std=c11 --inline-suppr --quiet \
    --suppress=autoVariables --error-exitcode=1 -j "$(nproc)" -Iinclude -Isrc -Itools src tools || failed=1

# Switched off: warnings of reads that are safe after VMM_OK, because the out-parameter is written then, and of leaks of
# memory that a struct owns (the tests run with a leak checker).
echo "== gcc -fanalyzer"
without=(-Wno-analyzer-null-dereference -Wno-analyzer-use-of-uninitialized-value
    -Wno-analyzer-malloc-leak)
sources_of src tools | xargs -0 -P "$(nproc)" -n 1 gcc -std=c11 -D_GNU_SOURCE= -O2 -fanalyzer -Werror \
    "${without[@]}" -Iinclude -Isrc -Itools -isystem "$cuda" -DVMM_WITH_CUDA=1 \
    -c -o /dev/null || failed=1

if [ "$failed" -ne 0 ]; then
    echo "error: findings above" >&2
    exit 1
fi
echo "== no findings"
