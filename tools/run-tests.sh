#!/usr/bin/env bash
# Installs missing packages, builds and runs all tests: first a Release build, then a build with
# AddressSanitizer, UndefinedBehaviorSanitizer and all internal checks, then the tests of threads with ThreadSanitizer.
#
# usage: tools/run-tests.sh [--gpu | --ci]
#   --gpu   a missing GPU is a failure, not a skipped test
#   --ci    the Release build is made with GCC, and its warnings are errors; then unit and API tests for AArch64 in an
#           emulator
set -euo pipefail
home=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

release=release
case "$#:${1:-}" in
0:) ;;
1:--gpu) export VMM_REQUIRE_GPU=1 ;;
1:--ci) release=ci ;;
*)
    echo "usage: tools/run-tests.sh [--gpu | --ci]" >&2
    exit 2
    ;;
esac

"$home/tools/setup.sh" cc cxx make ninja\? cmake python3 pkg-config zlib cmocka benchmark\? valgrind\? chromium ncurses microhttpd dpkg-dev
cd "$home"
presets=("$release" asan tsan)
if [ "$release" = ci ] && [ "$(uname -m)" != aarch64 ]; then
    if "$home/tools/setup.sh" aarch64-gcc aarch64-libs qemu-aarch64; then
        presets+=(aarch64)
    elif grep -q '^ID=ubuntu$' /etc/os-release; then
        echo "== aarch64: NOT TESTED, because packages of arm64 are missing; the note above says how to get them" >&2
    else
        exit 1
    fi
fi

build() {
    echo "== $1: building (build/$1)"
    nice -n 19 tools/build.sh "$1" >"build/$1.said" 2>&1 || { cat "build/$1.said" >&2 && return 1; }
}

mkdir -p build
build "$release"
trap wait EXIT # after a failure, a build that has begun ends first
for index in "${!presets[@]}"; do
    preset=${presets[index]} next=${presets[index + 1]:-}
    cat "build/$preset.said"
    # Many tests only wait. The next build uses what they leave of the processors.
    [ -z "$next" ] || build "$next" &
    echo "== $preset: testing"
    ctest --preset "$preset" -j "$((2 * $(nproc)))"
    wait $!
done
