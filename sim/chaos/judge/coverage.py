"""A run in which nothing happened proves nothing: what must have happened for the verdict to mean anything."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from kraft.sim.chaos.history import FINAL_READER
from kraft.sim.chaos.judge import FaultEffect
from kraft.sim.chaos.judge.operations import (
    CHURN_CLIENTS,
    MEMBERS,
    PRODUCERS,
    READERS,
    Operation,
    lineage_of,
)
from kraft.sim.chaos.run.run_folder import FaultRecord, RunInfo


def find_reasons(
    info: RunInfo,
    operations: Sequence[Operation],
    faults: Sequence[FaultRecord],
    effects: Sequence[FaultEffect],
    counts: Mapping[str, Mapping[str, int]],
) -> list[str]:
    """Sentences, each a reason why the run says nothing."""
    reasons = list(info.trouble)
    if all(operation.process == FINAL_READER for operation in operations) and not info.application:
        reasons.append("No client did anything.")
    reasons += [
        f"No operation {function!r} succeeded, of {sum(ended.values())}."
        for function, ended in counts.items()
        if not ended.get("ok")
    ]
    for effect in effects:
        if not effect.is_seen:
            fault = faults[effect.fault]
            reasons.append(
                f"Fault {effect.fault + 1} ({fault.text}) is not seen to have taken effect: {effect.evidence}."
            )
    return reasons


def find_idle_clients(info: RunInfo, operations: Sequence[Operation]) -> list[str]:
    """A reason for each sort of clients of which fewer did anything than the scenario wanted."""
    wanted = {
        PRODUCERS: (info.producers, "producers"),
        READERS: (info.readers, "readers"),
        MEMBERS: (info.group_members, "members of the group"),
        CHURN_CLIENTS: (info.topic_churn, "clients that change topics"),
    }
    clients = {lineage_of(operation.process) for operation in operations}
    reasons: list[str] = []
    for prefix, (count, words) in wanted.items():
        seen = sum(client.startswith(prefix) for client in clients)
        if seen < count:
            reasons.append(f"The scenario wants {count} {words}, and {seen} of them did anything.")
    return reasons


def find_missing_faults(info: RunInfo, faults: Sequence[FaultRecord]) -> list[str]:
    """A reason if the scenario has faults and none was carried out. Its text is what says whether it has any."""
    has_faults = re.search(r"^\s*(\[\[fault\]\]|random_faults\s*=\s*true)", info.text, re.MULTILINE) is not None
    return ["The scenario has faults, and none was carried out."] if has_faults and not faults else []


def find_missing_anomalies(info: RunInfo, anomaly_counts: Mapping[str, int]) -> list[str]:
    """A reason for each anomaly that the scenario was to show and that did not come about."""
    return [
        f"The scenario was to show {name!r}, and it did not come about."
        for name in info.must_find
        if not anomaly_counts.get(name)
    ]
