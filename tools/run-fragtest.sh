#!/usr/bin/env bash
# Installs missing packages, builds fragtest and runs it with these arguments.
set -euo pipefail
home=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

"$home/tools/setup.sh" cc make cmake zlib
echo "== building fragtest (build/tools)"
"$home/tools/build.sh" tools --target fragtest
exec "$home/build/tools/bin/fragtest" "$@"
