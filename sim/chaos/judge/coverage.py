"""Conditions without which the verdict is unknown, because a run in which nothing happened proves nothing."""

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
    HistoryOperation,
    lineage_of,
)
from kraft.sim.chaos.run.run_folder import FaultRecord, RunInfo


def find_reasons(
    info: RunInfo,
    operations: Sequence[HistoryOperation],
    faults: Sequence[FaultRecord],
    effects: Sequence[FaultEffect],
    counts: Mapping[str, Mapping[str, int]],
) -> list[str]:
    """Return sentences, each a reason why the run proves nothing."""
    reasons = list(info.trouble)
    if all(operation.process == FINAL_READER for operation in operations) and not info.application:
        reasons.append("No client had any operation.")
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


def find_idle_clients(info: RunInfo, operations: Sequence[HistoryOperation]) -> list[str]:
    """Return a reason for each kind of client of which fewer were active than the scenario requires."""
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
            reasons.append(f"The scenario wants {count} {words}, and {seen} of them had any operation.")
    return reasons


def find_missing_faults(info: RunInfo, faults: Sequence[FaultRecord]) -> list[str]:
    """Return a reason if the scenario requests faults and none was carried out. Whether it requests faults is read from
    the scenario's text."""
    has_faults = re.search(r"^\s*(\[\[fault\]\]|random_faults\s*=\s*true)", info.text, re.MULTILINE) is not None
    return ["The scenario has faults, and none was carried out."] if has_faults and not faults else []


def find_missing_anomalies(info: RunInfo, anomaly_counts: Mapping[str, int]) -> list[str]:
    """Return a reason for each anomaly that the scenario must produce and that did not occur."""
    return [
        f"The scenario was to show {name!r}, and it did not occur."
        for name in info.must_find
        if not anomaly_counts.get(name)
    ]
