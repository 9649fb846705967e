#!/usr/bin/env bash
# Makes the table of docs/footprint.md and the plots in docs/footprint/ anew: builds fragtest, replays
# the shipped traces on the sim driver and draws what it recorded. No GPU is needed.
set -euo pipefail
home=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

"$home/tools/setup.sh" python3
samples=$(mktemp)
trap 'rm -f "$samples"' EXIT
traces=()
for trace in detection encoder_streams gnn llm_generate llm_train_varlen; do
    traces+=(--trace "$trace")
done
"$home/tools/run-fragtest.sh" --driver sim "${traces[@]}" --policy all --memory none --quiet \
    --timeline "$samples"
"$home/tools/plot_footprint.py" "$samples" "$home/docs/footprint.md"
echo "== written: docs/footprint.md, docs/footprint/"
