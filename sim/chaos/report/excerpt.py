"""The history as lines of text. A short history is shown completely. Of a long one, the events that prove anomalies are
shown, with their neighbours.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kraft.sim.chaos.history import HistoryEvent, HistoryEventType
from kraft.sim.chaos.report.formats import clipped
from kraft.sim.chaos.report.operations import subject_of

EVENTS_MAX = 10_000
"""Maximum number of events up to which a history is shown completely."""
NEIGHBOURS = 3
EXCERPT_MAX = 4_000
CHARACTERS_MAX = 90
PROOF_CHARACTERS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class ExcerptLine:
    """A line of the history, or a placeholder for `skipped` events."""

    index: int
    text: str
    type: str
    is_proof: bool
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class Excerpt:
    lines: Sequence[ExcerptLine]
    total: int

    @property
    def shown(self) -> int:
        return sum(not line.skipped for line in self.lines)

    @property
    def is_whole(self) -> bool:
        return self.shown == self.total


def excerpt_of(history: Sequence[HistoryEvent], proving: frozenset[int]) -> Excerpt:
    """Return the part of a history that the page shows. `proving` are indexes of events."""
    positions = range(len(history)) if len(history) <= EVENTS_MAX else _near(history, proving)
    lines: list[ExcerptLine] = []
    following = 0
    for position in positions:
        if position > following:
            lines.append(_skipped(position - following))
        event = history[position]
        is_proof = event.index in proving
        lines.append(ExcerptLine(event.index, event_text(event, is_proof), event.type.value, is_proof))
        following = position + 1
    if lines and following < len(history):
        lines.append(_skipped(len(history) - following))
    return Excerpt(lines, len(history))


def _skipped(count: int) -> ExcerptLine:
    return ExcerptLine(-1, "", "skipped", False, count)


def _near(history: Sequence[HistoryEvent], proving: frozenset[int]) -> list[int]:
    """Return the positions of the proving events, of the invocation or completion that belongs to each, and of the
    neighbouring events."""
    halves = _halves(history)
    proofs = [position for position, event in enumerate(history) if event.index in proving]
    found: set[int] = set()
    for proof in proofs:
        for position in (proof, halves.get(proof, proof)):
            found.update(range(max(0, position - NEIGHBOURS), min(len(history), position + NEIGHBOURS + 1)))
        if len(found) >= EXCERPT_MAX:
            break
    return sorted(found)


def _halves(history: Sequence[HistoryEvent]) -> dict[int, int]:
    """Return a map from the position of each invocation to that of its completion, and from each completion to its
    invocation."""
    halves: dict[int, int] = {}
    open_by_process: dict[str, int] = {}
    for position, event in enumerate(history):
        if event.type is HistoryEventType.INVOKE:
            open_by_process[event.process] = position
        elif (invocation := open_by_process.pop(event.process, None)) is not None:
            halves[invocation], halves[position] = position, invocation
    return halves


def event_text(event: HistoryEvent, is_proof: bool = False) -> str:
    """Format an event as one line: index, seconds, process, type, function, subject, values, error."""
    room = PROOF_CHARACTERS_MAX if is_proof else CHARACTERS_MAX
    head = f"{event.index:>6} {event.time_ns / 1e9:>9.4f} s  {event.process:<14} {event.type.value:<6} {event.f.value}"
    words = [subject_of(event.values), *_values(event.values), *([f"error: {event.error}"] if event.error else [])]
    return f"{head}  {clipped('  '.join(filter(None, words)), room)}"


def _values(values: dict[str, Any]) -> Iterable[str]:
    about = next((name for name in ("place", "topic", "group", "node") if name in values), None)
    for name, value in values.items():
        if name == about:
            continue
        text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), default=str)
        yield text.replace("\n", "↵") if name == "value" else f"{name}={text}"
