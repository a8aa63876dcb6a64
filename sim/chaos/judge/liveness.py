"""What must work once everything is healed, how long nothing may work before that, and the user's application."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from kraft.sim.chaos.history import Function
from kraft.sim.chaos.judge import FoundAnomaly, Gap
from kraft.sim.chaos.judge.anomaly_words import GAP_TOO_LONG, NOT_WHOLE, UNAVAILABLE
from kraft.sim.chaos.judge.application import application_anomaly
from kraft.sim.chaos.judge.operations import Operation, lineage_of, of
from kraft.sim.chaos.run.run_folder import FaultRecord, OutputLine, RunInfo, Sample

AFTER_HEAL_MS_MIN = 5_000
"""Shorter than that, a producer without a success after the heal says nothing."""
WHOLE_MS_MAX = 30_000
"""So long after the heal every replica is in sync again."""


@dataclass(slots=True)
class LivenessFindings:
    """`judged`: producers that could have been found without a success."""

    anomalies: list[FoundAnomaly] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    judged: int = 0


def find_unavailable(info: RunInfo, operations: Sequence[Operation]) -> LivenessFindings:
    """Every producer, under whichever of its names, sends with success between the heal and the end of the work."""
    found = LivenessFindings()
    producers: dict[str, list[Operation]] = defaultdict(list)
    for operation in of(operations, Function.SEND):
        producers[lineage_of(operation.process)].append(operation)
    left_ms = info.duration_ms - info.healed_ms
    if producers and left_ms < AFTER_HEAL_MS_MIN:
        found.reasons.append(
            f"The clients worked for {max(left_ms, 0) / 1000:.1f} s after the heal: to see whether every producer "
            f"recovers takes {AFTER_HEAL_MS_MIN / 1000:.0f} s."
        )
        return found
    for producer, sends in producers.items():
        found.judged += 1
        begun = [send for send in sends if info.healed_ms <= send.begin_ms < info.duration_ms]
        pending = [
            send
            for send in sends
            if send.begin_ms < info.healed_ms and (send.end_ms is None or send.end_ms > info.healed_ms)
        ]
        if any(send.is_ok for send in (*begun, *pending)):
            continue
        if not begun and not pending:
            found.reasons.append(f"{producer} sent nothing after the heal: whether it could is not known.")
            continue
        tried = [*pending, *begun]
        errors = sorted({send.error for send in tried})
        found.anomalies.append(
            FoundAnomaly(
                name=UNAVAILABLE,
                text=(
                    f"{producer} had no success in the {left_ms / 1000:.1f} s after the heal, of {len(tried)} sends "
                    f"({', '.join(errors)})"
                ),
                place="",
                evidence={"producer": producer, "sends": len(tried), "errors": errors},
                operations=tuple(send.index for send in tried[:4]),
                is_allowed=UNAVAILABLE in info.allowed,
            )
        )
    return found


def find_not_whole(info: RunInfo, samples: Sequence[Sample]) -> LivenessFindings:
    """In the last sample every partition that was ever seen is led, and all of its replicas are in sync."""
    found = LivenessFindings()
    last = max((one for one in samples if one.partitions), key=lambda one: one.time_ms, default=None)
    if last is None:
        return found
    waited_ms = last.time_ms - info.healed_ms
    for one in last.partitions:
        found.judged += 1
        if one.leader >= 0 and set(one.isr) == set(one.replicas):
            continue
        name = f"{one.topic}-{one.partition}"
        text = (
            f"{name} has leader {one.leader} and ISR {','.join(map(str, one.isr)) or 'none'} of replicas "
            f"{','.join(map(str, one.replicas))} {waited_ms / 1000:.0f} s after the heal"
        )
        if waited_ms < WHOLE_MS_MAX:
            found.reasons.append(f"{text}: that is too early to judge.")
            continue
        evidence = {"leader": one.leader, "isr": one.isr, "replicas": one.replicas, "waited_ms": waited_ms}
        is_allowed = NOT_WHOLE in info.allowed
        found.anomalies.append(
            FoundAnomaly(name=NOT_WHOLE, text=text, place=name, evidence=evidence, operations=(), is_allowed=is_allowed)
        )
    return found


def find_long_gaps(info: RunInfo, faults: Sequence[FaultRecord], gaps: Sequence[Gap]) -> list[FoundAnomaly]:
    """Gaps of sends that are longer than the scenario allows."""
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
    """The user's program ends, and well. Its last lines are shown if it does not."""
    found = LivenessFindings()
    if not info.application:
        return found
    if info.application_exit is None:
        found.reasons.append(f"{info.application[0]} had not ended when the run did.")
    anomaly = application_anomaly(info.application_exit, output)
    if anomaly is not None:
        found.anomalies.append(replace(anomaly, is_allowed=anomaly.name in info.allowed))
    return found
