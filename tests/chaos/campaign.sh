#!/usr/bin/env bash
# Every chaos scenario on our own nodes: three runs each, the core ones ten. Four of them on Apache Kafka too, in turn.
# What came of it goes to docs/chaos-results.json. FOLDER: where the runs are kept.
set -uo pipefail # a run that is not valid does not end the others
cd "$(dirname "$0")/../.."
out="${1:-chaos-runs}"
kraft=.venv/bin/kraft
core=(broker-crash controller-crash rolling-restart paused-leader)
tests/interop/tools.sh || exit 1
kafka="$(tests/interop/kafka.sh install)" || exit 1
status=0
"$kraft" chaos campaign "${core[@]}" --repeat 3 --kafka "$kafka" --side-by-side --out "$out/side-by-side" || status=$?
"$kraft" chaos campaign "${core[@]}" --seed 4 --repeat 7 --out "$out/core" || status=$?
"$kraft" chaos campaign isolate-leader --repeat 10 --out "$out/core" || status=$?
others=()
for name in $("$kraft" chaos list --json | .venv/bin/python -c 'import json, sys; print(*(one["name"] for one in json.load(sys.stdin) if not one["is_core"]))'); do
  others+=("$name")
done
"$kraft" chaos campaign "${others[@]}" --repeat 3 --out "$out/others" || status=$?
.venv/bin/python -m tests.docs.chaos_results "$out"/*
exit "$status"
