"""Numbers, times and sentences as reports show them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from kraft.sim.chaos.judge import INVALID, UNKNOWN, VALID, FoundAnomaly, Gap, RunVerdict
from kraft.sim.chaos.run.run_folder import FaultRecord

NOTHING = "–"
SIGNS = MappingProxyType({VALID: "✓", INVALID: "✕", UNKNOWN: "?"})


def format_ms(value_ms: float | None) -> str:
    """Format a duration: `4.1 ms`, `412 ms`, `1.24 s`, `12.4 s`; a dash for None."""
    if value_ms is None:
        return NOTHING
    if value_ms >= 999.5:
        return f"{value_ms / 1000:.2f} s" if value_ms < 10_000 else f"{value_ms / 1000:,.1f} s"
    return f"{value_ms:.0f} ms" if value_ms >= 9.95 else f"{value_ms:.1f} ms"


def format_at(time_ms: float | None) -> str:
    """Format a time of the run in seconds: `4.12 s`; a dash for None."""
    return NOTHING if time_ms is None else f"{time_ms / 1000:.2f} s"


def format_rate(per_second: float | None) -> str:
    return NOTHING if per_second is None else f"{per_second:,.0f}" if per_second >= 10 else f"{per_second:.1f}"


def count_of(number: int, noun: str) -> str:
    """Format a count: `1 anomaly`, `2 anomalies`."""
    plural = noun if number == 1 else f"{noun[:-1]}ies" if noun.endswith("ly") else f"{noun}s"
    return f"{number:,} {plural}"


def clipped(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def clipped_front(text: str, length: int) -> str:
    """Shorten a text at its front, for texts whose end matters, such as TOPIC-PARTITION."""
    return text if len(text) <= length else "…" + text[1 - length :]


def operations_total(verdict: RunVerdict) -> int:
    return sum(sum(outcomes.values()) for outcomes in verdict.counts.values())


def named_counts(counts: Mapping[str, int]) -> str:
    """Format counts by name: `lost write (2), duplicate (1)`."""
    return ", ".join(f"{name} ({count:,})" for name, count in counts.items())


def anomaly_counts(verdict: RunVerdict, *, is_allowed: bool) -> dict[str, int]:
    """Return name → number of anomalies: either the anomalies that the scenario's settings permit, or those that they
    do not."""
    names = dict.fromkeys(anomaly.name for anomaly in verdict.anomalies if anomaly.is_allowed == is_allowed)
    kept = {name: sum(anomaly.name == name for anomaly in verdict.anomalies) for name in names}
    return {name: max(verdict.anomaly_counts.get(name, 0), kept[name]) for name in names}


def headline(verdict: RunVerdict) -> str:
    """Return the verdict in one sentence, without its reasons."""
    operations = count_of(operations_total(verdict), "operation")
    allowed = anomaly_counts(verdict, is_allowed=True)
    if verdict.verdict == INVALID:
        found = anomaly_counts(verdict, is_allowed=False)
        total = count_of(sum(found.values()), "anomaly")
        return f"{total} in {operations}: {named_counts(found)}."
    if verdict.verdict == UNKNOWN:
        return f"The run cannot be judged: {count_of(len(verdict.reasons), 'reason')}, after {operations}."
    what = "No anomaly was found" if not allowed else "Only anomalies that the settings permit were found"
    seen = "every fault took effect" if verdict.effects else "the run had no fault"
    permitted = f": {named_counts(allowed)}" if allowed else ""
    return f"{what} in {operations}, and {seen}{permitted}."


def sentence(text: str) -> str:
    """Return the text with a capital and a full stop."""
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def anomaly_sentence(anomaly: FoundAnomaly) -> str:
    where = f" ({anomaly.place})" if anomaly.place else ""
    return f"{anomaly.name}{where}: {anomaly.text.rstrip('.')}."


def longest_gap(gaps: Iterable[Gap]) -> Gap | None:
    """Return the longest gap: of sends if there are any, otherwise of all functions. A gap that never ended counts as
    the longest."""
    found = list(gaps)
    sends = [gap for gap in found if gap.f == "send"]
    return max(sends or found, key=lambda gap: (gap.first_success_ms is None, gap.gap_ms), default=None)


def format_gap(gap: Gap | None) -> str:
    if gap is None:
        return NOTHING
    return format_ms(gap.gap_ms) + (", not ended" if gap.first_success_ms is None else "")


def fault_words(fault: FaultRecord) -> str:
    """Describe a fault: `kill of the leader, node 2`."""
    target = f" of the {fault.role}" if fault.role else ""
    nodes = f", node{'s' if len(fault.nodes) > 1 else ''} {', '.join(map(str, fault.nodes))}" if fault.nodes else ""
    return f"{fault.kind}{target}{nodes}"
