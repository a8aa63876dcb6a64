"""Values that an application gets from a share consumer, and with which it acknowledges.

Source: KIP-932, KIP-1222.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from kraft.client.core.records import Headers

TopicIdPartition = tuple[UUID, int]

GAP = 0
"""Type of an acknowledgement of an offset that has no record for the application, such as that of a control record."""


class Acknowledgement(IntEnum):
    """What the broker does with a record: ACCEPT it as processed, RELEASE it for another delivery, REJECT it for all
    members, or RENEW the lock, because it is still being processed."""

    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class ShareRecord(NamedTuple):
    """A record that a share group has delivered. `delivery_count` is 1 at its first delivery. `leader_epoch` is the
    epoch of its batch."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    leader_epoch: int
    delivery_count: int
