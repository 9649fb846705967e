#!/usr/bin/env bash
# Installs what is missing, builds and runs all tests: first a Release build, then a build with
# AddressSanitizer, UndefinedBehaviorSanitizer and all internal checks, then what threads do with ThreadSanitizer.
#
# usage: tools/run-tests.sh [--gpu]      --gpu: a missing GPU is a failure, not a skipped test
set -euo pipefail
home=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

case "$#:${1:-}" in
0:) ;;
1:--gpu) export VMM_REQUIRE_GPU=1 ;;
*)
    echo "usage: tools/run-tests.sh [--gpu]" >&2
    exit 2
    ;;
esac

# run_ctest NAME [CTEST-ARGUMENT]...
run_ctest() {
    local name=$1
    shift
    (cd "$home/build/$name" && ctest --output-on-failure -j "$(nproc)" "$@")
}

"$home/tools/setup.sh" cc cxx make cmake python3 pkg-config zlib cmocka benchmark\? valgrind\?
tests_on=(-DVMM_BUILD_TOOLS=ON -DVMM_BUILD_TESTS=ON)

echo "== Release: building (build/tests)"
"$home/tools/build.sh" tests "${tests_on[@]}" -DCMAKE_BUILD_TYPE=Release
echo "== Release: testing"
run_ctest tests

echo "== sanitizers: building (build/sanitize)"
"$home/tools/build.sh" sanitize "${tests_on[@]}" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DVMM_CHECK=3 \
    -DVMM_SANITIZE=address,undefined -DVMM_BUILD_BENCH=OFF
echo "== sanitizers: testing"
run_ctest sanitize -L 'unit|api|fault|fuzz|guard|life|misuse|security|soak|tools' -LE gpu

echo "== ThreadSanitizer: building (build/thread)"
"$home/tools/build.sh" thread --target thread_tests "${tests_on[@]}" -DCMAKE_BUILD_TYPE=RelWithDebInfo \
    -DVMM_CHECK=1 -DVMM_SANITIZE=thread -DVMM_BUILD_BENCH=OFF
echo "== ThreadSanitizer: testing"
TSAN_OPTIONS="halt_on_error=1 suppressions=" run_ctest thread -L thread -LE gpu
