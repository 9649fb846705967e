#!/usr/bin/env bash
# Configures and builds one build directory below build/. Quiet unless it fails.
#
# usage: tools/build.sh NAME [--target TARGET] [CMAKE-ARGUMENT]...      --target: only that, not everything
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

name=$1
shift
target=()
if [ "${1:-}" = --target ]; then
    target=(--target "$2")
    shift 2
fi
mkdir -p "build/$name"
log=build/$name/build.log

if ! { cmake -S . -B "build/$name" "$@" && cmake --build "build/$name" -j "$(nproc)" ${target[@]+"${target[@]}"}; } \
    >"$log" 2>&1; then
    tail -n 60 "$log" >&2
    echo "error: build/$name could not be built; the end of what happened is above, all of it in $log" >&2
    exit 1
fi
grep -h "LEFT OUT" "$log" | sed 's/^-- /   /' || true
