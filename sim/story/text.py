"""Renders the report of a run as text for a terminal: the events line by line, then the finding and the logs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kraft.sim.cluster.chronicle import DOWN, REGISTRATION, UP, Chronicle, ChronicleEvent
from kraft.sim.run.shrink import describe
from kraft.sim.story.story import HeldBatch, HeldLog, Story

Line = tuple[int, str]
"""A line of text, as (time, text)."""

ALIKE_MAX = 3
"""Maximum number of partitions that are listed one by one if the same event happens to them at the same time."""
SENDS_SHOWN_MAX = 30
"""Number of sent records above which only the failed ones are listed."""


def render_text(story: Story, *, lines_max: int) -> Iterator[str]:
    """Return the whole text; of the events only the last lines."""
    yield f"{story.source}: seed {story.plan.seed}, {describe(story.plan)}"
    lines = list(event_lines(story.chronicle, story.end_ms))
    if len(lines) > lines_max:
        yield f"  … {len(lines) - lines_max} lines before"
    yield from lines[-lines_max:]
    yield from finding_lines(story)


def event_lines(chronicle: Chronicle, end_ms: int) -> Iterator[str]:
    """Return the events up to a time, in order, as lines of text."""
    told = [(chronicle.began_ms, "       clients and faults begin"), *_faults(chronicle), *_events(chronicle)]
    told += _operations(chronicle)
    for at_ms, text in sorted(told, key=lambda line: line[0]):
        if at_ms <= end_ms:
            yield f"{at_ms:>8} ms  {text}"


def _faults(chronicle: Chronicle) -> Iterator[Line]:
    for window in chronicle.windows:
        yield window.at_ms, f"FAULT  {window.text}"
        if window.end_ms is not None and window.end_ms > window.at_ms:
            yield window.end_ms, f"over   {window.text}"


def _events(chronicle: Chronicle) -> Iterator[Line]:
    """Return the events. An event that is the same for many partitions at the same time is returned once, for the first
    of them."""
    alike = Counter((event.at_ms, event.kind) for event in chronicle.events if event.partition is not None)
    told: Counter[tuple[int, str]] = Counter()
    for event in chronicle.events:
        if _is_quiet(event, chronicle.began_ms):
            continue
        moment = (event.at_ms, event.kind)
        told[moment] += 1
        if event.partition is None or alike[moment] <= ALIKE_MAX or told[moment] < ALIKE_MAX:
            yield event.at_ms, f"       {event.text}"
        elif told[moment] == ALIKE_MAX:
            yield event.at_ms, f"       and so for {alike[moment] - ALIKE_MAX + 1} partitions more: {event.kind}"


def _is_quiet(event: ChronicleEvent, began_ms: int) -> bool:
    """Return whether to omit an event because others already show it. Faults show when nodes end, once the cluster is
    up; fences show the fenced nodes."""
    if event.kind in (UP, DOWN):
        return event.at_ms >= began_ms
    return event.kind == REGISTRATION and not event.value[0]


def _operations(chronicle: Chronicle) -> Iterator[Line]:
    few = len(chronicle.operations) <= SENDS_SHOWN_MAX
    for operation in chronicle.operations:
        if few or operation.is_good is not True or not operation.client.startswith("producer"):
            outcome = operation.outcome or ("still open" if operation.end_ms is None else "")
            yield operation.at_ms, f"client {operation.client}: {operation.text}{outcome and ', ' + outcome}"


def finding_lines(story: Story) -> Iterator[str]:
    """Return the finding and its evidence."""
    finding = story.finding
    if finding is None:
        yield "nothing was found"
        return
    yield f"{finding.at_ms:>8} ms  FOUND  {finding.check}: {finding.text}"
    if story.statement:
        yield f"             what must hold: {story.statement}"
    for name, fact in finding.evidence.items():
        yield f"             {name} = {fact}"
    if story.logs:
        name = "the metadata log" if story.partition is None else f"{story.partition[0]}-{story.partition[1]}"
        yield f"  {name} at that moment (base offset-end:epoch of its last batches, * where logs differ):"
    for log in story.logs:
        yield f"    {log_line(log)}"


def log_line(log: HeldLog) -> str:
    """Describe a copy of a log in one line."""
    return f"node {log.node}: [{log.start_offset}, {log.end_offset})  " + " ".join(map(batch_text, log.batches))


def batch_text(batch: HeldBatch) -> str:
    return f"{batch.base_offset}-{batch.next_offset}:{batch.epoch}{'*' if batch.differs else ''}"
