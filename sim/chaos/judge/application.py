"""How the user's own program affects the verdict: a bad exit code is an anomaly; an exit before the first fault makes
the verdict unknown.
"""

from __future__ import annotations

from collections.abc import Sequence

from kraft.sim.chaos.application.program import describe_exit
from kraft.sim.chaos.judge import FoundAnomaly
from kraft.sim.chaos.judge.anomaly_words import APPLICATION_FAILED
from kraft.sim.chaos.run.run_folder import FaultRecord, OutputLine

LINES_SHOWN = 10


def application_anomaly(counted_exit: int | None, output: Sequence[OutputLine]) -> FoundAnomaly | None:
    """Return the anomaly of a program that ended with an exit code (RunInfo.application_exit) other than 0; its last
    lines are the evidence. Return None for exit code 0 or an unknown one."""
    if not counted_exit:
        return None
    last = [line.text for line in output[-LINES_SHOWN:]]
    return FoundAnomaly(
        name=APPLICATION_FAILED,
        text=f"the application {describe_exit(counted_exit)}",
        place="",
        evidence={"exit_code": counted_exit, "last_lines": last},
        operations=(),
    )


def application_reasons(end_ms: float, faults: Sequence[FaultRecord]) -> tuple[str, ...]:
    """Return the reason why the verdict is unknown if the program ended at this time, before any fault began."""
    begins = [fault.begin_ms for fault in faults if not fault.missed]
    if begins and end_ms < min(begins):
        return (
            f"the application ended after {end_ms / 1000:.1f} s, before the first fault at {min(begins) / 1000:.1f} s: "
            "no fault could hit it; let it run longer",
        )
    return ()
