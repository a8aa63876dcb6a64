"""Check that a seed always gives the same run: run each seed twice, in new processes with different hash seeds and time
zones, and compare the traces.

If two runs diverge, the checkpoints of their traces show where, and a second pair of runs shows the first event that
differs. `python -m kraft.sim.run.determinism SEED MS KEPT` is the child process: one run, printed as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from kraft.sim.nemesis.faults import FaultSettings
from kraft.sim.run.run import ClusterRun, RunSettings
from kraft.sim.world.trace import EVENTS_PER_CHECKPOINT

ENVIRONMENTS = ({"PYTHONHASHSEED": "1", "TZ": "UTC"}, {"PYTHONHASHSEED": "4242", "TZ": "Asia/Tokyo"})
ALL_LINES = 1_000_000


@dataclass(frozen=True, slots=True)
class Traced:
    """Trace of one run. Its `lines` are recorded only on request."""

    trace_hash: str
    checkpoints: list[str]
    lines: list[str]


def run_twice(seed: int, duration_ms: int) -> str:
    """Return "" if both runs were the same, or else where they diverge."""
    one, other = _both(seed, duration_ms, 0)
    if one.trace_hash == other.trace_hash:
        return ""
    since = EVENTS_PER_CHECKPOINT * _in_common(one.checkpoints, other.checkpoints)
    one, other = _both(seed, duration_ms, ALL_LINES)
    at = _in_common(one.lines, other.lines)
    if at < min(len(one.lines), len(other.lines)):
        return f"parts at {one.lines[at]!r} against {other.lines[at]!r}"
    return f"parts after event {since}"


def _both(seed: int, duration_ms: int, lines_kept: int) -> list[Traced]:
    with ThreadPoolExecutor(len(ENVIRONMENTS)) as pool:
        return list(pool.map(lambda extra: _in_a_process(seed, duration_ms, lines_kept, extra), ENVIRONMENTS))


def _in_common(one: list[str], other: list[str]) -> int:
    """Return the length of the longest common prefix of the two sequences."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (left, right) in pairs if left != right), min(len(one), len(other)))


def _in_a_process(seed: int, duration_ms: int, lines_kept: int, extra: dict[str, str]) -> Traced:
    arguments = map(str, (seed, duration_ms, lines_kept))
    command = [sys.executable, "-W", "ignore", "-m", "kraft.sim.run.determinism", *arguments]
    done = subprocess.run(command, env=os.environ | extra, check=True, capture_output=True, text=True)
    return Traced(**json.loads(done.stdout))


def main(seed: int, duration_ms: int, lines_kept: int) -> None:
    settings = RunSettings(faults=FaultSettings(duration_ms=duration_ms), trace_lines=lines_kept)
    run = ClusterRun(seed, settings)
    result = run.run()
    told = {"trace_hash": result.trace_hash, "checkpoints": result.trace_checkpoints, "lines": run.world.trace_lines}
    print(json.dumps(told))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]))
