"""MetadataTopic: `__cluster_metadata` as clients see it, partition 0 of the metadata log up to this broker's high
watermark.

Clients with ALTER or CLUSTER_ACTION on the cluster can read it by name or id. It is never listed and never written.
Every broker observes the log and can serve it. All brokers name the live broker with the lowest id as its leader.
Secrets are redacted, so records are sent as bytes and not as file ranges. A broker that lags behind another broker
answers OFFSET_NOT_AVAILABLE, and the consumer retries. Committed records are never truncated, and no response of this
topic implies a truncation.
Source: docs/decisions/06-metadata-log.md.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from operator import itemgetter
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from kraft.broker.serving.gates import Gates, Operation
from kraft.broker.serving.session import Session
from kraft.control.topics.names import METADATA_TOPIC
from kraft.image import PartitionState
from kraft.quorum.redaction import redacted
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages.fetch import FetchResult

if TYPE_CHECKING:
    from kraft.broker.api.fetch.sessions import CachedPartition
    from kraft.quorum.quorum import Quorum
    from kraft.storage.reading import TimestampedOffset

METADATA_TOPIC_ID = UUID(int=1)
"""Topic id of the metadata log, as in Kafka. No other topic has it."""
PARTITION = 0
WAITING_KEPT_MAX = 64
OPEN_END = 2**63 - 1
"""End offset that is returned for the current epoch. It is higher than any actual end offset: another broker may have
reported a later end than this broker, and a consumer would take a lower end for a truncation."""


def is_metadata_topic(key: str | UUID) -> bool:
    """Return whether this topic name or topic id is that of the metadata log."""
    return key in (METADATA_TOPIC, METADATA_TOPIC_ID)


class WaitingFetch(Protocol):
    """A parked fetch that reads the metadata log."""

    @property
    def is_done(self) -> bool: ...

    def wake(self) -> None: ...


class MetadataTopic:
    """The single partition of `__cluster_metadata`, on one broker."""

    def __init__(self, quorum: Quorum, gates: Gates) -> None:
        self._quorum = quorum
        self._gates = gates
        self._waiting: dict[WaitingFetch, None] = {}

    def may_read(self, session: Session) -> bool:
        """Return whether the session may read the metadata log: it needs ALTER or CLUSTER_ACTION on the cluster."""
        allowed = self._gates.authorize_cluster
        return allowed(session, Operation.ALTER) or allowed(session, Operation.CLUSTER_ACTION)

    def state(self, alive: Iterable[int]) -> PartitionState:
        """Return the partition as the Metadata API describes it, with every live broker as an in-sync replica."""
        brokers = tuple(sorted(alive))
        return PartitionState(brokers, brokers, min(brokers, default=-1), self._quorum.leader_and_epoch[1], 0)

    # reading

    @property
    def log_start_offset(self) -> int:
        return self._quorum.log_start_offset

    @property
    def high_watermark(self) -> int:
        return self._quorum.high_watermark

    def read(
        self, entry: CachedPartition, bytes_max: int, waiter: WaitingFetch, *, read_committed: bool
    ) -> FetchResult:
        """Return the result of a fetch. `waiter` is woken when there are more records. Raises ColdRead."""
        start, end, offset = self.log_start_offset, self.high_watermark, entry.fetch_offset
        if entry.index != PARTITION:
            return FetchResult(entry.index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if offset < start:
            return FetchResult(entry.index, ErrorCode.OFFSET_OUT_OF_RANGE)
        if offset > end:
            return FetchResult(entry.index, ErrorCode.OFFSET_NOT_AVAILABLE)
        records: tuple[bytes, ...] = ()
        if offset < end:
            records = (redacted(self._quorum.read(offset, bytes_max)),)
        else:
            self._wait(waiter)
        return FetchResult(entry.index, 0, end, end, start, [] if read_committed else None, -1, records)

    async def offset_at(self, timestamp: int) -> TimestampedOffset | None:
        """Return the first committed record whose timestamp is at or after this time."""
        hit = await self._quorum.offset_at(timestamp)
        return hit if hit is not None and hit.offset < self.high_watermark else None

    def end_of_epoch(self, epoch: int) -> tuple[ErrorCode, int, int]:
        """Return (error, newest committed epoch not above `epoch`, end offset of that epoch). A consumer sends this
        request after a change of the leader. With an error, epoch and offset are -1."""
        epochs = self._quorum.committed_epochs
        if not epochs or epoch > epochs[-1][0]:
            return ErrorCode.OFFSET_NOT_AVAILABLE, -1, -1
        after = bisect_right(epochs, epoch, key=itemgetter(0))
        end = epochs[after][1] if after < len(epochs) else OPEN_END
        return ErrorCode.NONE, epochs[after - 1][0] if after else epoch, end

    # waiting

    def _wait(self, waiter: WaitingFetch) -> None:
        if len(self._waiting) >= WAITING_KEPT_MAX:
            self._waiting = {one: None for one in self._waiting if not one.is_done}
        self._waiting[waiter] = None

    def published(self) -> bool:
        """Wake the waiting fetches, because the high watermark has moved. Return whether any fetch was waiting. Woken
        fetches are checked at the end of the pass."""
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting:
            waiter.wake()
        return bool(waiting)
