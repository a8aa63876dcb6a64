"""Finds the nodes that faults wait for: coordinators and leaders at a certain step of a transaction's two-phase commit.

The state comes from the memory of transaction coordinators and from the logs of leaders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from kraft.broker.coordinator.shard_driver import ShardState
from kraft.broker.txn.states import TransactionState
from kraft.broker.txn.transaction import Transaction
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.nemesis import plan

COMPLETE = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


def step_of(transaction: Transaction) -> str:
    """Return the role that a coordinator has at the present step of this transactional id; "" if no role fits."""
    value, pending, completion = transaction.value, transaction.pending, transaction.completion
    if pending is not None and pending.value is not None:
        if pending.value.state.is_prepared:
            return plan.DECIDING
        return plan.COMPLETING if pending.value.state in COMPLETE else ""
    if value is None:
        return ""
    if value.state.is_prepared and completion is not None:
        return plan.DECIDED if len(completion.left) == len(value.partitions) else plan.HALF_MARKED
    if value.state is TransactionState.ONGOING:
        return plan.OPEN
    return plan.COMPLETE if value.state in COMPLETE else ""


class TransactionTargets:
    """Finder of the nodes of one cluster that have a role in a transaction now."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        roles = (plan.OPEN, plan.DECIDING, plan.DECIDED, plan.HALF_MARKED, plan.COMPLETING, plan.COMPLETE)
        self.holders: Mapping[str, Callable[[], list[int]]] = MappingProxyType(
            {
                **{role: self._finder(role) for role in roles},
                plan.UNMARKED_LEADER: self._leaders_without_marker,
                plan.OPEN_LEADER: self._leaders_with_open_transactions,
            }
        )
        """Role → function that returns the nodes with that role. A node occurs once for each of its transactions or
        partitions in that role."""

    def _finder(self, role: str) -> Callable[[], list[int]]:
        return lambda: [node for node, transaction in self._coordinated() if step_of(transaction) == role]

    def _coordinated(self) -> Iterator[tuple[int, Transaction]]:
        """Yield (node of the coordinator, transactional id's state) for all transactional ids."""
        for node in self._cluster.shape.broker_ids:
            observer = self._cluster.watch.nodes.get(node)
            broker = None if observer is None else observer.node.broker
            for _, shard in sorted(broker.broker.transactions.shards.items()) if broker is not None else ():
                if shard.state is ShardState.ACTIVE and shard.machine is not None:
                    yield from ((node, each) for each in shard.machine.transactions.values())

    def _leaders_without_marker(self) -> list[int]:
        image = self._cluster.image
        found = []
        for _, transaction in self._coordinated():
            for name, index in sorted(transaction.completion.left if transaction.completion is not None else ()):
                topic = image.topics.get(name)
                state = None if topic is None else topic.find(index)
                found += [] if state is None or state.leader < 0 else [state.leader]
        return found

    def _leaders_with_open_transactions(self) -> list[int]:
        found = []
        for node in self._cluster.shape.broker_ids:
            observer = self._cluster.watch.nodes.get(node)
            broker = None if observer is None else observer.node.broker
            for partition in broker.broker.replicas.hosted if broker is not None else ():
                log = partition.log
                if partition.leader is not None and log is not None and log.producers.first_unstable_offset is not None:
                    found.append(node)
        return found
