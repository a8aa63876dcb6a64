"""The verdict of a run, derived from its files, and the file verdict.json.

A run is invalid if it has an anomaly that the scenario's settings do not permit. Otherwise it is valid only if the
result is certain. Every fault must have been seen to take effect, and every function must have succeeded. The final
reader must have reached the end, and every checker must have a result. If any of these is missing, the verdict is
unknown.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from kraft.sim.chaos.history import HistoryEvent
from kraft.sim.chaos.judge import (
    INVALID,
    UNKNOWN,
    VALID,
    FaultEffect,
    FoundAnomaly,
    Gap,
    PhaseStatistics,
    RunVerdict,
    availability,
    coverage,
    liveness,
    recovery,
)
from kraft.sim.chaos.judge.anomalies import LogFindings, find_log_anomalies, smallest
from kraft.sim.chaos.judge.anomaly_words import MEANINGS
from kraft.sim.chaos.judge.evidence import find_effects
from kraft.sim.chaos.judge.group_positions import find_stale_positions
from kraft.sim.chaos.judge.liveness import LivenessFindings
from kraft.sim.chaos.judge.operations import HistoryOperation, MalformedHistory, paired
from kraft.sim.chaos.judge.signs import ObservedRun
from kraft.sim.chaos.judge.topics import TopicFindings, find_topic_anomalies
from kraft.sim.chaos.run.run_folder import ClusterSample, FaultRecord, OutputLine, RunInfo
from kraft.sim.check.histories.client_histories import INCONSISTENT_OFFSETS, LOST_WRITE, MISPLACED, UNSEEN, VANISHED

LOG_LOSSES = (INCONSISTENT_OFFSETS, LOST_WRITE, MISPLACED, UNSEEN, VANISHED)
"""Anomalies in which a partition's log lost records."""

Result = TypeVar("Result")


@dataclass(slots=True)
class _CheckResults:
    """Results of the checkers. If a checker raises, a reason for an unknown verdict is added instead of a result."""

    reasons: list[str] = field(default_factory=list)
    anomalies: list[FoundAnomaly] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    checked: Counter[str] = field(default_factory=Counter)

    def run(self, name: str, check: Callable[[], Result], nothing: Result) -> Result:
        try:
            return check()
        except Exception as error:  # noqa: BLE001 - a failed checker must not hide the findings of others
            self.reasons.append(f"The check of {name} failed: {type(error).__name__}: {error}.")
            return nothing

    def add(self, anomalies: Sequence[FoundAnomaly]) -> None:
        self.counts.update(anomaly.name for anomaly in anomalies)
        by_name: dict[str, list[FoundAnomaly]] = {}
        for anomaly in anomalies:
            by_name.setdefault(anomaly.name, []).append(anomaly)
        for several in by_name.values():
            self.anomalies += smallest(several)


def decide_verdict(
    info: RunInfo,
    history: Sequence[HistoryEvent],
    faults: Sequence[FaultRecord],
    samples: Sequence[ClusterSample],
    output: Sequence[OutputLine] = (),
) -> RunVerdict:
    """Return the verdict of a run. Never raises because of the files' contents: what cannot be checked becomes a reason
    and makes the verdict unknown. `output` is the output of the user's own application, if one ran."""
    found = _CheckResults()
    operations = _operations(history, found)
    _judge_logs(info, operations, found)
    _judge_topics(info, operations, found)
    _judge_liveness(info, operations, samples, output, found)
    observed = ObservedRun(sorted(samples, key=lambda sample: sample.time_ms), operations, info.duration_ms)
    effects = found.run("the faults' effects", lambda: find_effects(observed, faults), list[FaultEffect]())
    gaps = found.run("gaps", lambda: availability.find_gaps(info, operations, faults), list[Gap]())
    found.add(found.run("gaps", lambda: liveness.find_long_gaps(info, faults, gaps), list[FoundAnomaly]()))
    counts = availability.counts_of(operations)
    found.reasons += coverage.find_reasons(info, operations, faults, effects, counts)
    found.reasons += coverage.find_idle_clients(info, operations)
    found.reasons += coverage.find_missing_faults(info, faults)
    found.reasons += coverage.find_missing_anomalies(info, found.counts)
    return RunVerdict(
        verdict=_verdict(found),
        reasons=tuple(dict.fromkeys(found.reasons)),
        anomalies=tuple(sorted(found.anomalies, key=lambda anomaly: anomaly.is_allowed)),
        anomaly_counts=dict(found.counts),
        effects=tuple(effects),
        gaps=tuple(gaps),
        phases=tuple(
            found.run("phases", lambda: availability.find_phases(info, operations, faults), list[PhaseStatistics]())
        ),
        counts=counts,
        errors=availability.errors_of(operations),
        checked=dict(found.checked),
        throughput=availability.throughput_of(info, operations),
    )


def _verdict(found: _CheckResults) -> str:
    if any(not anomaly.is_allowed for anomaly in found.anomalies):
        return INVALID
    return UNKNOWN if found.reasons else VALID


def _operations(history: Sequence[HistoryEvent], found: _CheckResults) -> list[HistoryOperation]:
    try:
        return paired(history)
    except MalformedHistory as problem:
        found.reasons.append(f"The history is malformed: {problem}.")
        return []


def _judge_logs(info: RunInfo, operations: Sequence[HistoryOperation], found: _CheckResults) -> None:
    """Check sends and polls, and the committed offsets of groups, which depend on the logs."""
    logs = found.run(
        "sends and polls",
        lambda: find_log_anomalies(operations, info.allowed, bool(info.application)),
        LogFindings(),
    )
    found.reasons += logs.reasons
    found.anomalies += logs.anomalies
    found.counts.update(logs.counts)
    found.checked.update(logs.seen)
    broken = {anomaly.place for anomaly in logs.anomalies if anomaly.name in LOG_LOSSES}
    stale, compared = found.run(
        "group positions", lambda: find_stale_positions(operations, broken, info.allowed), (list[FoundAnomaly](), 0)
    )
    found.add(stale)
    found.checked.update({"G3": compared} if compared else {})


def _judge_topics(info: RunInfo, operations: Sequence[HistoryOperation], found: _CheckResults) -> None:
    topics = found.run("topics", lambda: find_topic_anomalies(operations, info.allowed), TopicFindings())
    found.reasons += topics.reasons
    found.add(topics.anomalies)
    found.checked.update({"R20": topics.judged} if topics.judged else {})


def _judge_liveness(
    info: RunInfo,
    operations: Sequence[HistoryOperation],
    samples: Sequence[ClusterSample],
    output: Sequence[OutputLine],
    found: _CheckResults,
) -> None:
    whole = found.run("replicas in sync", lambda: liveness.find_not_whole(info, samples), LivenessFindings())
    found.reasons += whole.reasons
    found.add(whole.anomalies)
    found.checked.update({"L5": whole.judged} if whole.judged else {})
    for name, check in (
        ("recovery", lambda: recovery.find_unavailable(info, operations)),
        ("the application", lambda: liveness.find_application_failure(info, output)),
    ):
        result = found.run(name, check, LivenessFindings())
        found.reasons += result.reasons
        found.add(result.anomalies)
        found.checked.update({"L7": result.judged} if result.judged else {})


def meaning_of(name: str) -> str:
    """Return the meaning of an anomaly's name, in a few words."""
    return MEANINGS[name][1]


# verdict.json


def verdict_to_json(verdict: RunVerdict) -> str:
    """Return the text of verdict.json."""
    return json.dumps(asdict(verdict), indent=1) + "\n"


def verdict_from_json(text: str) -> RunVerdict:
    """Parse the text of verdict.json. ValueError, KeyError or TypeError if it is not a verdict."""
    row: dict[str, Any] = json.loads(text)
    parts: Mapping[str, Callable[[Any], Any]] = {
        "reasons": tuple,
        "anomalies": lambda rows: tuple(_with_tuples(FoundAnomaly, each, "operations") for each in rows),
        "effects": lambda rows: tuple(FaultEffect(**each) for each in rows),
        "gaps": lambda rows: tuple(_with_tuples(Gap, each, "places") for each in rows),
        "phases": lambda rows: tuple(PhaseStatistics(**each) for each in rows),
        "throughput": lambda rows: tuple((time_ms, rate) for time_ms, rate in rows),
    }
    return RunVerdict(**{name: parts.get(name, lambda value: value)(value) for name, value in row.items()})


def _with_tuples(kind: Callable[..., Result], row: Mapping[str, Any], *names: str) -> Result:
    return kind(**{key: tuple(value) if key in names else value for key, value in row.items()})
