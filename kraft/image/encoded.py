"""Replay of events from their bytes. Nodes do it for every event of the log, so the two events of partitions have a
fast path.

The result is that of `builder.apply(decode_event(data))`, but a Partition or PartitionChange of version 0 is converted
from bytes to the image's value without an event in between. Only the topic's id and the partition's number are unique
to such an event. The bytes behind them, its *tail*, have few different values; each is decoded once and cached. Equal
partitions therefore share one value. Anything unusual takes the general path, which also raises the errors.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType
from typing import NamedTuple, TypeVar
from uuid import UUID

import msgpack

from kraft.image.codec import directories_from_list, replicas_from_list, uuid_from_bytes
from kraft.image.events import (
    BY_CLASS,
    UNCHANGED_LEADER,
    UNCHANGED_RECOVERY_STATE,
    Event,
    Partition,
    PartitionChange,
)
from kraft.image.events import decode_event as decode
from kraft.image.partitions import PartitionState, RecoveryState, Replicas
from kraft.image.replay import ImageBuilder, TopicBuilder

_FIXED_ARRAY = 0x90
_UUID = b"\xc4\x10"
_PARTITION = bytes((_FIXED_ARRAY | 2 + BY_CLASS[Partition].field_count, Partition.type_number, 0)) + _UUID
_CHANGE = bytes((_FIXED_ARRAY | 2 + BY_CLASS[PartitionChange].field_count, PartitionChange.type_number, 0)) + _UUID
_HEAD_BYTES = 5
_NUMBER = _HEAD_BYTES + 16
"""Byte position of the partition's number in an encoded event, right behind the topic's id."""
_UINT8, _UINT16, _UINT32 = 0xCC, 0xCD, 0xCE
_unpack = msgpack.unpackb
_RECOVERY = MappingProxyType({int(state): state for state in RecoveryState})
_UNUSUAL = (ValueError, KeyError, TypeError, AttributeError, IndexError, msgpack.UnpackException)

TAILS_MAX = 16_384
"""Maximum cached tails; a full cache is cleared."""


class _Change(NamedTuple):
    """A PartitionChange without topic and number, in the image's values; None leaves a field unchanged."""

    replicas: Replicas | None
    isr: Replicas | None
    leader: int | None
    elr: Replicas | None
    last_known_elr: Replicas | None
    removing: Replicas | None
    adding: Replicas | None
    leader_recovery_state: RecoveryState | None
    directories: tuple[UUID, ...] | None

    def of(self, old: PartitionState) -> PartitionState:
        """Return the partition after this change."""
        return PartitionState(
            old.replicas if self.replicas is None else self.replicas,
            old.isr if self.isr is None else self.isr,
            old.leader if self.leader is None else self.leader,
            old.leader_epoch if self.leader is None else old.leader_epoch + 1,
            old.partition_epoch + 1,
            old.elr if self.elr is None else self.elr,
            old.last_known_elr if self.last_known_elr is None else self.last_known_elr,
            old.removing if self.removing is None else self.removing,
            old.adding if self.adding is None else self.adding,
            old.leader_recovery_state if self.leader_recovery_state is None else self.leader_recovery_state,
            old.directories if self.directories is None else self.directories,
        )


_states: dict[bytes, PartitionState] = {}
_changes: dict[bytes, _Change] = {}
Value = TypeVar("Value")


def _remember(table: dict[bytes, Value], tail: bytes, value: Value) -> Value:
    if len(table) >= TAILS_MAX:
        table.clear()
    table[tail] = value
    return value


class EncodedEvents:
    """Applies encoded events to a builder."""

    __slots__ = ("_builder", "_changed", "_topic", "_topic_bytes")

    def __init__(self, builder: ImageBuilder) -> None:
        self._builder = builder
        self._topic: TopicBuilder | None = None
        self._topic_bytes = b""
        self._changed: dict[tuple[int, int], tuple[PartitionState, _Change, PartitionState]] = {}
        """(id() of a state, id() of a change) → the state and the change themselves, which keeps them alive, and the
        resulting state."""

    def apply(self, data: bytes) -> None:
        """Replay one event. Raises UnknownEvent, WireError, ReplayFailed."""
        head = data[:_HEAD_BYTES]
        is_new = head == _PARTITION
        if is_new or head == _CHANGE:
            try:
                found = self._read_partition(data, is_new=is_new)
            except _UNUSUAL:
                found = None
            if found is not None:
                self._put(*found)
                return
        self.apply_event(decode(data))

    def apply_event(self, event: Event) -> None:
        """Replay an event that is already decoded. Raises ReplayFailed."""
        self._topic_bytes = b""
        self._builder.apply(event)

    def _put(self, topic: TopicBuilder, number: int, told: PartitionState | _Change) -> None:
        if isinstance(told, _Change):
            old = topic.get(number)
            known = self._changed.get((id(old), id(told)))
            if known is None:
                known = self._changed[id(old), id(told)] = old, told, told.of(old)
            topic.put(number, known[2])
        else:
            topic.put(number, told)

    def _read_partition(
        self, data: bytes, *, is_new: bool
    ) -> tuple[TopicBuilder, int, PartitionState | _Change] | None:
        """Return topic, partition number, and state or change of an event, without applying the event. Return None, or
        raise one of _UNUSUAL, if the event needs the general path."""
        number = data[_NUMBER]
        if number < 0x80:
            tail = data[_NUMBER + 1 :]
        elif number == _UINT8:
            number, tail = data[_NUMBER + 1], data[_NUMBER + 2 :]
        elif number == _UINT16:
            number, tail = data[_NUMBER + 1] << 8 | data[_NUMBER + 2], data[_NUMBER + 3 :]
        elif number == _UINT32:
            number, tail = int.from_bytes(data[_NUMBER + 1 : _NUMBER + 5], "big"), data[_NUMBER + 5 :]
        else:
            return None
        topic_id = data[_HEAD_BYTES:_NUMBER]
        topic = self._topic
        if topic is None or topic_id != self._topic_bytes:
            self._topic = topic = self._builder.topic(uuid_from_bytes(topic_id))
            self._topic_bytes = topic_id
        if is_new:
            if number > topic.partition_count:
                return None
            state = _states.get(tail)
            if state is None:
                state = _remember(_states, tail, _read_state(data))
            return topic, number, state
        if number >= topic.partition_count:
            return None
        change = _changes.get(tail)
        if change is None:
            change = _remember(_changes, tail, _read_change(data))
        return topic, number, change


def _read_state(data: bytes) -> PartitionState:
    """Return the state in a Partition event. Raises one of _UNUSUAL if the event needs the general path."""
    _, _, _, _, replicas, isr, removing, adding, leader, recovery, *rest = _unpack(data, raw=False)
    leader_epoch, partition_epoch, places, elr, last_known = rest
    return PartitionState(
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


def _read_change(data: bytes) -> _Change:
    """Return the change in a PartitionChange event. Raises one of _UNUSUAL if the event needs the general path."""
    _, _, _, _, isr, leader, replicas, removing, adding, recovery, places, elr, last = _unpack(data, raw=False)
    if leader is None:
        raise ValueError("a leader is a number")
    return _Change(
        None if replicas is None else replicas_from_list(replicas),
        None if isr is None else replicas_from_list(isr),
        None if leader == UNCHANGED_LEADER else leader,
        None if elr is None else replicas_from_list(elr),
        None if last is None else replicas_from_list(last),
        None if removing is None else replicas_from_list(removing),
        None if adding is None else replicas_from_list(adding),
        None if recovery == UNCHANGED_RECOVERY_STATE else _RECOVERY[recovery],
        None if places is None else directories_from_list(places),
    )


def apply_encoded(builder: ImageBuilder, values: Iterable[bytes]) -> None:
    """Replay encoded events, in order. Raises UnknownEvent, WireError, ReplayFailed."""
    apply = EncodedEvents(builder).apply
    for data in values:
        apply(data)
