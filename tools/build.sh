#!/usr/bin/env bash
# Configures and builds one preset of CMakePresets.json in build/PRESET. Prints nothing unless it fails.
#
# usage: tools/build.sh PRESET [--target TARGET]      --target: builds only that
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case "$#:${2:-}" in
1:) ;;
3:--target) ;;
*)
    echo "usage: tools/build.sh PRESET [--target TARGET]" >&2
    exit 2
    ;;
esac
preset=$1
shift
mkdir -p build
log=build/$preset.log

# A folder keeps its generator. Where there is a choice, Ninja starts fewer processes than make.
if [ ! -e "build/$preset/CMakeCache.txt" ] && command -v ninja >/dev/null; then
    export CMAKE_GENERATOR="${CMAKE_GENERATOR:-Ninja}"
fi
if ! { cmake --preset "$preset" && cmake --build --preset "$preset" -j "$(nproc)" "$@"; } >"$log" 2>&1; then
    tail -n 60 "$log" >&2
    echo "error: preset $preset could not be built; the end of the log is above, all of it in $log" >&2
    exit 1
fi
grep -h "LEFT OUT" "$log" | sed 's/^-- /   /' || true
