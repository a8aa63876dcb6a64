"""Folders of chaos runs made by hand: the files that `kraft chaos` leaves, judged as it judges them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kraft.sim.chaos.history import line_of
from kraft.sim.chaos.judge.verdict import decide_verdict, verdict_to_json
from kraft.sim.chaos.run.run_folder import FaultRecord, RunFolder, Sample
from tests.chaos.judge.histories import P, Told, info_of, samples_of


def besides(told: Told) -> Told:
    """The history with a success in another partition, and a final reader that came to the end."""
    other = P._replace(partition=1)
    told.send("producer-0/besides", 0, place=other)
    told.final((0, "producer-0/besides"), place=other)
    return told


def write_run(
    into: Path,
    name: str,
    told: Told,
    *,
    faults: Sequence[FaultRecord] = (),
    samples: Sequence[Sample] | None = None,
    **info: Any,
) -> RunFolder:
    """Write and judge a run. `info`: values of its RunInfo."""
    folder = RunFolder(into / name)
    folder.path.mkdir(parents=True)
    about = info_of(**{"healed_ms": 0.0, **info})
    seen = samples_of() if samples is None else samples
    folder.write_info(about)
    folder.history.write_text("".join(map(line_of, told.events)))
    folder.write_rows("faults", faults)
    folder.write_rows("samples", seen)
    folder.verdict.write_text(verdict_to_json(decide_verdict(about, told.events, faults, seen)))
    return folder
