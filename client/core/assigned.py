"""The partitions that a consumer reads, and its positions in each.

Each partition has three positions. `given` is the offset after the last record that was returned to the application; a
`commit` without arguments commits this offset. `consumed` is the value that `given` had when the application last
polled; auto-commit commits this offset (C5). `fetch` is the next offset to request from a broker.

Invariants:
- A response is used only if the partition is still assigned and `version` has not changed since the request was sent
  (C2). A seek changes `version`. A response of another broker changes it too, because the replica to fetch from may
  change while a request is in flight.
- Records are returned in offset order.
- A damaged batch is reported only after all records before it have been returned. It is then fetched again, because
  another replica may have an undamaged copy.
Source: Kafka's SubscriptionState, FetchCollector.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from kraft.client.core.buffered_records import damaged_batch, take_records
from kraft.client.core.fetched import FetchedBytes, FetchPosition
from kraft.client.core.records import CommittedOffset, ConsumerRecord, TopicPartition
from kraft.seam import WireError

EARLIEST, LATEST = -2, -1
"""The timestamps that ListOffsets uses for the ends of a log."""
REFETCHED = "It is fetched again; seek past it to skip it"


@dataclass(slots=True, eq=False)
class ConsumerPartition:
    """One partition that a consumer reads. While it has no position, `start` defines the first one: a timestamp for
    ListOffsets, or None. None stands for the group's committed offset or, if there is none, for `auto.offset.reset`."""

    start: int | None = None
    given: FetchPosition | None = None
    consumed: FetchPosition | None = None
    fetch: FetchPosition | None = None
    version: int = 0
    is_paused: bool = False
    is_stuck: bool = False
    """Whether the position is outside of the log and may not be reset. A seek clears this."""
    is_damaged: bool = False
    """Whether the last fetched batch is damaged. It is fetched again after a backoff."""
    is_doubtful: bool = False
    """Whether a broker rejected the `fetch` position. A damaged batch header may be the cause, so the buffered data is
    read and checked before the next fetch."""
    high_watermark: int = -1
    last_stable_offset: int = -1
    preferred_replica: int = -1
    preferred_until_ms: int = 0
    waiting: deque[FetchedBytes] = field(default_factory=deque)
    records: list[ConsumerRecord] = field(default_factory=list)
    """The decoded records of the current batch that have not been returned yet, in reverse order."""

    def seek(self, position: FetchPosition) -> None:
        """Continue reading at this offset. Drop the data that was fetched before, and ignore responses to requests in
        flight."""
        self._drop()
        self.given = self.consumed = self.fetch = position

    def seek_by_time(self, timestamp: int | None) -> None:
        """Continue reading at the offset that ListOffsets returns for this timestamp. None stands for the committed
        offset, as after an assignment."""
        self._drop()
        self.given = self.consumed = self.fetch = None
        self.start = timestamp

    def _drop(self) -> None:
        self.version += 1
        self.is_stuck = self.is_damaged = self.is_doubtful = False
        self.waiting.clear()
        self.records.clear()

    @property
    def is_fetchable(self) -> bool:
        """Whether a broker may be asked for records of this partition now: it has a position, and nothing such as
        `pause` or damage prevents the fetch."""
        is_held = self.is_paused or self.is_stuck or self.is_damaged or (self.is_doubtful and self.has_more)
        return self.fetch is not None and not is_held

    @property
    def has_more(self) -> bool:
        """Whether there is fetched data that was not returned yet."""
        return bool(self.records or self.waiting)

    @property
    def waiting_bytes(self) -> int:
        return sum(fetched.bytes_left for fetched in self.waiting)

    def arrived(self, fetched: FetchedBytes) -> bool:
        """Add the data of a fetch response. Return True if it may contain records. Raise WireError if it is damaged."""
        end = fetched.end_position()
        if end != self.fetch:
            self.fetch = end
            self.version += 1
        self.is_doubtful = False
        self.waiting.append(fetched)
        return fetched.bytes_left > 0

    def take(self, topic_partition: TopicPartition, count: int) -> list[ConsumerRecord]:
        """Return at most `count` records, in order, and only those before a damaged batch. Raise WireError if the
        damaged batch comes first. Positions do not change here; `advance` changes them."""
        return take_records(self, partial(self._open, topic_partition), count)

    def _open(self, topic_partition: TopicPartition) -> bool:
        """Decode the next batch that has visible records into `records`. Return False if there is none."""
        while self.waiting:
            records = self.waiting[0].next_batch(topic_partition)
            if records is None:
                self.waiting.popleft()
            elif records:
                records.reverse()
                self.records = records
                return True
        return False

    def refetch(self) -> None:
        """Drop the buffered data and fetch again, starting with the first buffered batch, which is damaged."""
        position = self.waiting[0].position
        self._drop()
        self.fetch, self.is_damaged = position, True

    def advance(self, last: ConsumerRecord | None) -> None:
        """Set the position after `last`, the last record that was returned; None if none was returned. If no data
        remains, set it to the fetch position, which is also after control records and gaps."""
        if not self.has_more and self.fetch is not None:
            self.given = self.fetch
        elif last is not None:
            self.given = FetchPosition(last.offset + 1, last.leader_epoch)


class Assignment:
    """All partitions that a consumer reads."""

    def __init__(self) -> None:
        self.partitions: dict[TopicPartition, ConsumerPartition] = {}
        self._turn = 0

    def replace(self, wanted: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions. Partitions that were already assigned keep their positions and buffered
        data."""
        self.partitions = {tp: self.partitions.get(tp) or ConsumerPartition() for tp in wanted}

    def mark_consumed(self) -> None:
        """Mark all returned records as consumed, because the application has polled again."""
        for assigned in self.partitions.values():
            assigned.consumed = assigned.given

    def take(self, count: int) -> list[ConsumerRecord]:
        """Return at most `count` records. Each call starts with a different partition. Raise KafkaError CORRUPT_MESSAGE
        if a damaged batch is next and no other record was found."""
        taken: list[ConsumerRecord] = []
        for topic_partition, assigned in self._in_turn():
            if assigned.is_paused or not assigned.has_more:
                continue
            try:
                records = assigned.take(topic_partition, count - len(taken))
            except WireError as damage:
                if taken:
                    continue
                assigned.refetch()
                raise damaged_batch(topic_partition, damage, REFETCHED) from damage
            assigned.advance(records[-1] if records else None)
            taken += records
            if len(taken) >= count:
                break
        return taken

    def _in_turn(self) -> Iterator[tuple[TopicPartition, ConsumerPartition]]:
        every = list(self.partitions.items())
        if every:
            self._turn = (self._turn + 1) % len(every)
        yield from every[self._turn :]
        yield from every[: self._turn]

    def consumed(self) -> dict[TopicPartition, CommittedOffset]:
        """Return the offsets that auto-commit may commit."""
        return {tp: _committed(a.consumed) for tp, a in self.partitions.items() if a.consumed is not None}

    def given(self) -> dict[TopicPartition, CommittedOffset]:
        """Return the offsets that `commit` without arguments commits: the position after every returned record."""
        return {tp: _committed(a.given) for tp, a in self.partitions.items() if a.given is not None}


def _committed(position: FetchPosition) -> CommittedOffset:
    return CommittedOffset(position.offset, position.last_epoch)
