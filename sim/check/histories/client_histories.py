"""Check a whole history of what clients sent and read, and find the anomalies of a log with many writers and readers.

A history holds only values: what was sent and its outcome, and what each reader received, in order. It holds nothing
about nodes. So the same code checks simulated runs, runs on a real cluster, and handwritten histories.

The names are Jepsen's. Two kinds of Jepsen's anomalies are missing: cycles between transactions (G0, G1c) and reads of
the transaction's own sends. `kraft.sim.check.transactions.histories` judges clients that send in transactions. An
aborted read (G1a) is a read of a value whose send definitely failed, in a transaction or not.
Source: Jepsen Kafka workload.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any

Place = tuple[str, int]
"""(topic, partition)."""

INCONSISTENT_OFFSETS, VANISHED, DUPLICATE = "inconsistent offsets", "vanished", "duplicate"
LOST_WRITE, UNSEEN, MISPLACED = "lost write", "unseen", "misplaced"
ABORTED_READ, UNSENT, NONMONOTONIC_SEND = "aborted read", "unsent", "nonmonotonic send"
POLL_SKIP, NONMONOTONIC_POLL = "poll skip", "nonmonotonic poll"
INT_POLL_SKIP, INT_NONMONOTONIC_POLL = "int poll skip", "int nonmonotonic poll"

ANOMALIES = MappingProxyType(
    {
        INCONSISTENT_OFFSETS: ("D10", "one offset has two values"),
        VANISHED: ("D10", "a record that was read once is gone"),
        DUPLICATE: ("T1", "a record of an idempotent producer is doubled"),
        LOST_WRITE: ("L10", "an acknowledged record was never read, though one behind it was"),
        UNSEEN: ("L10", "an acknowledged record was not read"),
        MISPLACED: ("L10", "an acknowledged record was read at another offset only"),
        ABORTED_READ: ("C7", "a record was read whose sending is said to have failed"),
        UNSENT: ("D14", "a record that was never sent"),
        NONMONOTONIC_SEND: ("C1", "records of one producer are out of order"),
        POLL_SKIP: ("C2", "a reader was not given the next record"),
        NONMONOTONIC_POLL: ("C2", "a reader went back"),
        INT_POLL_SKIP: ("C2", "one poll leaves a record out"),
        INT_NONMONOTONIC_POLL: ("C2", "one poll goes back"),
    }
)
"""Name of an anomaly → the invariant that it violates, and its description."""


class SendOutcome(Enum):
    """Outcome of a send. UNKNOWN: the record may be in the log, now or later, or may never be."""

    ACKNOWLEDGED = "acknowledged"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class SentValue:
    """One unique value that was sent. `offset` is the offset in the acknowledgement. `is_awaited`: sent with acks=all,
    so it must be read in the end. `is_once`: sent by an idempotent producer, so it must be in order and never
    duplicated."""

    process: str
    place: Place
    value: bytes
    outcome: SendOutcome
    offset: int = -1
    is_awaited: bool = True
    is_once: bool = True


@dataclass(frozen=True, slots=True)
class Poll:
    """Records of one partition that a single poll returned: (offset, value) pairs in order."""

    place: Place
    records: Sequence[tuple[int, bytes]]


@dataclass(frozen=True, slots=True)
class Dropped:
    """A reader dropped these partitions, or its position in them changed: the next record that it receives need not
    follow the last one."""

    places: Sequence[Place]


Reading = Poll | Dropped


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One anomaly that was found. `name` is one of ANOMALIES."""

    name: str
    place: Place
    evidence: Mapping[str, Any]

    @property
    def check(self) -> str:
        """Code of the invariant that the anomaly violates."""
        return ANOMALIES[self.name][0]

    @property
    def text(self) -> str:
        """Description of the anomaly."""
        return ANOMALIES[self.name][1]


@dataclass(slots=True)
class HistoryJudgement:
    """Result of the check of a history. `seen`: invariant → number of values that could have violated it."""

    anomalies: list[Anomaly] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)

    def add(self, name: str, place: Place, **evidence: Any) -> None:
        self.anomalies.append(Anomaly(name, place, evidence))


def judge(sends: Sequence[SentValue], readings: Mapping[str, Sequence[Reading]], final: str) -> HistoryJudgement:
    """Return all anomalies of a history. `sends` are in order per process, `readings` in order per reader. `final` is
    the reader that read everything at the end."""
    judgement, known = HistoryJudgement(), _ReadValues(sends, readings, final)
    _judge_offsets(known, judgement)
    _judge_sends(sends, known, judgement)
    _judge_values(sends, known, judgement)
    for process, reading in readings.items():
        _judge_reader(process, reading, known, judgement)
    return judgement


class _ReadValues:
    """All values that any reader received, with their offsets."""

    def __init__(self, sends: Iterable[SentValue], readings: Mapping[str, Sequence[Reading]], final: str) -> None:
        self.values: dict[Place, dict[int, dict[bytes, str]]] = defaultdict(lambda: defaultdict(dict))
        """Partition → offset → value → a reader that read it there."""
        self.offsets: dict[Place, dict[bytes, set[int]]] = defaultdict(lambda: defaultdict(set))
        """Partition → value → the offsets at which it was read."""
        self.final: dict[Place, dict[int, bytes]] = defaultdict(dict)
        for process, reading in readings.items():
            for poll in _polls(reading):
                for offset, value in poll.records:
                    self.values[poll.place][offset].setdefault(value, process)
                    self.offsets[poll.place][value].add(offset)
                if process == final:
                    self.final[poll.place].update(poll.records)
        self.index = {
            place: {offset: number for number, offset in enumerate(sorted(at))} for place, at in self.values.items()
        }
        """Partition → offset → its index among all offsets that were read. No reader received a record between two
        neighbouring offsets."""
        self.bound = {place: max(map(min, of.values()), default=-1) for place, of in self.offsets.items()}
        """Partition → the maximum, over its values, of the first offset at which the value was read."""
        self.sent = {send.value for send in sends}


def _polls(reading: Sequence[Reading]) -> Iterator[Poll]:
    return (each for each in reading if isinstance(each, Poll))


def _judge_offsets(known: _ReadValues, judgement: HistoryJudgement) -> None:
    """Check that each offset has the same value for all readers at all times."""
    for place, offsets in known.values.items():
        final = known.final[place]
        for offset, values in offsets.items():
            judgement.seen["D10"] += 1
            if len(values) > 1:
                (value, reader), (other, other_reader), *_ = values.items()
                told = {"value": value, "reader": reader, "other": other, "other_reader": other_reader}
                judgement.add(INCONSISTENT_OFFSETS, place, offset=offset, **told)
            elif offset not in final:
                [(value, reader)] = values.items()
                judgement.add(VANISHED, place, offset=offset, value=value, reader=reader)


def _judge_sends(sends: Sequence[SentValue], known: _ReadValues, judgement: HistoryJudgement) -> None:
    """Check that acknowledged values are read, in order, and that values whose send failed are not."""
    last: dict[tuple[str, Place], int] = {}
    for send in sends:
        read_at = known.offsets[send.place].get(send.value, ())
        if send.outcome is SendOutcome.FAILED:
            judgement.seen["C7"] += 1
            if read_at:
                judgement.add(ABORTED_READ, send.place, value=send.value, offsets=sorted(read_at))
        if send.outcome is not SendOutcome.ACKNOWLEDGED:
            continue
        if send.is_awaited:
            judgement.seen["L10"] += 1
            _judge_promise(send, known, judgement)
        if send.is_once:
            judgement.seen["C1"] += 1
            before = last.get((send.process, send.place), -1)
            if send.offset <= before:
                judgement.add(NONMONOTONIC_SEND, send.place, value=send.value, offset=send.offset, before=before)
            last[send.process, send.place] = send.offset


def _judge_promise(send: SentValue, known: _ReadValues, judgement: HistoryJudgement) -> None:
    """Check that an acknowledged record is read, in the end, at the offset in its acknowledgement."""
    final, place = known.final[send.place], send.place
    found = final.get(send.offset)
    if found == send.value:
        return
    evidence = {"value": send.value, "offset": send.offset, "found": found}
    if send.value in final.values():
        judgement.add(MISPLACED, place, **evidence)
    elif not known.offsets[place].get(send.value) and send.offset <= known.bound.get(place, -1):
        judgement.add(LOST_WRITE, place, **evidence, bound=known.bound[place])
    else:
        judgement.add(UNSEEN, place, **evidence)


def _judge_values(sends: Sequence[SentValue], known: _ReadValues, judgement: HistoryJudgement) -> None:
    """Check that each value that was read was sent, and that values of idempotent producers are read at one offset
    only."""
    once = {send.value for send in sends if send.is_once}
    for place, values in known.offsets.items():
        judgement.seen["D14"] += len(values)
        for value, offsets in values.items():
            if value not in known.sent:
                judgement.add(UNSENT, place, value=value, offsets=sorted(offsets))
            elif value in once:
                judgement.seen["T1"] += 1
                if len(offsets) > 1:
                    judgement.add(DUPLICATE, place, value=value, offsets=sorted(offsets))


def _judge_reader(process: str, reading: Sequence[Reading], known: _ReadValues, judgement: HistoryJudgement) -> None:
    """Check that each record of a reader directly follows the one before it, except where the reader changed its
    position in between."""
    last: dict[Place, int] = {}
    for each in reading:
        if isinstance(each, Dropped):
            for place in each.places:
                last.pop(place, None)
            continue
        names, index = (POLL_SKIP, NONMONOTONIC_POLL), known.index.get(each.place, {})
        for offset, _ in each.records:
            before = last.get(each.place)
            if before is not None:
                judgement.seen["C2"] += 1
                step = index[offset] - index[before]
                if step != 1:
                    name = names[step < 1]
                    judgement.add(name, each.place, reader=process, offset=offset, before=before)
            last[each.place] = offset
            names = (INT_POLL_SKIP, INT_NONMONOTONIC_POLL)
