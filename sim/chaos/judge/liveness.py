"""Checks of the healed cluster, of the length of gaps, and of the user's application."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kraft.sim.chaos.history import Function
from kraft.sim.chaos.judge import FoundAnomaly, Gap
from kraft.sim.chaos.judge.anomaly_words import GAP_TOO_LONG, NOT_WHOLE
from kraft.sim.chaos.judge.application import application_anomaly
from kraft.sim.chaos.run.run_folder import ClusterSample, FaultRecord, OutputLine, RunInfo

WHOLE_MS_MAX = 30_000
"""Maximum time after the heal until every replica is in sync, every broker alive, and a controller active."""
RECENT_MS = 5_000
"""Time in ms before the last sample within which samples also count as the end of the run, because on a busy machine
answers are late."""


@dataclass(slots=True)
class LivenessFindings:
    """Result of a liveness check. `judged`: number of items that the check examined."""

    anomalies: list[FoundAnomaly] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    judged: int = 0


def find_not_whole(info: RunInfo, samples: Sequence[ClusterSample]) -> LivenessFindings:
    """Check that the cluster is healthy at the end of the run. There must be an active controller, and every broker
    that was ever seen must be alive. Every partition that was ever seen must have a leader and all replicas in sync.
    Topics may be missing only if the workload is an application, which may create none or delete its own."""
    found = LivenessFindings()
    ordered = sorted(samples, key=lambda one: one.time_ms)
    end_ms = ordered[-1].time_ms if ordered else 0.0
    recent = [one for one in ordered if one.time_ms > max(info.healed_ms, end_ms - RECENT_MS)]
    if not recent:
        found.reasons.append("No sample of the cluster was taken after the heal: whether it is whole is not known.")
        return found
    waited_ms = end_ms - info.healed_ms
    for name, what, evidence in (
        *_without_controller(ordered, recent, found),
        *_missing_brokers(ordered, recent, found),
        *_broken_partitions(info, ordered, recent, found),
    ):
        text = f"{what} {waited_ms / 1000:.0f} s after the heal"
        if waited_ms < WHOLE_MS_MAX:
            found.reasons.append(f"{text}: that is too early to judge.")
            continue
        found.anomalies.append(
            FoundAnomaly(
                name=NOT_WHOLE,
                text=text,
                place=name,
                evidence={**evidence, "waited_ms": waited_ms},
                operations=(),
                is_allowed=NOT_WHOLE in info.allowed,
            )
        )
    return found


_Problem = tuple[str, str, Mapping[str, Any]]
"""A problem at the end of a run: the partition ("" if it concerns none), a description, and the evidence."""


def _without_controller(
    ordered: Sequence[ClusterSample], recent: Sequence[ClusterSample], found: LivenessFindings
) -> Iterator[_Problem]:
    known = [one for one in ordered if one.controller >= 0]
    if not known:
        found.reasons.append("No active controller was ever seen: whether there is one after the heal is not known.")
    elif known[-1].time_ms < recent[0].time_ms:
        yield "", "there is no active controller", {"last_seen_ms": known[-1].time_ms}


def _missing_brokers(
    ordered: Sequence[ClusterSample], recent: Sequence[ClusterSample], found: LivenessFindings
) -> Iterator[_Problem]:
    known = {broker for one in ordered for broker in one.brokers}
    listed = next((one.brokers for one in reversed(recent) if one.brokers), None)
    if known and listed is None:
        found.reasons.append("No broker answered at the end: which brokers are alive after the heal is not known.")
    elif missing := sorted(known - {*(listed or ())}):
        named = ", ".join(map(str, missing))
        yield "", f"broker {named} is not alive", {"missing": missing, "alive": listed}


def _broken_partitions(
    info: RunInfo, ordered: Sequence[ClusterSample], recent: Sequence[ClusterSample], found: LivenessFindings
) -> Iterator[_Problem]:
    known = {(one.topic, one.partition) for sample in ordered for one in sample.partitions}
    last = next((sample.partitions for sample in reversed(recent) if sample.partitions), ())
    if not last and (known or not info.application):
        found.reasons.append("No partition was described at the end: whether they are whole is not known.")
        return
    for one in last:
        found.judged += 1
        if one.leader >= 0 and set(one.isr) == set(one.replicas):
            continue
        what = (
            f"{one.topic}-{one.partition} has leader {one.leader} and ISR {','.join(map(str, one.isr)) or 'none'} of "
            f"replicas {','.join(map(str, one.replicas))}"
        )
        evidence = {"leader": one.leader, "isr": one.isr, "replicas": one.replicas}
        yield f"{one.topic}-{one.partition}", what, evidence
    for topic, partition in sorted(known - {(one.topic, one.partition) for one in last}):
        if not info.application:
            yield f"{topic}-{partition}", f"{topic}-{partition} is no longer described", {}


def find_long_gaps(info: RunInfo, faults: Sequence[FaultRecord], gaps: Sequence[Gap]) -> list[FoundAnomaly]:
    """Return the gaps of sends that are longer than the scenario allows."""
    return [
        FoundAnomaly(
            name=GAP_TOO_LONG,
            text=(
                f"{', '.join(gap.places)} had no success for {gap.gap_ms:.0f} ms after fault {gap.fault + 1} "
                f"({faults[gap.fault].text}), and {info.gap_ms_max} ms are allowed"
            ),
            place=gap.places[0] if gap.places else "",
            evidence={"gap_ms": gap.gap_ms, "gap_ms_max": info.gap_ms_max, "fault": gap.fault},
            operations=(),
            is_allowed=GAP_TOO_LONG in info.allowed,
        )
        for gap in gaps
        if info.gap_ms_max and gap.f == Function.SEND and gap.gap_ms > info.gap_ms_max
    ]


def find_application_failure(info: RunInfo, output: Sequence[OutputLine]) -> LivenessFindings:
    """Check that the user's program ended successfully. Otherwise its last output lines are shown."""
    found = LivenessFindings()
    if not info.application:
        return found
    if info.application_exit is None:
        found.reasons.append(f"{info.application[0]} had not ended when the run did.")
    anomaly = application_anomaly(info.application_exit, output)
    if anomaly is not None:
        found.anomalies.append(replace(anomaly, is_allowed=anomaly.name in info.allowed))
    return found
