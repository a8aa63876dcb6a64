"""Anomalies of sends and polls, with the operations of the history that prove each one.

`kraft.sim.check.histories.client_histories` finds them; here the history is put into its words, and what it finds is
led back to the history's events. Three rules make findings sound on histories of real clients:

- What the final reader was not given proves nothing behind the place where it stopped, unless it had reached the end.
- A member of a group begins at the committed offset after each rebalance, and a poll may contain the rebalance. So a
  member's poll with an `assign` directly behind it need not follow anything, nor its own records each other.
- An acknowledgement without an offset (librdkafka's, of a sequence that the broker has already) promises no place.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from kraft.sim.chaos.history import FINAL_READER, EventType, Function, Place
from kraft.sim.chaos.judge import FoundAnomaly
from kraft.sim.chaos.judge.anomaly_words import sentence_of
from kraft.sim.chaos.judge.operations import Operation, lineage_of, name_of, of
from kraft.sim.check.histories.client_histories import (
    LOST_WRITE,
    UNSEEN,
    UNSENT,
    VANISHED,
    Anomaly,
    Dropped,
    Outcome,
    Poll,
    Reading,
    Send,
    judge,
)

EVIDENCE_MAX = 32
"""Anomalies of one name that are kept."""
SHOWN_MAX = 8 * EVIDENCE_MAX
"""Anomalies of one name among which the smallest are looked for: those at the lowest offsets."""
NEEDS_THE_END = (LOST_WRITE, UNSEEN, VANISHED)
"""Anomalies that say that the final reader was not given a record."""
OPERATIONS_MAX = 8
"""Events that are named for one anomaly."""

_OUTCOMES = MappingProxyType(
    {EventType.OK: Outcome.ACKNOWLEDGED, EventType.FAIL: Outcome.FAILED, EventType.INFO: Outcome.UNKNOWN}
)


@dataclass(slots=True)
class LogFindings:
    """`reasons`: why the absence of anomalies would say nothing. `seen`: invariant → how much was looked at."""

    anomalies: list[FoundAnomaly] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    reasons: list[str] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)


def find_log_anomalies(operations: Sequence[Operation], allowed: Collection[str], has_application: bool) -> LogFindings:
    """Judge all sends and polls. `allowed` are the names that the scenario's settings permit. With an application of
    the user's, records of topics to which no client of ours sent are the application's: nobody knows whether it did."""
    found = LogFindings()
    readings = readings_of(operations)
    final = FinalReader(operations, readings.get(FINAL_READER, ()))
    if of(operations, Function.SEND, Function.POLL):
        found.reasons += final.reasons
    sends = [_send_of(operation, final) for operation in of(operations, Function.SEND)]
    judgement = judge(sends, readings, FINAL_READER)
    found.seen.update(judgement.seen)
    proofs = Proofs(operations, readings, final)
    sent_topics = {send.place[0] for send in sends}
    by_name: dict[str, list[Anomaly]] = defaultdict(list)
    for anomaly in judgement.anomalies:
        name = anomaly.name
        if name == LOST_WRITE and anomaly.evidence["offset"] < 0:
            name = UNSEEN
        is_foreign = has_application and name == UNSENT and anomaly.place[0] not in sent_topics
        if is_foreign or not final.proves(name, Place(*anomaly.place), anomaly.evidence.get("offset", -1)):
            continue
        found.counts[name] += 1
        by_name[name].append(anomaly)
    for name, several in by_name.items():
        first = sorted(several, key=lambda one: one.evidence.get("offset", -1))[:SHOWN_MAX]
        found.anomalies += smallest(proofs.shown(name, anomaly, name in allowed) for anomaly in first)
    return found


def smallest(anomalies: Iterable[FoundAnomaly]) -> list[FoundAnomaly]:
    """At most EVIDENCE_MAX: those with the fewest operations first, and among them the earliest."""
    return sorted(anomalies, key=lambda one: (len(one.operations), one.operations[:1]))[:EVIDENCE_MAX]


def _send_of(operation: Operation, final: FinalReader) -> Send:
    values = operation.values
    acks, value = str(values.get("acks", "all")), values["value"]
    offset = values.get("offset")
    if operation.is_ok and (offset is None or offset < 0):
        offset = final.offset_of(operation.place, value)
    is_nowhere = operation.is_ok and offset is None
    return Send(
        process=operation.process,
        place=operation.place,
        value=value.encode(),
        outcome=_OUTCOMES[operation.outcome],
        offset=-1 if offset is None else offset,
        is_awaited=acks != "0",
        is_once=bool(values.get("idempotent", True)) and acks in ("all", "-1") and not is_nowhere,
    )


# what was read


def readings_of(operations: Sequence[Operation]) -> dict[str, list[Reading]]:
    """Process → what it was given, in its order. All processes of the final reader are one."""
    by_process: dict[str, list[Operation]] = defaultdict(list)
    members: set[str] = set()
    """Lineages that are in a group."""
    for operation in operations:
        if operation.f in (Function.POLL, Function.ASSIGN):
            is_final = lineage_of(operation.process) == FINAL_READER
            by_process[FINAL_READER if is_final else operation.process].append(operation)
        if "group" in operation.values:
            members.add(lineage_of(operation.process))
    return {process: list(_readings(each, lineage_of(process) in members)) for process, each in by_process.items()}


def _readings(operations: Sequence[Operation], is_member: bool) -> Iterator[Reading]:
    read: dict[Place, None] = {}
    """Places of which it was given something: all that it could drop."""
    process = operations[0].process if operations else ""
    for number, operation in enumerate(operations):
        is_rebalanced = is_member and any(after.f is Function.ASSIGN for after in operations[number + 1 : number + 2])
        if operation.f is Function.ASSIGN or operation.process != process:
            yield Dropped(list(read))
        process = operation.process
        if operation.f is not Function.POLL or not operation.is_ok:
            continue
        for place, records in operation.records:
            read[place] = None
            told = [(offset, value.encode()) for offset, value in records]
            if is_rebalanced:
                for record in told:
                    yield Dropped([place])
                    yield Poll(place, [record])
            else:
                yield Poll(place, told)


class FinalReader:
    """How far the final reader came, and so what its silence proves. It reads on until it is at the end of every
    partition, so it is there if its last operation succeeded."""

    def __init__(self, operations: Sequence[Operation], readings: Sequence[Reading]) -> None:
        self._offsets: dict[Place, dict[bytes, int]] = defaultdict(dict)
        """Place → value → the first offset at which the final reader was given it."""
        self._reached: dict[Place, int] = {}
        for poll in (each for each in readings if isinstance(each, Poll)):
            place = Place(*poll.place)
            for offset, value in poll.records:
                self._offsets[place].setdefault(value, offset)
                self._reached[place] = max(offset, self._reached.get(place, -1))
        own = [operation for operation in operations if lineage_of(operation.process) == FINAL_READER]
        self.is_at_end = bool(own) and own[-1].is_ok
        self._unreached = {
            place: (self._reached.get(place, -1), known)
            for place, known in _known_ends(operations).items()
            if self._reached.get(place, -1) < known
        }
        self.reasons = self._reasons(own)

    def _reasons(self, own: Sequence[Operation]) -> list[str]:
        if not any(operation.is_ok for operation in own):
            return ["No final reader read the partitions after the run: whether records are lost is not known."]
        if self.is_at_end:
            return []
        return [
            f"The final reader stopped in {name_of(place)} at offset {reached}, and offset {known} is known."
            for place, (reached, known) in self._unreached.items()
        ]

    def proves(self, name: str, place: Place, offset: int) -> bool:
        """Whether the final reader came far enough to prove an anomaly of this name at this offset (-1: at none)."""
        if name not in NEEDS_THE_END or self.is_at_end or place not in self._unreached:
            return True
        return 0 <= offset <= self._reached.get(place, -1)

    def offset_of(self, place: Place, value: str) -> int | None:
        """Where the final reader found this value first."""
        return self._offsets[place].get(value.encode())


def _known_ends(operations: Sequence[Operation]) -> dict[Place, int]:
    """Place → the highest offset that any client was told of, in an acknowledgement or by a poll."""
    ends: dict[Place, int] = {}
    for operation in operations:
        if operation.is_ok and operation.f is Function.SEND:
            offset = operation.values.get("offset")
            ends[operation.place] = max(ends.get(operation.place, -1), -1 if offset is None else offset)
        elif operation.is_ok and operation.f is Function.POLL:
            for place, records in operation.records:
                ends[place] = max([ends.get(place, -1), *(offset for offset, _ in records)])
    return ends


# what proves it


class Proofs:
    """From an anomaly's values to the events that tell of them."""

    def __init__(
        self, operations: Sequence[Operation], readings: Mapping[str, Sequence[Reading]], final: FinalReader
    ) -> None:
        self._sends: dict[tuple[Place, str], Operation] = {}
        self._polls: dict[Place, dict[int, list[tuple[str, Operation]]]] = defaultdict(lambda: defaultdict(list))
        """Place → offset → (value, poll) of each that gave it."""
        self._of_reader: dict[str, list[Operation]] = defaultdict(list)
        self._steps: dict[str, dict[tuple[Place, int, int], tuple[int, int]]] = {}
        """Reader → (place, offset before, offset) → the events of both."""
        for operation in operations:
            if operation.f is Function.SEND:
                self._sends.setdefault((operation.place, operation.values["value"]), operation)
            elif operation.f is Function.POLL and operation.is_ok:
                is_final = lineage_of(operation.process) == FINAL_READER
                self._of_reader[FINAL_READER if is_final else operation.process].append(operation)
                for place, records in operation.records:
                    for offset, value in records:
                        self._polls[place][offset].append((value, operation))

    def shown(self, name: str, anomaly: Anomaly, is_allowed: bool) -> FoundAnomaly:
        """The anomaly with its sentence, and the events that prove it, in order."""
        place, told = Place(*anomaly.place), anomaly.evidence
        evidence = {key: _plain(value) for key, value in told.items()}
        indexes: list[int] = []
        value = evidence.get("value")
        send = self._sends.get((place, value)) if isinstance(value, str) else None
        if send is not None:
            indexes.append(send.index)
            evidence["process"] = send.process
            if send.error:
                evidence["error"] = send.error
        if "reader" in told and "before" in told:
            indexes += self._step(told["reader"], place, told["before"], told["offset"])
        else:
            indexes += self._readers_of(name, place, evidence)
        if "before" in told and "reader" not in told:
            before = self._sender_at(place, evidence.get("process", ""), told["before"], send)
            indexes += [] if before is None else [before]
        return FoundAnomaly(
            name=name,
            text=sentence_of(name, name_of(place), evidence),
            place=name_of(place),
            evidence=evidence,
            operations=tuple(sorted({*indexes}))[:OPERATIONS_MAX],
            is_allowed=is_allowed,
        )

    def _readers_of(self, name: str, place: Place, evidence: Mapping[str, Any]) -> list[int]:
        """The first poll that gave each (offset, value) of which the evidence speaks."""
        at = [*evidence.get("offsets", ()), *([evidence["offset"]] if "offset" in evidence else [])]
        if evidence.get("bound") is not None:
            at.append(evidence["bound"])
        found: dict[tuple[int, str], int] = {}
        for offset in at:
            for value, poll in self._polls[place].get(offset, ()):
                found.setdefault((offset, value), poll.index)
        return list(found.values())

    def _sender_at(self, place: Place, process: str, offset: int, later: Operation | None) -> int | None:
        """The send of this process that was acknowledged at this offset before."""
        for operation in self._sends.values():
            is_it = operation.process == process and operation.place == place and operation is not later
            if is_it and operation.is_ok and operation.values.get("offset") == offset:
                return operation.index
        return None

    def _step(self, reader: str, place: Place, before: int, offset: int) -> tuple[int, ...]:
        """The polls in which a reader was given one offset directly after another."""
        if reader not in self._steps:
            self._steps[reader] = self._steps_of(reader)
        return self._steps[reader].get((place, before, offset), ())

    def _steps_of(self, reader: str) -> dict[tuple[Place, int, int], tuple[int, int]]:
        steps: dict[tuple[Place, int, int], tuple[int, int]] = {}
        last: dict[Place, tuple[int, int]] = {}
        for poll in self._of_reader[reader]:
            for place, records in poll.records:
                for offset, _ in records:
                    if place in last:
                        steps.setdefault((place, last[place][0], offset), (last[place][1], poll.index))
                    last[place] = (offset, poll.index)
        return steps


def _plain(value: Any) -> Any:
    """As JSON has it."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return [_plain(each) for each in value] if isinstance(value, list | tuple | set | frozenset) else value
