#!/usr/bin/env bash
# Builds with counters at every branch (build/coverage), runs the tests and shows which branches of the library they
# have taken: tests/depth/coverage.py says what counts. Fails below 95 % of the core's branches.
#
# usage: tools/coverage.sh [--missed]      --missed: with the lines whose branches were not all taken
set -euo pipefail
home=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$home/build/coverage

case ${1:-} in '' | --missed) [ $# -le 1 ] ;; *) false ;; esac || {
    echo "usage: tools/coverage.sh [--missed]" >&2
    exit 2
}
command -v gcov >/dev/null || {
    echo "error: gcov is missing (Debian, Ubuntu: apt-get install gcc)" >&2
    exit 1
}
counters="--coverage -fprofile-update=atomic"
CC=gcc CXX=g++ "$home/tools/build.sh" coverage -DVMM_BUILD_TOOLS=ON -DVMM_BUILD_TESTS=ON -DVMM_BUILD_BENCH=OFF \
    -DCMAKE_BUILD_TYPE=Debug -DVMM_CHECK=2 -DVMM_TEST_PATIENCE=10 -DCMAKE_C_FLAGS="$counters" -DCMAKE_CXX_FLAGS="$counters"
find "$build" -name '*.gcda' -delete
tests="unit|api|fault|torch|soak|thread|fuzz|misuse|guard|life|security|depth"
if ! (cd "$build" && ctest -j "$(nproc)" -L "$tests" -LE gpu) >"$build/tests.log" 2>&1; then
    tail -n 30 "$build/tests.log" >&2
    echo "error: the figures below are those of tests that failed; all of $build/tests.log tells more" >&2
    failed=1
fi
python3 -B "$home/tests/depth/coverage.py" "$home" "$build" "$@"
exit "${failed:-0}"
