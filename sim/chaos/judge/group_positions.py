"""Check that the committed offset of a group does not move back, unless it was reset.

Only certain cases are reported. Commit B succeeded. After that, a member began its assignment, so it fetched the
committed offset after B. It read, and its own commit C is lower than B. So it had received an offset older than B.

Some causes are excluded, because applications and networks may produce them. Coordinators accept a member's commit of a
partition that it no longer owns. A commit whose response was lost is sent again and may be carried out late. So nothing
is reported if some other commit below B overlaps B or followed it, had an unknown outcome, or took long enough for a
second attempt. If the partition's own log lost records, a reader may have been reset, and nothing is reported.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from kraft.sim.chaos.history import Function, HistoryEventType, Place
from kraft.sim.chaos.judge import FoundAnomaly
from kraft.sim.chaos.judge.anomaly_words import STALE_GROUP_POSITION
from kraft.sim.chaos.judge.operations import HistoryOperation, lineage_of, name_of
from kraft.sim.chaos.judge.topics import SENT_TWICE_MS


@dataclass(frozen=True, slots=True)
class _Commit:
    offset: int
    operation: HistoryOperation
    assigned: int | None
    """Index of an event after which the member fetched the committed offset. None if the member has not read up to this
    commit's offset since that event."""


def find_stale_positions(
    operations: Sequence[HistoryOperation], broken: Collection[str], allowed: Collection[str] = ()
) -> tuple[list[FoundAnomaly], int]:
    """Return the anomalies, and how many commits were compared. `broken` are the TOPIC-PARTITIONs whose logs lost
    records."""
    found: list[FoundAnomaly] = []
    compared = 0
    for (group, place), commits in _commits(operations).items():
        if name_of(place) in broken:
            continue
        for earlier, later in _successors(commits):
            compared += 1
            if later.offset < earlier.offset and _is_stale(commits, earlier, later):
                found.append(_anomaly(group, place, earlier, later, STALE_GROUP_POSITION in allowed))
    return found, compared


def _commits(operations: Sequence[HistoryOperation]) -> dict[tuple[str, Place], list[_Commit]]:
    """Return (group, partition) → its commits in the order of their invocations, without those that
    definitely failed."""
    read: dict[str, dict[Place, set[int]]] = defaultdict(lambda: defaultdict(set))
    """Member → offsets that it has received since its last assignment."""
    polls: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    """Member → the end times of its last two polls. An assignment is recorded after the poll in which the member saw
    it. So the assignment arrived after the end of the previous poll."""
    assigned: dict[str, int] = {}
    found: dict[tuple[str, Place], list[_Commit]] = defaultdict(list)
    for operation in operations:
        member = lineage_of(operation.process)
        if operation.f is Function.ASSIGN:
            read.pop(member, None)
            assigned[member] = polls[member][0]
        elif operation.f is Function.POLL:
            polls[member] = [polls[member][1], operation.index]
            for place, records in operation.records if operation.is_ok else ():
                read[member][place].update(offset for offset, _ in records)
        elif operation.f is Function.COMMIT and operation.outcome is not HistoryEventType.FAIL:
            for topic, partition, offset in operation.values.get("offsets", ()):
                place = Place(topic, partition)
                since = assigned.get(member) if offset - 1 in read[member][place] else None
                found[operation.values["group"], place].append(_Commit(offset, operation, since))
    return found


def _successors(commits: Sequence[_Commit]) -> Iterator[tuple[_Commit, _Commit]]:
    """Yield, for each successful commit, the highest successful commit that had returned before it was sent, and the
    commit itself."""
    succeeded = [commit for commit in commits if commit.operation.is_ok]
    by_return = sorted(succeeded, key=lambda commit: commit.operation.index)
    highest: _Commit | None = None
    returned = 0
    for later in succeeded:
        while by_return[returned].operation.index < later.operation.invocation.index:
            if highest is None or by_return[returned].offset > highest.offset:
                highest = by_return[returned]
            returned += 1
        if highest is not None:
            yield highest, later


def _is_stale(commits: Sequence[_Commit], earlier: _Commit, later: _Commit) -> bool:
    """Return whether the later commit proves a stale offset: its process fetched the committed offset after the earlier
    commit had returned, and no other commit can explain the older offset."""
    if later.assigned is None or later.assigned < earlier.operation.index:
        return False
    own = (lineage_of(later.operation.process), later.assigned)
    others = (
        each for each in commits if (lineage_of(each.operation.process), each.assigned) != own and each is not earlier
    )
    return not any(
        other.offset < earlier.offset
        and other.operation.invocation.index < later.operation.index
        and (
            not other.operation.is_ok
            or (other.operation.took_ms or 0) >= SENT_TWICE_MS
            or other.operation.index > earlier.operation.invocation.index
        )
        for other in others
    )


def _anomaly(group: str, place: Place, earlier: _Commit, later: _Commit, is_allowed: bool) -> FoundAnomaly:
    name = name_of(place)
    return FoundAnomaly(
        name=STALE_GROUP_POSITION,
        text=(
            f"group {group} had committed {name}@{earlier.offset} (by {earlier.operation.process}), and then "
            f"{later.operation.process} read and committed {name}@{later.offset}"
        ),
        place=name,
        evidence={"group": group, "before": earlier.offset, "offset": later.offset},
        operations=(earlier.operation.index, later.operation.index),
        is_allowed=is_allowed,
    )
