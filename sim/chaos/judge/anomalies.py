"""Anomalies of sends and polls, with the operations of the history that prove each one.

`kraft.sim.check.histories.client_histories` finds them. This module converts the history to its input, and maps its
findings back to the history's events. Three rules make findings sound for histories of real clients:

- Records that the final reader did not receive prove nothing after the offset where it stopped, unless it had reached
  the end.
- A member of a group starts at the committed offset after each rebalance, and a poll may contain the rebalance. So a
  member's poll with an `assign` directly after it need not continue an earlier read, and its own records need not be
  consecutive.
- An acknowledgement without an offset (librdkafka's, for a sequence that the broker already has) promises no offset.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from kraft.sim.chaos.history import FINAL_READER, Function, HistoryEventType, Place
from kraft.sim.chaos.judge import FoundAnomaly
from kraft.sim.chaos.judge.anomaly_words import sentence_of
from kraft.sim.chaos.judge.operations import HistoryOperation, lineage_of, name_of, of
from kraft.sim.check.histories.client_histories import (
    LOST_WRITE,
    UNSEEN,
    UNSENT,
    VANISHED,
    Anomaly,
    Dropped,
    Poll,
    Reading,
    SendOutcome,
    SentValue,
    judge,
)

EVIDENCE_MAX = 32
"""Maximum number of anomalies of one name that are kept."""
SHOWN_MAX = 8 * EVIDENCE_MAX
"""Number of anomalies of one name, those at the lowest offsets, from which the smallest are selected."""
NEEDS_THE_END = (LOST_WRITE, UNSEEN, VANISHED)
"""Anomalies whose proof is that the final reader did not receive a record."""
OPERATIONS_MAX = 8
"""Maximum number of events that prove one anomaly."""

_OUTCOMES = MappingProxyType(
    {
        HistoryEventType.OK: SendOutcome.ACKNOWLEDGED,
        HistoryEventType.FAIL: SendOutcome.FAILED,
        HistoryEventType.INFO: SendOutcome.UNKNOWN,
    }
)


@dataclass(slots=True)
class LogFindings:
    """Result of the check of sends and polls. `reasons`: why the absence of anomalies would prove nothing. `seen`:
    invariant → number of checked items."""

    anomalies: list[FoundAnomaly] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    reasons: list[str] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)


def find_log_anomalies(
    operations: Sequence[HistoryOperation], allowed: Collection[str], has_application: bool
) -> LogFindings:
    """Check all sends and polls. `allowed` are the names of anomalies that the scenario's settings permit. If the
    user's application is the workload, its sends are not in the history. Then records in topics to which no client of
    the run sent count as sent by the application."""
    found = LogFindings()
    readings = readings_of(operations)
    final = FinalReaderCoverage(operations, readings.get(FINAL_READER, ()))
    if of(operations, Function.SEND, Function.POLL):
        found.reasons += final.reasons
    sends = [_send_of(operation, final) for operation in of(operations, Function.SEND)]
    judgement = judge(sends, readings, FINAL_READER)
    found.seen.update(judgement.seen)
    proofs = ProofFinder(operations, readings, final)
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
    """Return at most EVIDENCE_MAX anomalies: those with the fewest operations, and among equals the earliest."""
    return sorted(anomalies, key=lambda one: (len(one.operations), one.operations[:1]))[:EVIDENCE_MAX]


def _send_of(operation: HistoryOperation, final: FinalReaderCoverage) -> SentValue:
    values = operation.values
    acks, value = str(values.get("acks", "all")), values["value"]
    offset = values.get("offset")
    if operation.is_ok and (offset is None or offset < 0):
        offset = final.offset_of(operation.place, value)
    is_nowhere = operation.is_ok and offset is None
    return SentValue(
        process=operation.process,
        place=operation.place,
        value=value.encode(),
        outcome=_OUTCOMES[operation.outcome],
        offset=-1 if offset is None else offset,
        is_awaited=acks != "0",
        is_once=bool(values.get("idempotent", True)) and acks in ("all", "-1") and not is_nowhere,
    )


# reads


def readings_of(operations: Sequence[HistoryOperation]) -> dict[str, list[Reading]]:
    """Return process → its reads in order. All processes of the final reader count as one process."""
    by_process: dict[str, list[HistoryOperation]] = defaultdict(list)
    members: set[str] = set()
    """Clients that are members of a group, by the name that all process names of a client share."""
    for operation in operations:
        if operation.f in (Function.POLL, Function.ASSIGN):
            is_final = lineage_of(operation.process) == FINAL_READER
            by_process[FINAL_READER if is_final else operation.process].append(operation)
        if "group" in operation.values:
            members.add(lineage_of(operation.process))
    return {process: list(_readings(each, lineage_of(process) in members)) for process, each in by_process.items()}


def _readings(operations: Sequence[HistoryOperation], is_member: bool) -> Iterator[Reading]:
    read: dict[Place, None] = {}
    """Partitions from which the process has received records. An assignment can drop only these."""
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


class FinalReaderCoverage:
    """How far the final reader came in each partition. A missing record is proven lost only if the final reader came
    far enough. The reader stops when it is at the end of every partition, so it reached the end if its last operation
    succeeded."""

    def __init__(self, operations: Sequence[HistoryOperation], readings: Sequence[Reading]) -> None:
        self._offsets: dict[Place, dict[bytes, int]] = defaultdict(dict)
        """Partition → value → the first offset at which the final reader received it."""
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

    def _reasons(self, own: Sequence[HistoryOperation]) -> list[str]:
        if not any(operation.is_ok for operation in own):
            return ["No final reader read the partitions after the run: whether records are lost is not known."]
        if self.is_at_end:
            return []
        return [
            f"The final reader stopped in {name_of(place)} at offset {reached}, and offset {known} is known."
            for place, (reached, known) in self._unreached.items()
        ]

    def proves(self, name: str, place: Place, offset: int) -> bool:
        """Return whether the final reader came far enough to prove an anomaly of this name at this offset (-1: the
        anomaly has no offset)."""
        if name not in NEEDS_THE_END or self.is_at_end or place not in self._unreached:
            return True
        return 0 <= offset <= self._reached.get(place, -1)

    def offset_of(self, place: Place, value: str) -> int | None:
        """Return the offset at which the final reader first received this value."""
        return self._offsets[place].get(value.encode())


def _known_ends(operations: Sequence[HistoryOperation]) -> dict[Place, int]:
    """Return partition → the highest offset that any client received, in an acknowledgement or by a poll."""
    ends: dict[Place, int] = {}
    for operation in operations:
        if operation.is_ok and operation.f is Function.SEND:
            offset = operation.values.get("offset")
            ends[operation.place] = max(ends.get(operation.place, -1), -1 if offset is None else offset)
        elif operation.is_ok and operation.f is Function.POLL:
            for place, records in operation.records:
                ends[place] = max([ends.get(place, -1), *(offset for offset, _ in records)])
    return ends


# proof of an anomaly


class ProofFinder:
    """Finds the history events that prove an anomaly."""

    def __init__(
        self,
        operations: Sequence[HistoryOperation],
        readings: Mapping[str, Sequence[Reading]],
        final: FinalReaderCoverage,
    ) -> None:
        self._sends: dict[tuple[Place, str], HistoryOperation] = {}
        self._polls: dict[Place, dict[int, list[tuple[str, HistoryOperation]]]] = defaultdict(lambda: defaultdict(list))
        """Partition → offset → (value, poll) of each poll that returned a record there."""
        self._of_reader: dict[str, list[HistoryOperation]] = defaultdict(list)
        self._steps: dict[str, dict[tuple[Place, int, int], tuple[int, int]]] = {}
        """Reader → (partition, previous offset, offset) → the history events of the two reads."""
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
        """Return the anomaly with a sentence that explains it, and with the events that prove it, in order."""
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
        """Return the first poll that returned each (offset, value) pair of the evidence."""
        at = [*evidence.get("offsets", ()), *([evidence["offset"]] if "offset" in evidence else [])]
        if evidence.get("bound") is not None:
            at.append(evidence["bound"])
        found: dict[tuple[int, str], int] = {}
        for offset in at:
            for value, poll in self._polls[place].get(offset, ()):
                found.setdefault((offset, value), poll.index)
        return list(found.values())

    def _sender_at(self, place: Place, process: str, offset: int, later: HistoryOperation | None) -> int | None:
        """Return the earlier send of this process that was acknowledged at this offset."""
        for operation in self._sends.values():
            is_it = operation.process == process and operation.place == place and operation is not later
            if is_it and operation.is_ok and operation.values.get("offset") == offset:
                return operation.index
        return None

    def _step(self, reader: str, place: Place, before: int, offset: int) -> tuple[int, ...]:
        """Return the two polls in which a reader received the record at one offset and then, as its next record, the
        record at the other offset."""
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
    """Convert a value to JSON's types."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return [_plain(each) for each in value] if isinstance(value, list | tuple | set | frozenset) else value
