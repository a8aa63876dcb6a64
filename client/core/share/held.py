"""The records that one share session holds of one partition for this member, from their arrival to the result of their
acknowledgement.

A record is buffered, then given to the application, then acknowledged. An acknowledgement is marked by the application,
then queued, then in flight. A record whose lock has run out while it was buffered is dropped, because another member
may get it. Source: KIP-932, Kafka's ShareInFlightBatch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from functools import partial
from operator import attrgetter

from kraft.client.core.buffered_records import take_records
from kraft.client.core.records import KafkaError, TopicPartition
from kraft.client.core.share.acknowledging import RENEW, PendingAcknowledgements, Settled
from kraft.client.core.share.acquired import AcquiredRecords
from kraft.client.core.share.records import GAP, Acknowledgement, ShareRecord
from kraft.seam import WireError

_offset = attrgetter("offset")
ACCEPT, RELEASE = int(Acknowledgement.ACCEPT), int(Acknowledgement.RELEASE)


class HeldRecords:
    """The records of one partition."""

    __slots__ = (
        "_is_released",
        "_waiting",
        "deadline_ms",
        "given",
        "in_flight",
        "last",
        "marked",
        "may_renew",
        "partition",
        "queued",
        "records",
        "renewed",
    )

    def __init__(self, partition: TopicPartition, *, may_renew: bool = True) -> None:
        self.partition = partition
        self.may_renew = may_renew
        """Whether the broker knows how to renew locks."""
        self.records: list[ShareRecord] = []
        """The decoded records of the current batch that were not given yet, in reverse order."""
        self.deadline_ms = float("inf")
        """Time when the locks of `records` have run out."""
        self.given: dict[int, ShareRecord] = {}
        """Records that the application has, and whose acknowledgement is not queued, by offset."""
        self.renewed: set[int] = set()
        """Offsets of given records that were renewed since, and that `poll` returns again."""
        self.marked: dict[int, int] = {}
        """Acknowledgements that the application has made, and that are not queued yet."""
        self.queued: PendingAcknowledgements | None = None
        self.in_flight: PendingAcknowledgements | None = None
        self.last: PendingAcknowledgements | None = None
        """Acknowledgements in the last request of the session, which may be in flight beside another one."""
        self._waiting: deque[AcquiredRecords] = deque()
        self._is_released = False
        """Whether the records are released, because the member leaves."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is held."""
        is_buffered = self.records or self._waiting
        is_sent = self.in_flight or self.last
        return not (is_buffered or self.given or self.marked or self.queued or is_sent)

    @property
    def has_renewals(self) -> bool:
        """Whether the lock of a record is being renewed, or a renewed record is to be given again."""
        pending = (self.queued, self.in_flight)
        return bool(self.renewed) or any(one is not None and one.has_renewals for one in pending)

    # buffered records

    def add(self, acquired: AcquiredRecords) -> None:
        self._waiting.append(acquired)

    def has_more(self, now_ms: int) -> bool:
        """Whether there are buffered records whose locks have not run out."""
        self._drop_expired(now_ms)
        return bool(self.records or self._waiting)

    def _drop_expired(self, now_ms: int) -> None:
        if self.records and now_ms >= self.deadline_ms:
            self.records.clear()
        while self._waiting and now_ms >= self._waiting[0].deadline_ms:
            self._waiting.popleft()

    def take(self, count: int, now_ms: int) -> list[ShareRecord]:
        """Give at most `count` records to the application. Raise WireError if the next batch is damaged and no record
        precedes it; the rest of its response is then released."""
        self._drop_expired(now_ms)
        try:
            taken = take_records(self, partial(self._open, now_ms), count)
        except WireError:
            self._queue(dict.fromkeys(self._waiting.popleft().drop(), RELEASE), now_ms)
            raise
        self.given.update(zip(map(_offset, taken), taken, strict=True))
        return taken

    def take_next(self) -> ShareRecord:
        """Give the next decoded record to the application."""
        record = self.records.pop()
        self.given[record.offset] = record
        return record

    def _open(self, now_ms: int) -> bool:
        """Decode the next batch that has acquired records into `records`. Return False if there is none."""
        while self._waiting:
            acquired = self._waiting[0]
            batch = acquired.next_batch()
            if batch is None:
                self._waiting.popleft()
                continue
            if batch.gaps:
                self._queue(dict.fromkeys(batch.gaps, GAP), now_ms)
            if batch.records:
                batch.records.reverse()
                self.records, self.deadline_ms = batch.records, acquired.deadline_ms
                return True
        return False

    def release_buffered(self, now_ms: int) -> None:
        """Acknowledge the buffered records so that other members get them."""
        self._drop_expired(now_ms)
        offsets = [record.offset for record in self.records]
        for acquired in self._waiting:
            offsets += acquired.drop()
        self.drop_buffered()
        if offsets:
            self._queue(dict.fromkeys(offsets, RELEASE), now_ms)

    def drop_buffered(self) -> None:
        self.records.clear()
        self._waiting.clear()

    # acknowledgements of the application

    @property
    def unacknowledged(self) -> int:
        """Number of given records that the application has not acknowledged. Renewed records that `poll` has not
        returned again do not count."""
        return len(self.given) - len(self.marked.keys() | self.renewed)

    def mark(self, offset: int, acknowledgement: int) -> bool:
        """Acknowledge a given record. Return False if it is not held any more."""
        if offset not in self.given:
            return False
        self.marked[offset] = acknowledgement
        return True

    def accept_given(self) -> None:
        """Acknowledge all given records as processed."""
        self.marked.update(dict.fromkeys(self.given, ACCEPT))

    def queue_marked(self, now_ms: int) -> None:
        """Queue the acknowledgements that the application has made."""
        if not self.marked:
            return
        pending = self._queue(self.marked, now_ms)
        for offset, acknowledgement in self.marked.items():
            record = self.given.pop(offset)
            if acknowledgement == RENEW:
                pending.renewing[offset] = record
        self.renewed -= self.marked.keys()
        self.marked = {}

    def _queue(self, types: Mapping[int, int], now_ms: int) -> PendingAcknowledgements:
        if self.queued is None:
            self.queued = PendingAcknowledgements(now_ms)
        self.queued.types.update(types)
        return self.queued

    def take_renewed(self, count: int) -> list[ShareRecord]:
        """Return at most `count` of the records that were renewed. The application has them again."""
        offsets = sorted(self.renewed)[:count]
        self.renewed -= set(offsets)
        return [self.given[offset] for offset in offsets]

    # requests

    def send_queued(self) -> PendingAcknowledgements:
        """Move the queued acknowledgements into a request, and return them."""
        assert self.queued is not None
        assert self.in_flight is None
        self.in_flight, self.queued = self.queued, None
        return self.in_flight

    def send_last(self) -> PendingAcknowledgements | None:
        """Move the queued acknowledgements, if any, into the last request of the session, which releases all other
        records."""
        self.release()
        self.last, self.queued = self.queued, None
        return self.last

    def release(self) -> None:
        """Forget all records without a queued acknowledgement, also those that the application has."""
        self.drop_buffered()
        self.given.clear()
        self.marked.clear()
        self.renewed.clear()
        self._is_released = True

    def is_sent(self, pending: PendingAcknowledgements) -> bool:
        """Whether these acknowledgements are in a request, and have no result."""
        return pending is self.in_flight or pending is self.last

    def requeue(self, retry_ms: int) -> None:
        """Queue the acknowledgements in flight again, because the broker could not carry them out now. They are sent
        from `retry_ms` on."""
        again, later = self.in_flight, self.queued
        assert again is not None
        if later is not None:
            again.add_later(later)
        again.attempts += 1
        again.retry_ms = retry_ms
        self.in_flight, self.queued = None, again

    def settle(self, done: PendingAcknowledgements, error: KafkaError | None) -> Settled:
        """Take the result of acknowledgements that were sent. Renewed records are given to the application again,
        unless they were released since."""
        if self.in_flight is done:
            self.in_flight = None
        elif self.last is done:
            self.last = None
        if error is None and done.renewing and not self._is_released:
            self.given.update(done.renewing)
            self.renewed.update(done.renewing)
        offsets = tuple(offset for offset, kind in done.types.items() if kind != GAP)
        return Settled(self.partition, offsets, error, tuple(done.commits))

    def fail_all(self, error: KafkaError) -> list[Settled]:
        """Fail every acknowledgement without a result."""
        pending = [one for one in (self.in_flight, self.last, self.queued) if one is not None]
        self.queued = None
        return [self.settle(one, error) for one in pending]
