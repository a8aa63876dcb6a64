"""What clients were told, judged as a whole: the anomalies of a log that many write and read.

A history is values only: what was sent and how that ended, and what each reader was given, in its order. The judge
knows nothing of nodes, so it serves a simulated run, a real cluster, and histories written by hand alike.

The names are Jepsen's. Source: Jepsen Kafka workload. Of its anomalies those of cycles between
transactions (G0, G1c) and reads of what a transaction itself sent are not here: nothing sends in transactions yet. An
aborted read (G1a) is one of a value whose sending definitely failed, in a transaction or not.
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
        UNSENT: ("D14", "a record that nobody sent"),
        NONMONOTONIC_SEND: ("C1", "records of one producer are out of order"),
        POLL_SKIP: ("C2", "a reader was not given the next record"),
        NONMONOTONIC_POLL: ("C2", "a reader went back"),
        INT_POLL_SKIP: ("C2", "one poll leaves a record out"),
        INT_NONMONOTONIC_POLL: ("C2", "one poll goes back"),
    }
)
"""Name → the invariant that it breaks, and what it is."""


class Outcome(Enum):
    """How a sending ended. UNKNOWN: it may be in the log, or may never be."""

    ACKNOWLEDGED = "acknowledged"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Send:
    """A value handed over, no two alike. `offset` is what was told with the acknowledgement. `is_awaited`: with
    acks=all, it must be read in the end. `is_once`: by an idempotent producer, in order and never doubled."""

    process: str
    place: Place
    value: bytes
    outcome: Outcome
    offset: int = -1
    is_awaited: bool = True
    is_once: bool = True


@dataclass(frozen=True, slots=True)
class Poll:
    """What one poll gave of one partition: (offset, value), in its order."""

    place: Place
    records: Sequence[tuple[int, bytes]]


@dataclass(frozen=True, slots=True)
class Dropped:
    """A reader no longer reads these, or from elsewhere: what it is given next of them need not follow."""

    places: Sequence[Place]


Reading = Poll | Dropped


@dataclass(frozen=True, slots=True)
class Anomaly:
    """`name` is one of ANOMALIES."""

    name: str
    place: Place
    evidence: Mapping[str, Any]

    @property
    def check(self) -> str:
        """The invariant that it breaks."""
        return ANOMALIES[self.name][0]

    @property
    def text(self) -> str:
        """What it is, in words."""
        return ANOMALIES[self.name][1]


@dataclass(slots=True)
class Judgement:
    """`seen`: invariant → how much was looked at that could have broken it."""

    anomalies: list[Anomaly] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)

    def add(self, name: str, place: Place, **evidence: Any) -> None:
        self.anomalies.append(Anomaly(name, place, evidence))


def judge(sends: Sequence[Send], readings: Mapping[str, Sequence[Reading]], final: str) -> Judgement:
    """All anomalies of a history. `sends` are in the order of each process, `readings` of each reader in its own;
    `final` is the reader that was given everything when all was over."""
    judgement, known = Judgement(), _Known(sends, readings, final)
    _judge_offsets(known, judgement)
    _judge_sends(sends, known, judgement)
    _judge_values(sends, known, judgement)
    for process, reading in readings.items():
        _judge_reader(process, reading, known, judgement)
    return judgement


class _Known:
    """What anybody read, and where."""

    def __init__(self, sends: Iterable[Send], readings: Mapping[str, Sequence[Reading]], final: str) -> None:
        self.values: dict[Place, dict[int, dict[bytes, str]]] = defaultdict(lambda: defaultdict(dict))
        """Place → offset → value → who says that it stands there."""
        self.offsets: dict[Place, dict[bytes, set[int]]] = defaultdict(lambda: defaultdict(set))
        """Place → value → the offsets at which it was read."""
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
        """Place → offset → its number among all that were read: between two neighbours there is no record."""
        self.bound = {place: max(map(min, of.values()), default=-1) for place, of in self.offsets.items()}
        """Place → the largest first offset of a value that was read."""
        self.sent = {send.value for send in sends}


def _polls(reading: Sequence[Reading]) -> Iterator[Poll]:
    return (each for each in reading if isinstance(each, Poll))


def _judge_offsets(known: _Known, judgement: Judgement) -> None:
    """One value at each offset, for whoever reads it and whenever."""
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


def _judge_sends(sends: Sequence[Send], known: _Known, judgement: Judgement) -> None:
    """What was acknowledged is read, and in order; what failed is not."""
    last: dict[tuple[str, Place], int] = {}
    for send in sends:
        read_at = known.offsets[send.place].get(send.value, ())
        if send.outcome is Outcome.FAILED:
            judgement.seen["C7"] += 1
            if read_at:
                judgement.add(ABORTED_READ, send.place, value=send.value, offsets=sorted(read_at))
        if send.outcome is not Outcome.ACKNOWLEDGED:
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


def _judge_promise(send: Send, known: _Known, judgement: Judgement) -> None:
    """An acknowledged record stands where that was said, in the end."""
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


def _judge_values(sends: Sequence[Send], known: _Known, judgement: Judgement) -> None:
    """What was read was sent, and once where that is promised."""
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


def _judge_reader(process: str, reading: Sequence[Reading], known: _Known, judgement: Judgement) -> None:
    """Each record follows the one before it, but where the reader went elsewhere in between."""
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
