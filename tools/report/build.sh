#!/usr/bin/env bash
# Builds the template of the report's page, tools/python/vmmcache/report_page.html, from tools/report/src. Needs node,
# npm and the network. It builds a copy in build/report, so that no packages lie among the sources.
#
# usage: tools/report/build.sh [--check]      --check: writes nothing; fails if the template differs
set -euo pipefail
home=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

case "$#:${1:-}" in
0: | 1:--check) ;;
*)
    echo "usage: tools/report/build.sh [--check]" >&2
    exit 2
    ;;
esac
copy=$home/build/report
rm -rf "$copy/src"
mkdir -p "$copy"
cp -r "$home/tools/report/." "$copy"
cd "$copy"
npm ci --ignore-scripts --silent
npx --no-install prettier --log-level warn --check src build.mjs
npx --no-install tsc --noEmit
node build.mjs "$home/tools/python/vmmcache/report_page.html" "$@"
