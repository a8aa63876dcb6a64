"""Decide what a partition's newest state requires of one broker: lead, follow, keep its role, or remove the replica.

Invariant: a state whose partition epoch is older than that of the current state changes nothing, because an
AlterPartition response may have arrived before the metadata. A state with an equal epoch is applied again.
Source: Kafka's Partition, ReplicaManager.
"""

from __future__ import annotations

from enum import Enum

from kraft.image.partitions import PartitionState


class RoleChange(Enum):
    """The action that a partition's new state requires for the local replica."""

    IGNORE = "older than what is held"
    REMOVE = "not among the replicas any more"
    LEAD = "begin to lead a new leader epoch"
    KEEP_LEADING = "lead on, with another in-sync set or assignment"
    FOLLOW = "begin to follow in a new leader epoch: stop what is fetched, then fetch from this leader"
    KEEP_FOLLOWING = "follow on: same leader epoch"


def decide_role(local_id: int, held: PartitionState | None, state: PartitionState | None) -> RoleChange:
    """Decide the action. `held` is the state on which this broker acts now, or None if it hosts no replica. `state` is
    the state in the image, or None if the partition was deleted."""
    if state is None or local_id not in state.replicas:
        return RoleChange.REMOVE
    if held is None:
        return RoleChange.LEAD if state.leader == local_id else RoleChange.FOLLOW
    if state.partition_epoch < held.partition_epoch or state.leader_epoch < held.leader_epoch:
        return RoleChange.IGNORE
    same_epoch = state.leader_epoch == held.leader_epoch
    if state.leader == local_id:
        return RoleChange.KEEP_LEADING if same_epoch and held.leader == local_id else RoleChange.LEAD
    return RoleChange.KEEP_FOLLOWING if same_epoch and held.leader != local_id else RoleChange.FOLLOW
