"""The member's side of a share session with one broker: its epoch, its partitions, and the records that it holds.

The first request opens the session with epoch 0 and has no acknowledgements. Each later one continues it, and names
only partitions that are added or removed. The last one has epoch -1, and releases what is still held. A session ends
with its connection, and with an error of a whole response. Then the broker has released its records, so the
acknowledgements that were not answered fail, and the next request opens a new session.
Source: KIP-932, Kafka's ShareSessionHandler.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kraft.client.core.records import TopicPartition
from kraft.client.core.share.acknowledging import PendingAcknowledgements
from kraft.client.core.share.held import HeldRecords
from kraft.client.core.share.records import TopicIdPartition

INITIAL_EPOCH, FINAL_EPOCH = 0, -1
EPOCH_MAX = 2**31 - 1
FIRST_VERSION_WITH_RENEWAL = FIRST_VERSION_WITH_RECORD_LIMIT = 2

Assigned = Mapping[TopicIdPartition, TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareSessionRequest:
    """One request of a session: a ShareFetch if `is_fetch`, else a ShareAcknowledge. `added` and `forgotten` are the
    partitions that a ShareFetch adds to the session and removes from it."""

    session: ShareSession
    epoch: int
    is_fetch: bool
    acknowledged: Mapping[TopicIdPartition, PendingAcknowledgements] = field(default_factory=dict)
    added: tuple[TopicIdPartition, ...] = ()
    forgotten: tuple[TopicIdPartition, ...] = ()

    @property
    def has_renewals(self) -> bool:
        return any(pending.has_renewals for pending in self.acknowledged.values())

    @property
    def is_final(self) -> bool:
        return self.epoch == FINAL_EPOCH


class ShareSession:
    """One share session with the broker `node_id`."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.epoch = INITIAL_EPOCH
        self.version = FIRST_VERSION_WITH_RENEWAL
        """Version of the requests on the session's connection."""
        self.is_over = False
        """Whether the session has ended, or its last request is sent."""
        self.partitions: dict[TopicIdPartition, TopicPartition] = {}
        """The partitions that the broker's session has after the last request."""
        self.held: dict[TopicIdPartition, HeldRecords] = {}

    @property
    def is_open(self) -> bool:
        """Whether the broker has this session."""
        return self.epoch != INITIAL_EPOCH and not self.is_over

    @property
    def is_empty(self) -> bool:
        """Whether nothing is held."""
        return all(held.is_empty for held in self.held.values())

    # requests

    def fetch(self, wanted: Assigned, now_ms: int) -> ShareSessionRequest:
        """Return a ShareFetch of exactly the `wanted` partitions, which carries their queued acknowledgements."""
        added = tuple(partition for partition in wanted if partition not in self.partitions)
        forgotten = tuple(partition for partition in self.partitions if partition not in wanted)
        self.partitions = dict(wanted)
        carried = {partition: self.held[partition] for partition in wanted if partition in self.held}
        acknowledged = {} if self.epoch == INITIAL_EPOCH else _send_queued(carried, now_ms)
        return ShareSessionRequest(
            session=self,
            epoch=self.epoch,
            is_fetch=True,
            acknowledged=acknowledged,
            added=added,
            forgotten=forgotten,
        )

    def acknowledge(self, now_ms: int) -> ShareSessionRequest:
        """Return a ShareAcknowledge with everything that is queued."""
        acknowledged = _send_queued(self.held, now_ms)
        return ShareSessionRequest(session=self, epoch=self.epoch, is_fetch=False, acknowledged=acknowledged)

    def end(self) -> ShareSessionRequest:
        """Return the last request, with everything that is queued. It may be sent while another request is in flight.
        All other records are released with the session, also those that arrive later."""
        self.is_over = True
        acknowledged = {}
        for partition, held in self.held.items():
            pending = held.send_last()
            if pending is not None:
                acknowledged[partition] = pending
        return ShareSessionRequest(session=self, epoch=FINAL_EPOCH, is_fetch=False, acknowledged=acknowledged)

    def release(self) -> None:
        """Forget all records without a queued acknowledgement, because the member leaves."""
        for held in self.held.values():
            held.release()

    def advance(self) -> None:
        """Continue after a response without an error."""
        self.epoch = self.epoch + 1 if self.epoch < EPOCH_MAX else 1

    def lose(self) -> None:
        """End the session, because its connection or the broker has. Buffered records are dropped."""
        self.is_over = True
        for held in self.held.values():
            held.drop_buffered()


def _send_queued(
    every: Mapping[TopicIdPartition, HeldRecords], now_ms: int
) -> dict[TopicIdPartition, PendingAcknowledgements]:
    """Move the queued acknowledgements that do not back off into a request."""
    return {
        partition: held.send_queued()
        for partition, held in every.items()
        if held.queued is not None and held.queued.retry_ms <= now_ms
    }
