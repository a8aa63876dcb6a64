"""Hand-made folders of chaos runs, with the files that `kraft chaos` writes and the verdict that it gives."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kraft.sim.chaos.history import line_of
from kraft.sim.chaos.judge.verdict import decide_verdict, verdict_to_json
from kraft.sim.chaos.run.run_folder import ClusterSample, FaultRecord, RunFolder
from tests.chaos.judge.histories import HistoryBuilder, P, info_of, samples_of


def besides(reported: HistoryBuilder) -> HistoryBuilder:
    """Add a successful send to another partition to the history, and a final reader that reached the end of that
    partition. Return the history."""
    other = P._replace(partition=1)
    reported.send("producer-0/besides", 0, place=other)
    reported.final((0, "producer-0/besides"), place=other)
    return reported


def write_run(
    into: Path,
    name: str,
    reported: HistoryBuilder,
    *,
    faults: Sequence[FaultRecord] = (),
    samples: Sequence[ClusterSample] | None = None,
    **info: Any,
) -> RunFolder:
    """Write the files of a run and its verdict. `info`: values of the run's RunInfo."""
    folder = RunFolder(into / name)
    folder.path.mkdir(parents=True)
    about = info_of(**{"healed_ms": 0.0, **info})
    seen = samples_of() if samples is None else samples
    folder.write_info(about)
    folder.history.write_text("".join(map(line_of, reported.events)))
    folder.write_rows("faults", faults)
    folder.write_rows("samples", seen)
    folder.verdict.write_text(verdict_to_json(decide_verdict(about, reported.events, faults, seen)))
    return folder
