"""The partitions that a consumer reads, and its positions in each.

There are three positions. `given`: the offset after the last record that the application got; `commit` commits it.
`consumed`: the value of `given` when the application last polled again; auto-commit commits it (C5). `fetch`: the next
offset to request from a broker.

Invariants: an answer is used only if the partition is still assigned and its `fetch` has not moved since the request
left (`version`, C2). A seek moves it, and so does another broker's answer, because the broker may change while a
request is under way. Records are handed out in offset order. A damaged batch is reported when no record before it is
left to hand out. It is then fetched again, because another replica may have it whole.
Source: Kafka's SubscriptionState, FetchCollector.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kraft.client.core.fetched import FetchedBytes, FetchPosition
from kraft.client.core.records import CommittedOffset, ConsumerRecord, KafkaError, TopicPartition
from kraft.seam import WireError
from kraft.wire.error_codes import ErrorCode

EARLIEST, LATEST = -2, -1
"""The timestamps by which ListOffsets names the ends of a log."""


@dataclass(slots=True, eq=False)
class Assigned:
    """One partition. `start` says how its first position is to be found while there is none: a timestamp for
    ListOffsets, or None: the group's committed offset, and failing that `auto.offset.reset`."""

    start: int | None = None
    given: FetchPosition | None = None
    consumed: FetchPosition | None = None
    fetch: FetchPosition | None = None
    version: int = 0
    is_paused: bool = False
    is_stuck: bool = False
    """Its position is outside the log and may not be reset; a seek ends that."""
    is_damaged: bool = False
    """What came last is damaged: it is asked for again after a pause."""
    is_doubtful: bool = False
    """A broker knows no such `fetch` position, which is as good as the headers that it was taken from: what waits is
    read, and found to be whole, before anything is asked for again."""
    high_watermark: int = -1
    last_stable_offset: int = -1
    preferred_replica: int = -1
    preferred_until_ms: int = 0
    waiting: deque[FetchedBytes] = field(default_factory=deque)
    records: list[ConsumerRecord] = field(default_factory=list)
    """The rest of the batch that is being handed out, last record first."""

    def seek(self, position: FetchPosition) -> None:
        """Read on here; what was fetched before is dropped, and answers that are under way are ignored."""
        self._drop()
        self.given = self.consumed = self.fetch = position

    def seek_by_time(self, timestamp: int | None) -> None:
        """Read on where ListOffsets says (None: as after an assignment), once it has said so."""
        self._drop()
        self.given = self.consumed = self.fetch = None
        self.start = timestamp

    def _drop(self) -> None:
        self.version += 1
        self.is_stuck = self.is_damaged = self.is_doubtful = False
        self.waiting.clear()
        self.records.clear()

    @property
    def is_asked_for(self) -> bool:
        """Whether more is to be fetched, as far as this partition goes."""
        is_held = self.is_paused or self.is_stuck or self.is_damaged or (self.is_doubtful and self.has_more)
        return self.fetch is not None and not is_held

    @property
    def has_more(self) -> bool:
        """Whether something was fetched that was not handed out."""
        return bool(self.records or self.waiting)

    @property
    def waiting_bytes(self) -> int:
        return sum(fetched.bytes_left for fetched in self.waiting)

    def arrived(self, fetched: FetchedBytes) -> bool:
        """Take in what a fetch brought. True if there may be records in it. WireError if it is damaged."""
        end = fetched.end_position()
        if end != self.fetch:
            self.fetch = end
            self.version += 1
        self.is_doubtful = False
        self.waiting.append(fetched)
        return fetched.bytes_left > 0

    def take(self, topic_partition: TopicPartition, count: int) -> list[ConsumerRecord]:
        """At most `count` records, in order, up to a damaged batch; WireError if that is the first. The positions are
        not moved: `give` does that."""
        taken: list[ConsumerRecord] = []
        while len(taken) < count:
            try:
                if not self.records and not self._open(topic_partition):
                    break
            except WireError:
                if not taken:
                    raise
                break
            room = count - len(taken)
            if room >= len(self.records):
                taken += reversed(self.records)
                self.records.clear()
            else:
                taken += reversed(self.records[-room:])
                del self.records[-room:]
        return taken

    def _open(self, topic_partition: TopicPartition) -> bool:
        """Read the next batch that has visible records into `records`. False if there is none."""
        while self.waiting:
            records = self.waiting[0].next_batch(topic_partition)
            if records is None:
                self.waiting.popleft()
            elif records:
                records.reverse()
                self.records = records
                return True
        return False

    def read_anew(self) -> None:
        """The first batch that waits is damaged: fetch from there on again."""
        position = self.waiting[0].position
        self._drop()
        self.fetch, self.is_damaged = position, True

    def give(self, last: ConsumerRecord | None) -> None:
        """The application was given records up to `last` (None: there was nothing to give). With nothing more waiting,
        the position is where fetching goes on, past control records and holes."""
        if not self.has_more and self.fetch is not None:
            self.given = self.fetch
        elif last is not None:
            self.given = FetchPosition(last.offset + 1, last.leader_epoch)


class Assignment:
    """All partitions of a consumer."""

    def __init__(self) -> None:
        self.partitions: dict[TopicPartition, Assigned] = {}
        self._turn = 0

    def replace(self, wanted: Iterable[TopicPartition]) -> None:
        """Read exactly these. Those that stay keep their positions and what was fetched."""
        self.partitions = {tp: self.partitions.get(tp) or Assigned() for tp in wanted}

    def come_back(self) -> None:
        """The application has come back for more: what it was given before counts as consumed."""
        for assigned in self.partitions.values():
            assigned.consumed = assigned.given

    def take(self, count: int) -> list[ConsumerRecord]:
        """At most `count` records. Partitions take turns in being the first. KafkaError CORRUPT_MESSAGE if a damaged
        batch is the next thing to take, and nothing else was taken."""
        taken: list[ConsumerRecord] = []
        for topic_partition, assigned in self._in_turn():
            if assigned.is_paused or not assigned.has_more:
                continue
            try:
                records = assigned.take(topic_partition, count - len(taken))
            except WireError as damage:
                if taken:
                    continue
                assigned.read_anew()
                raise damaged(topic_partition, damage) from damage
            assigned.give(records[-1] if records else None)
            taken += records
            if len(taken) >= count:
                break
        return taken

    def _in_turn(self) -> Iterator[tuple[TopicPartition, Assigned]]:
        every = list(self.partitions.items())
        if every:
            self._turn = (self._turn + 1) % len(every)
        yield from every[self._turn :]
        yield from every[: self._turn]

    def consumed(self) -> dict[TopicPartition, CommittedOffset]:
        """What auto-commit may commit."""
        return {tp: _committed(a.consumed) for tp, a in self.partitions.items() if a.consumed is not None}

    def given(self) -> dict[TopicPartition, CommittedOffset]:
        """What the application means by "commit": all that it was given."""
        return {tp: _committed(a.given) for tp, a in self.partitions.items() if a.given is not None}


def _committed(position: FetchPosition) -> CommittedOffset:
    return CommittedOffset(position.offset, position.last_epoch)


def damaged(topic_partition: TopicPartition, damage: WireError) -> KafkaError:
    """What the application is told of bytes that no batch can be."""
    place = "{}-{}: ".format(*topic_partition)
    text = place + str(damage).removeprefix(place)
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{text}. It is asked for again; seek behind it to go on without it")
