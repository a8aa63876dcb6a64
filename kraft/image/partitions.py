"""A topic's partitions as an immutable value in leaves of at most 256 partitions, so that a change copies little.

Invariants: partitions are numbered from 0 without gaps; every leaf but the last is full; states are shared and never
changed. Equal tuples are interned, so that 100,000 partitions over a few brokers need little memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

NO_LEADER = -1

LEAF_PARTITIONS_MAX = 256
LEAF_SHIFT = 8
LEAF_MASK = LEAF_PARTITIONS_MAX - 1

Replicas = tuple[int, ...]


class RecoveryState(IntEnum):
    """Whether a partition's leader has recovered. RECOVERING: it was elected uncleanly and has not reported its
    recovery yet."""

    RECOVERED = 0
    RECOVERING = 1


class PartitionState(NamedTuple):
    """One partition. `replicas` are in order of preference, `directories` parallel to them; `leader` is -1 for none.
    `leader_epoch` rises when the leader is set, `partition_epoch` at every change."""

    replicas: Replicas
    isr: Replicas
    leader: int
    leader_epoch: int
    partition_epoch: int
    elr: Replicas = ()
    last_known_elr: Replicas = ()
    removing: Replicas = ()
    adding: Replicas = ()
    leader_recovery_state: RecoveryState = RecoveryState.RECOVERED
    directories: tuple[UUID, ...] = ()

    @property
    def is_reassigning(self) -> bool:
        return bool(self.removing or self.adding)

    def directory_of(self, broker_id: int) -> UUID | None:
        """Return the log directory assigned to this broker's replica; None if it has no replica or none is known."""
        if broker_id in self.replicas and self.directories:
            return self.directories[self.replicas.index(broker_id)]
        return None


Leaf = tuple[PartitionState, ...]


class TopicCounts(NamedTuple):
    """Counts over a topic's partitions, kept so that they need not be counted again. By broker id: the number of
    replicas, and the number of partitions whose preferred leader it is. Also the number of partitions being reassigned.
    """

    replicas: Mapping[int, int]
    preferred: Mapping[int, int]
    reassigning: int


NO_COUNTS = TopicCounts(MappingProxyType({}), MappingProxyType({}), 0)


class TopicImage:
    """One topic: name, id and partitions. Immutable."""

    __slots__ = ("leaves", "name", "partition_count", "partition_counts", "topic_id")

    def __init__(
        self, name: str, topic_id: UUID, leaves: tuple[Leaf, ...] = (), partition_counts: TopicCounts = NO_COUNTS
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.leaves = leaves
        self.partition_count = (len(leaves) - 1) * LEAF_PARTITIONS_MAX + len(leaves[-1]) if leaves else 0
        self.partition_counts = partition_counts
        """The counts over `leaves`."""

    def partition(self, index: int) -> PartitionState:
        """Return the state of partition `index`. Raises KeyError if there is none."""
        if not 0 <= index < self.partition_count:
            raise KeyError(index)
        return self.leaves[index >> LEAF_SHIFT][index & LEAF_MASK]

    def find(self, index: int) -> PartitionState | None:
        """Return the state of partition `index`, or None."""
        if not 0 <= index < self.partition_count:
            return None
        return self.leaves[index >> LEAF_SHIFT][index & LEAF_MASK]

    def partitions(self) -> Iterator[tuple[int, PartitionState]]:
        """Yield (index, state) in order."""
        index = 0
        for leaf in self.leaves:
            for state in leaf:
                yield index, state
                index += 1

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TopicImage):
            return NotImplemented
        return self.topic_id == other.topic_id and self.name == other.name and self.leaves == other.leaves

    def __hash__(self) -> int:
        return hash(self.topic_id)

    def __repr__(self) -> str:
        return f"TopicImage({self.name!r}, {self.topic_id}, {self.partition_count} partitions)"


_interned: dict[tuple[object, ...], tuple[object, ...]] = {}
INTERNED_MAX = 65_536


def intern_replicas(replicas: Replicas) -> Replicas:
    """Return the one shared tuple that equals `replicas`. A full table is cleared."""
    found = _interned.get(replicas)
    if found is None:
        if len(_interned) >= INTERNED_MAX:
            _interned.clear()
        _interned[replicas] = found = replicas
    return found  # type: ignore[return-value]


def intern_directories(directories: tuple[UUID, ...]) -> tuple[UUID, ...]:
    """Return the one shared tuple that equals `directories`."""
    found = _interned.get(directories)
    if found is None:
        if len(_interned) >= INTERNED_MAX:
            _interned.clear()
        _interned[directories] = found = directories
    return found  # type: ignore[return-value]
