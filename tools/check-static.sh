#!/usr/bin/env bash
# Runs clang-tidy, cppcheck and GCC's analyzer over the library and its tools; fails on any finding.
# Slow, and bound to the versions of the three, so it is no part of the tests. Run it before a
# release and after large changes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

for tool in clang-tidy cppcheck gcc clang cmake; do
    command -v "$tool" >/dev/null || {
        echo "error: $tool is missing (Debian, Ubuntu: apt-get install $tool)" >&2
        exit 1
    }
done

failed=0
build=build/static
mkdir -p build
# Benches are left out: their library's loops look like dead stores. So are tests, for their sums
# of small constants.
cmake -S . -B "$build" -DCMAKE_C_COMPILER=clang -DCMAKE_BUILD_TYPE=Debug -DVMM_BUILD_BENCH=OFF \
    -DVMM_BUILD_TESTS=OFF >build/static.log || { cat build/static.log >&2; exit 1; }

cuda=$(sed -n 's/^VMM_CUDA_H_DIR:PATH=//p' "$build/CMakeCache.txt")
left_out=none
[ -f "$cuda/cuda.h" ] || left_out=src/driver/cuda
sources_of() { find "$@" -name '*.c' -not -path "$left_out*" -print0; }

echo "== clang-tidy"
sources_of src tools | xargs -0 -P "$(nproc)" -n 4 clang-tidy -p "$build" --quiet 2>/dev/null ||
    failed=1

# A waiter on the stack of the thread that waits is what autoVariables warns of.
echo "== cppcheck"
cppcheck --enable=warning,performance,portability --std=c11 --inline-suppr --quiet \
    --suppress=autoVariables --error-exitcode=1 -j "$(nproc)" -Iinclude -Isrc -Itools src tools || failed=1

# Off: what needs to know that a status of VMM_OK means that the out-parameter was written, and
# leaks of memory whose owner is a struct (the tests run with a leak checker).
echo "== gcc -fanalyzer"
without=(-Wno-analyzer-null-dereference -Wno-analyzer-use-of-uninitialized-value
    -Wno-analyzer-malloc-leak)
sources_of src tools | xargs -0 -P "$(nproc)" -n 1 gcc -std=c11 -D_GNU_SOURCE= -O2 -fanalyzer -Werror \
    "${without[@]}" -Iinclude -Isrc -Itools -Itools/fragtest -isystem "$cuda" -DVMM_WITH_CUDA=1 \
    -c -o /dev/null || failed=1

if [ "$failed" -ne 0 ]; then
    echo "error: findings above" >&2
    exit 1
fi
echo "== no findings"
