"""Compares what coordinators remember of a consumer group with a replay of their logs: when a coordinator has loaded
its partition, and again and again afterwards.

The records of the replay are those that the simulated disk of the coordinator's node shows.
"""

from __future__ import annotations

from kraft.broker.consumer_group.state import ConsumerGroup
from kraft.broker.coordinator.group_coordinators import GroupShard
from kraft.sim.check.consumer_groups.ledger import GroupLedger
from kraft.sim.check.consumer_groups.states import CoordinatorCompared
from kraft.sim.check.shadow import ShadowLog
from kraft.sim.cluster.active_coordinators import active_group_coordinators
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.cluster.shape import host_name

LOOK_MS = 200
LOOKS_PER_COMPARISON = 10
OFFSETS_TOPIC = "__consumer_offsets"


def facts_of(group: ConsumerGroup | None) -> dict[str, object]:
    """Return what a coordinator remembers of a consumer group, by name."""
    if group is None:
        return {}
    return {
        "epoch": group.epoch,
        "metadata hash": group.metadata_hash,
        "assignment epoch": group.assignment_epoch,
        "members": dict(group.members.items()),
        "targets": {member_id: dict(target) for member_id, target in group.targets.items()},
        "current": dict(group.current.items()),
        "regexes": dict(group.regexes.items()),
        "holders": dict(group.holders.items()),
    }


class CoordinatorStates:
    """Comparison of all coordinators of one group during a run."""

    def __init__(self, cluster: SimCluster, group: str) -> None:
        self._cluster = cluster
        self._group = group
        self._loaded: dict[tuple[int, int], tuple[int, int]] = {}
        """(node, partition) → (start of the node, leader epoch) of the coordinator that was compared last."""

    async def watch(self) -> None:
        """Compare until cancelled."""
        look = 0
        while True:
            await self._cluster.world.sleep_ms(LOOK_MS)
            look += 1
            for node, shard, _ in active_group_coordinators(self._cluster):
                self._look_at(node, shard, is_due=not look % LOOKS_PER_COMPARISON)

    def _look_at(self, node: int, shard: GroupShard, *, is_due: bool) -> None:
        name = (node, shard.partition.index)
        leadership = (self._cluster.world.host(host_name(node)).lives, shard.leader_epoch)
        is_new = self._loaded.get(name) != leadership
        if not (is_new or is_due):
            return
        assert shard.machine is not None
        log = self._cluster.watch.suite.shadows.log(node, (OFFSETS_TOPIC, shard.partition.index))
        if log.end_offset < shard.machine.end_offset:
            return  # the node is frozen between an append and the write to its disk
        self._loaded[name] = leadership
        remembered = facts_of(shard.machine.newest.consumers.get(self._group))
        replayed = _replay(log, shard.machine.end_offset).group(self._group).facts()
        if remembered or replayed:
            self._cluster.watch.tell(CoordinatorCompared(node, self._group, is_new, remembered, replayed))


def _replay(log: ShadowLog, end_offset: int) -> GroupLedger:
    """Return the groups of a log up to this offset."""
    ledger = GroupLedger()
    for batch in log.between(0, end_offset):
        for entry in batch.group_entries:
            ledger.add(entry)
    return ledger
