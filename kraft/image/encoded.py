"""Replaying events from their bytes: nodes do it for every event of the log, so the two of partitions have a short cut.

It is the same as `builder.apply(decode_event(data))`; a Partition or PartitionChange of version 0 goes from msgpack to
the image's value without an event in between. What is out of the ordinary in any way takes the long way, and so gets
its errors.
"""

from __future__ import annotations

from typing import Any

import msgpack

from kraft.image.codec import directories_from_list, replicas_from_list, uuid_from_bytes
from kraft.image.events import BY_CLASS, UNCHANGED_LEADER, UNCHANGED_RECOVERY_STATE, Partition, PartitionChange
from kraft.image.events import decode_event as decode
from kraft.image.partitions import PartitionState, RecoveryState
from kraft.image.replay import ImageBuilder, TopicBuilder

_FIXED_ARRAY = 0x90
_PARTITION = bytes((_FIXED_ARRAY | 2 + BY_CLASS[Partition].field_count, Partition.type_number, 0))
_CHANGE = bytes((_FIXED_ARRAY | 2 + BY_CLASS[PartitionChange].field_count, PartitionChange.type_number, 0))
_unpack = msgpack.unpackb
_RECOVERY = {int(state): state for state in RecoveryState}


class EncodedEvents:
    """Applies encoded events to a builder."""

    __slots__ = ("_builder", "_topic", "_topic_bytes")

    def __init__(self, builder: ImageBuilder) -> None:
        self._builder = builder
        self._topic: TopicBuilder | None = None
        self._topic_bytes = b""

    def apply(self, data: bytes) -> None:
        """Replay one event. UnknownEvent, WireError, ReplayFailed."""
        head = data[:3]
        if (head == _PARTITION and self._partition(data)) or (head == _CHANGE and self._change(data)):
            return
        self._topic_bytes = b""
        self._builder.apply(decode(data))

    def _find(self, topic_id: bytes) -> TopicBuilder:
        if topic_id != self._topic_bytes or self._topic is None:
            self._topic = self._builder.topic(uuid_from_bytes(topic_id))
            self._topic_bytes = topic_id
        return self._topic

    def _partition(self, data: bytes) -> bool:
        """False if nothing was done, because something is not as usual."""
        try:
            _, _, topic_id, number, replicas, isr, removing, adding, leader, recovery, *rest = _unpack(data, raw=False)
            leader_epoch, partition_epoch, places, elr, last_known = rest
            topic = self._find(topic_id)
            if not 0 <= number <= topic.partition_count:
                return False
            state = PartitionState(
                replicas_from_list(replicas),
                replicas_from_list(isr),
                leader,
                leader_epoch,
                partition_epoch,
                replicas_from_list(elr),
                replicas_from_list(last_known),
                replicas_from_list(removing),
                replicas_from_list(adding),
                _RECOVERY[recovery],
                directories_from_list(places),
            )
        except (ValueError, KeyError, TypeError, AttributeError, msgpack.UnpackException):
            return False
        topic.put(number, state)
        return True

    def _change(self, data: bytes) -> bool:
        """False if nothing was done, because something is not as usual."""
        try:
            (_, _, topic_id, number, isr, leader, replicas, removing, adding, recovery, places, elr, last) = _unpack(
                data, raw=False
            )
            topic = self._find(topic_id)
            if not 0 <= number < topic.partition_count:
                return False
            old = topic.get(number)
            sets_leader = leader != UNCHANGED_LEADER
            state = PartitionState(
                old.replicas if replicas is None else replicas_from_list(replicas),
                old.isr if isr is None else replicas_from_list(isr),
                leader if sets_leader else old.leader,
                old.leader_epoch + 1 if sets_leader else old.leader_epoch,
                old.partition_epoch + 1,
                old.elr if elr is None else replicas_from_list(elr),
                old.last_known_elr if last is None else replicas_from_list(last),
                old.removing if removing is None else replicas_from_list(removing),
                old.adding if adding is None else replicas_from_list(adding),
                old.leader_recovery_state if recovery == UNCHANGED_RECOVERY_STATE else _RECOVERY[recovery],
                old.directories if places is None else directories_from_list(places),
            )
        except (ValueError, KeyError, TypeError, AttributeError, msgpack.UnpackException):
            return False
        topic.put(number, state)
        return True


def apply_encoded(builder: ImageBuilder, values: Any) -> None:
    """Replay encoded events, in order. UnknownEvent, WireError, ReplayFailed."""
    apply = EncodedEvents(builder).apply
    for data in values:
        apply(data)
