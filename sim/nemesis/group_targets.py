"""Finds the nodes that faults wait for: the coordinator of the group MIXED_GROUP, at certain moments.

The state comes from the memory of coordinators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from kraft.broker.consumer_group.records import MemberState
from kraft.broker.group.coordinator import GroupCoordinator
from kraft.broker.group.durable import DurableState
from kraft.sim.cluster.active_coordinators import active_group_coordinators
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.nemesis import plan


def roles_of(machine: GroupCoordinator, group: str) -> tuple[str, ...]:
    """Return the roles that the coordinator of a group's partition has now."""
    newest = machine.newest
    consumers = newest.consumers.get(group)
    if consumers is None and group not in newest.groups:
        return ()
    roles = [plan.GROUP_COORDINATOR]
    if _records_of(newest, group) != _records_of(machine.committed, group):
        roles.append(plan.WRITING_GROUP_COORDINATOR)
    members = () if consumers is None else consumers.current.values()
    if any(member.state is MemberState.UNREVOKED_PARTITIONS for member in members):
        roles.append(plan.REVOKING_GROUP_COORDINATOR)
    return tuple(roles)


def _records_of(state: DurableState, group: str) -> tuple[object, ...]:
    return state.groups.get(group), state.consumers.get(group), state.offsets.get(group)


class GroupTargets:
    """Finder of the coordinators of the group in one cluster."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self.holders: Mapping[str, Callable[[], list[int]]] = MappingProxyType(
            {role: self._finder(role) for role in plan.GROUP_ROLES}
        )
        """Role → function that returns the nodes with that role."""

    def _finder(self, role: str) -> Callable[[], list[int]]:
        return lambda: [
            node
            for node, _, machine in active_group_coordinators(self._cluster)
            if role in roles_of(machine, plan.MIXED_GROUP)
        ]
