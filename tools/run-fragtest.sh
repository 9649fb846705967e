#!/usr/bin/env bash
# Installs what is missing, builds fragtest and runs it with the arguments given.
set -euo pipefail
home=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

"$home/tools/setup.sh" cc make cmake zlib
echo "== building fragtest (build/release)"
"$home/tools/build.sh" release -DCMAKE_BUILD_TYPE=Release -DVMM_BUILD_TOOLS=ON \
    -DVMM_BUILD_TESTS=OFF -DVMM_BUILD_BENCH=OFF
exec "$home/build/release/bin/fragtest" "$@"
