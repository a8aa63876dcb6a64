"""Lanes: the rows of a picture of a run. Each row shows the events of one node, partition or client, from the run's
chronicle, as segments and marks over time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kraft.sim.check.observations import TopicPartition
from kraft.sim.cluster import chronicle as kinds
from kraft.sim.cluster.chronicle import Chronicle, ChronicleEvent, ClientOperation
from kraft.sim.story.story import Story

PARTITIONS_SHOWN = 6


@dataclass(frozen=True, slots=True)
class LaneSegment:
    """A section of a row of the picture: `look` selects its colour, `label` is written into it, `text` is shown on
    hovering."""

    from_ms: int
    to_ms: int
    look: str
    label: str
    text: str


@dataclass(frozen=True, slots=True)
class LaneMark:
    """A mark at one time in a row of the picture."""

    at_ms: int
    look: str
    text: str


@dataclass(frozen=True, slots=True)
class Lane:
    """One row of the picture. `is_evidence`: the finding names the node, partition or client of this row."""

    name: str
    segments: tuple[LaneSegment, ...] = ()
    marks: tuple[LaneMark, ...] = ()
    is_evidence: bool = False


def lanes_of(story: Story) -> list[Lane]:
    """Return all rows of the picture, from the top: faults, controllers, brokers, partitions, clients."""
    shape = story.plan.shape
    return [
        *_fault_lanes(story),
        *(_node_lane(story, node, f"controller {node}", is_controller=True) for node in shape.controller_ids),
        *(_node_lane(story, node, f"broker {node}", is_controller=False) for node in shape.broker_ids),
        *(_partition_lane(story, place) for place in _partitions_shown(story)),
        *(_client_lane(story, client) for client in story.plan.work if _did_something(story.chronicle, client)),
    ]


def _fault_lanes(story: Story) -> Iterator[Lane]:
    """Return one row for each kind of fault. Faults of one kind may overlap in their row."""
    for kind in dict.fromkeys(window.kind for window in story.chronicle.windows):
        windows = [window for window in story.chronicle.windows if window.kind == kind]
        segments = (
            LaneSegment(
                window.at_ms,
                story.end_ms if window.end_ms is None else window.end_ms,
                "fault",
                ",".join(map(str, window.nodes)),
                window.text,
            )
            for window in windows
        )
        yield Lane(kind, tuple(segments))


def _node_lane(story: Story, node: int, name: str, *, is_controller: bool) -> Lane:
    events = [event for event in story.chronicle.events if event.node == node]
    shows = (kinds.UP, kinds.DOWN, kinds.ROLE if is_controller else kinds.REGISTRATION)
    changes = list(_node_changes(event for event in events if event.kind in shows))
    marked = (kinds.TRUNCATION, kinds.SNAPSHOT_INSTALL, kinds.FENCE)
    marks = (LaneMark(event.at_ms, event.kind, event.text) for event in events if event.kind in marked)
    return Lane(name, tuple(_segments(changes, story.end_ms)), tuple(marks), node in story.nodes)


def _node_changes(events: Iterable[ChronicleEvent]) -> Iterator[tuple[int, str, str, str]]:
    """Yield the changes of a node's state: (start, colour class, label, text). A node that is down stays down, whatever
    the controller records about it."""
    is_down = False
    for event in events:
        is_down = event.kind != kinds.UP and (is_down or event.kind == kinds.DOWN)
        yield event.at_ms, *(("down", "") if is_down else _state_after(event)), event.text


def _state_after(event: ChronicleEvent) -> tuple[str, str]:
    """Return the colour class (`look`) and the label of a running node after this event."""
    if event.kind == kinds.DOWN:
        return "down", ""
    if event.kind == kinds.UP:
        return "starting", ""
    if event.kind == kinds.REGISTRATION:
        return ("serving", "") if event.value[0] else ("fenced", "fenced")
    role, epoch = event.value
    return str(role), f"epoch {epoch}" if role == kinds.LEADER else f"{epoch}"


def _segments(changes: Iterable[tuple[int, str, str, str]], end_ms: int) -> Iterator[LaneSegment]:
    """Convert changes to segments, each from one change to the next."""
    rows = list(changes)
    for index, (at_ms, look, label, text) in enumerate(rows):
        until_ms = rows[index + 1][0] if index + 1 < len(rows) else end_ms
        if until_ms > at_ms:
            yield LaneSegment(at_ms, until_ms, look, label, text)


def _partitions_shown(story: Story) -> list[TopicPartition]:
    """Return the partition that the finding names, and those with the most changes."""
    changes: dict[TopicPartition, int] = {}
    for event in story.chronicle.events:
        if event.partition is not None and event.value:
            changes[event.partition] = changes.get(event.partition, 0) + 1
    first = [story.partition] if story.partition in changes else []
    rest = sorted(changes, key=lambda place: (-changes[place], place))
    return [*first, *(place for place in rest if place not in first)][:PARTITIONS_SHOWN]


def _partition_lane(story: Story, place: TopicPartition) -> Lane:
    """Return the row of a partition: its leader over time, with the ISR and the leader epoch."""
    changes: list[tuple[int, str, str, str]] = []
    for event in story.chronicle.events:
        if event.partition == place and event.value:
            leader, isr, epoch = event.value
            assert isinstance(isr, tuple)
            is_led = leader != -1
            label = f"{leader if is_led else 'no leader'} of {','.join(map(str, isr)) or 'nobody'} · {epoch}"
            look = f"led by {leader}" if is_led else "leaderless"
            changes.append((event.at_ms, look, label, f"leader {leader}, ISR {list(isr)}, epoch {epoch}: {event.text}"))
    name = f"{place[0]}-{place[1]}"
    return Lane(name, tuple(_segments(changes, story.end_ms)), (), place == story.partition)


def _did_something(chronicle: Chronicle, client: str) -> bool:
    return any(operation.client == client for operation in chronicle.operations)


def _client_lane(story: Story, client: str) -> Lane:
    operations = [each for each in story.chronicle.operations if each.client == client and each.at_ms <= story.end_ms]
    segments = (
        LaneSegment(
            each.at_ms, _end_of(each, story.end_ms), _look_of(each, story.end_ms), "", _text_of(each, story.end_ms)
        )
        for each in operations
    )
    return Lane(client, tuple(segments))


def _end_of(operation: ClientOperation, end_ms: int) -> int:
    """Return the end of an operation. An operation that never ended extends to the end of the run."""
    return end_ms if operation.end_ms is None else min(operation.end_ms, end_ms)


def _look_of(operation: ClientOperation, end_ms: int) -> str:
    if operation.end_ms is None or operation.end_ms > end_ms or operation.is_good is None:
        return "open"
    return "good" if operation.is_good else "bad"


def _text_of(operation: ClientOperation, end_ms: int) -> str:
    is_open = operation.end_ms is None or operation.end_ms > end_ms
    outcome = "still open" if is_open else operation.outcome or "done"
    return f"{operation.client}: {operation.text}, {outcome}"
