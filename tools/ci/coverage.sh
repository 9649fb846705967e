#!/usr/bin/env bash
# Builds with branch counters (build/coverage), runs the tests and prints which branches of the library they took;
# coverage.py says which branches count. Fails below 95 % of the core's branches.
#
# usage: tools/ci/coverage.sh [--missed]      --missed: also prints the lines whose branches were not all taken
set -euo pipefail
home=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$home/build/coverage

case ${1:-} in '' | --missed) [ $# -le 1 ] ;; *) false ;; esac || {
    echo "usage: tools/ci/coverage.sh [--missed]" >&2
    exit 2
}
command -v gcov >/dev/null || {
    echo "error: gcov is missing (Debian, Ubuntu: apt-get install gcc)" >&2
    exit 1
}
"$home/tools/build.sh" coverage
find "$build" -name '*.gcda' -delete
if ! (cd "$home" && ctest --preset coverage -j "$(nproc)") >"$build/tests.log" 2>&1; then
    tail -n 30 "$build/tests.log" >&2
    echo "error: tests failed, so the figures below are too low; see $build/tests.log" >&2
    failed=1
fi
python3 -B "$home/tools/ci/coverage.py" "$home" "$build" "$@"
exit "${failed:-0}"
