"""Records the trace hashes of ten seeds in `trace_hashes.json`, after an intended change of the nodes' behaviour:

    python -m tests.sim.run.trace_hashes

The hashes cover every byte, time and order of ten whole runs: faults, recovery, and all that the cluster does up to the
last reader. They reveal accidental changes, for example by the order of a set or by a real clock. Three runs are short,
for the quick suite; the others have as many faults as ten seconds allow. Compressed bytes depend on a library, so these
seeds compress nothing.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from kraft.sim.nemesis.faults import FaultSettings
from kraft.sim.nemesis.plan import Plan
from kraft.sim.nemesis.swarm import draw_plan
from kraft.sim.run.run import run_plan

KEPT = Path(__file__).with_name("trace_hashes.json")
QUICK_SEEDS, SLOW_SEEDS = (1, 2, 4), (3, 5, 6, 7, 8, 9, 11)
QUICK = FaultSettings(duration_ms=1_500, crashes=2, network_faults=2)
SLOW = FaultSettings(duration_ms=10_000)


def plan_of(seed: int) -> Plan:
    settings = QUICK if seed in QUICK_SEEDS else SLOW
    return replace(draw_plan(seed, settings), compression="none")


def trace_hash(seed: int) -> str:
    return run_plan(plan_of(seed)).trace_hash


def kept_hashes() -> dict[str, str]:
    """Return the recorded hashes by seed."""
    hashes: dict[str, str] = json.loads(KEPT.read_text())
    return hashes


def main() -> None:
    hashes = {str(seed): trace_hash(seed) for seed in (*QUICK_SEEDS, *SLOW_SEEDS)}
    KEPT.write_text(json.dumps(hashes, indent=0) + "\n")


if __name__ == "__main__":
    main()
