"""Changes of the offsets of share groups in a run: an administrator sets or deletes the offsets of a group, or deletes
the group.

The brokers permit that only while the group has no members. The responses to the administrator are compared with
the committed states, and with the members of the group (S14).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from kraft.broker.share_coordinator.records import NO_EPOCH, NO_OFFSET, ShareKey
from kraft.broker.share_group.state import ShareGroup
from kraft.client import KafkaError
from kraft.client.admin import Admin
from kraft.image.partitions import TopicImage
from kraft.sim.check.share_groups.steps import OffsetsChanged
from kraft.sim.cluster.active_coordinators import active_group_coordinators
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.nemesis.plan import DELETE_SHARE_GROUP, DELETE_SHARE_OFFSETS, SET_SHARE_OFFSETS
from kraft.sim.workload.share_member import FAILURES
from kraft.wire.error_codes import ErrorCode

POSITIONS = 5
"""Number of start offsets to choose from, evenly from the first offset to the end."""
RAISED_BY = MappingProxyType({SET_SHARE_OFFSETS: 1, DELETE_SHARE_OFFSETS: 1, DELETE_SHARE_GROUP: 1})
"""Operation → by how much it raises the epoch of the group."""


class _Before(NamedTuple):
    """A group before a request: its epoch and members, the number of the last begin of each state, and which of its
    share partitions have a state now."""

    epoch: int
    members: frozenset[str]
    begins: Mapping[ShareKey, int]
    present: frozenset[ShareKey]


class ShareOffsetsWork:
    """The changes of offsets of one run. `done` and `refused` count them."""

    def __init__(self, cluster: SimCluster) -> None:
        self.done = 0
        self.refused = 0
        """Number of changes that were refused because the group had members."""
        self._cluster = cluster

    async def change(self, admin: Admin, verb: str, group: str, topic: TopicImage, position: int) -> bool:
        """Send one request. Return whether it is done, or has nothing to do."""
        offsets = {index: self._offset(topic, index, position) for index in range(topic.partition_count)}
        before = self._before(group, topic)
        try:
            if verb == SET_SHARE_OFFSETS:
                await admin.share_groups.alter_offsets(
                    group, {(topic.name, index): offset for index, offset in offsets.items()}
                )
            elif verb == DELETE_SHARE_OFFSETS:
                await admin.share_groups.delete_offsets(group, [topic.name])
            else:
                await admin.groups.delete(group)
        except FAILURES as problem:
            code = problem.code if isinstance(problem, KafkaError) else ErrorCode.NONE
            self.refused += code is ErrorCode.NON_EMPTY_GROUP
            return code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self.done += 1
        members = self._members_throughout(group, before, RAISED_BY[verb])
        for index, offset in offsets.items():
            key = ShareKey(group, topic.topic_id, index)
            start = offset if verb == SET_SHARE_OFFSETS else NO_OFFSET
            if verb == SET_SHARE_OFFSETS or key in before.present:
                self._cluster.watch.tell(OffsetsChanged(key, start, before.begins[key], members))
        return True

    def _offset(self, topic: TopicImage, index: int, position: int) -> int:
        """Return the start offset of a partition for this position, by the present end of its leader's log."""
        marks = self._cluster.marks(topic.partition(index).leader, topic.name, index)
        return 0 if marks is None else marks[0] * (position % POSITIONS) // (POSITIONS - 1)

    def _before(self, group: str, topic: TopicImage) -> _Before:
        ledger, found = self._cluster.watch.suite.shares.ledger, self._group(group)
        states = {
            key: ledger.state(key)
            for key in (ShareKey(group, topic.topic_id, index) for index in range(topic.partition_count))
        }
        begins = {key: state.begin for key, state in states.items()}
        present = frozenset(key for key, state in states.items() if state.state_epoch != NO_EPOCH)
        return _Before(NO_EPOCH if found is None else found.epoch, frozenset(_ids(found)), begins, present)

    def _members_throughout(self, group: str, before: _Before, raised_by: int) -> tuple[str, ...]:
        """Return the members that were in the group before a request, and still are. Another epoch of the group than
        the one due means that members have come or gone, also such as have the same id; then return nothing."""
        found = self._group(group)
        if found is None or found.epoch != before.epoch + raised_by:
            return ()
        return tuple(sorted(before.members & set(_ids(found))))

    def _group(self, group: str) -> ShareGroup | None:
        """Return the committed state of a group at its coordinator; None if no coordinator has it."""
        for _, shard, machine in active_group_coordinators(self._cluster):
            found = machine.committed.shares.get(group)
            if found is not None and shard.partition.leader is not None:
                return found
        return None


def _ids(group: ShareGroup | None) -> Iterator[str]:
    yield from () if group is None else group.members
