"""Renders the verdict of a run as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kraft.sim.chaos.judge import RunVerdict
from kraft.sim.chaos.report.formats import (
    anomaly_sentence,
    count_of,
    fault_words,
    format_at,
    format_gap,
    format_ms,
    headline,
    sentence,
)
from kraft.sim.chaos.report.operations import WAITING
from kraft.sim.chaos.report.timeline import evidence_of
from kraft.sim.chaos.run.run_folder import FaultRecord, RunFolder, RunInfo

ANOMALIES_MAX = 10
ERRORS_MAX = 5


def text_summary(
    info: RunInfo, verdict: RunVerdict, faults: Sequence[FaultRecord] = (), folder: RunFolder | None = None
) -> Iterator[str]:
    """Return lines without line ends: the verdict and its reasons, each fault with its evidence and gap, counts,
    latencies, and the paths of the report. Without `faults`, faults have numbers only; without `folder`, there are no
    paths."""
    yield f"{info.scenario} on {info.cluster} with {info.client}, seed {info.seed}: {verdict.verdict.upper()}"
    yield f"  {printable(headline(verdict))}"
    for reason in verdict.reasons:
        yield f"  - {printable(sentence(reason))}"
    yield from _anomalies(verdict)
    yield from _faults(verdict, faults)
    yield from _counts(verdict)
    if info.application:
        code = "did not end" if info.application_exit is None else f"exit code {info.application_exit}"
        yield f"application: {printable(' '.join(info.application))}: {code}"
    for note in info.notes:
        yield f"note: {printable(note)}"
    if folder is not None:
        yield f"report:  {folder.report}"
        yield f"history: {folder.history}"
    yield f"again:   {printable(info.command)}"


def _anomalies(verdict: RunVerdict) -> Iterator[str]:
    for anomaly in verdict.anomalies[:ANOMALIES_MAX]:
        events = ", ".join(map(str, anomaly.operations[:8]))
        where = f" Events {events}." if events else ""
        allowed = " Permitted by the scenario's settings." if anomaly.is_allowed else ""
        yield f"  - {printable(anomaly_sentence(anomaly))}{where}{allowed}"
    if len(verdict.anomalies) > ANOMALIES_MAX:
        every = sum(verdict.anomaly_counts.values())
        kept = len(verdict.anomalies) - ANOMALIES_MAX
        yield f"  - and {every - ANOMALIES_MAX:,} more, of which the report has {kept:,}"


def _faults(verdict: RunVerdict, faults: Sequence[FaultRecord]) -> Iterator[str]:
    judged = {effect.fault for effect in verdict.effects} | {gap.fault for gap in verdict.gaps}
    numbers = sorted(judged | set(range(len(faults))))
    if numbers:
        yield "faults:"
    for number in numbers:
        fault = faults[number] if number < len(faults) else None
        words = f" {format_at(fault.begin_ms)} {fault_words(fault)}" if fault else ""
        yield f"  {number + 1}.{printable(words)}"
        if fault is not None and fault.missed:
            yield f"     did not happen: {printable(fault.missed)}"
        for evidence in evidence_of(verdict, number):
            yield f"     {printable(evidence)}"
        for gap in (gap for gap in verdict.gaps if gap.fault == number):
            places = f" ({', '.join(gap.places)})" if gap.places else ""
            ended = gap.first_success_ms
            end = "" if ended is None else f", ended {format_ms(ended)} after the fault began"
            yield f"     {gap.f}{printable(places)}: gap {format_gap(gap)}{end}"


def _counts(verdict: RunVerdict) -> Iterator[str]:
    if verdict.counts:
        yield "operations:"
    for f, outcomes in verdict.counts.items():
        yield f"  {f:<14} " + "  ".join(f"{name} {count:,}" for name, count in outcomes.items())
    errors = sorted(verdict.errors.items(), key=lambda each: (-each[1], each[0]))
    for error, count in errors[:ERRORS_MAX]:
        yield f"  {printable(error)}: {count_of(count, 'time')}"
    if len(errors) > ERRORS_MAX:
        yield f"  and {count_of(len(errors) - ERRORS_MAX, 'more error')}"
    yield from _latencies(verdict)


def _latencies(verdict: RunVerdict) -> Iterator[str]:
    """Return one line for each function: its p99 in each phase."""
    slow: dict[str, list[str]] = {}
    for phase in verdict.phases:
        if phase.p99_ms is not None and phase.f not in WAITING:
            slow.setdefault(phase.f, []).append(f"{phase.phase} {format_ms(phase.p99_ms)}")
    if slow:
        yield "p99:"
    for f, phases in slow.items():
        yield f"  {f:<14} {', '.join(phases)}"


def printable(text: str) -> str:
    """Return the text on one line, without terminal control characters."""
    return "".join(sign if sign.isprintable() else " " for sign in text)
