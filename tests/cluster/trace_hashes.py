"""The trace hashes of ten seeds, kept in `trace_hashes.json`. After a change that means to change what nodes do:

    python -m tests.cluster.trace_hashes

writes them anew. They stand for every byte, time and order of ten short runs: whoever changes them by accident, by a
set's order or a real clock, sees it here. Compressed bytes are those of a library, so these seeds compress nothing.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from kraft.sim.cluster.run import run_plan
from kraft.sim.nemesis.faults import FaultSettings
from kraft.sim.nemesis.plan import Plan
from kraft.sim.nemesis.swarm import draw_plan

KEPT = Path(__file__).with_name("trace_hashes.json")
SEEDS = range(1, 11)
SETTINGS = FaultSettings(duration_ms=1_000, crashes=1, network_faults=1)


def plan_of(seed: int) -> Plan:
    return replace(draw_plan(seed, SETTINGS), compression="none", ends_early=True)


def trace_hash(seed: int) -> str:
    return run_plan(plan_of(seed)).trace_hash


def kept_hashes() -> dict[str, str]:
    """By seed."""
    hashes: dict[str, str] = json.loads(KEPT.read_text())
    return hashes


def main() -> None:
    KEPT.write_text(json.dumps({str(seed): trace_hash(seed) for seed in SEEDS}, indent=0) + "\n")


if __name__ == "__main__":
    main()
