"""Where replicas should be: an even spread over brokers that moves no more than it must.

Invariants: no partition has two replicas on one broker; a replica stays where it is unless its broker is not among the
chosen ones or has more than its share; where racks are known a partition is spread over as many as there are. The same
input gives the same plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from kraft.client.core.records import TopicPartition

Assignment = dict[TopicPartition, tuple[int, ...]]


def plan_replicas(
    current: Mapping[TopicPartition, Sequence[int]],
    brokers: Mapping[int, str | None],
    replication_factor: int | None = None,
) -> Assignment:
    """Replicas of each partition on these brokers (id → rack), as many as now or `replication_factor`. The first is the
    preferred leader. ValueError if there are too few brokers."""
    plan = _Plan(brokers)
    for partition, replicas in sorted(current.items()):
        factor = len(replicas) if replication_factor is None else replication_factor
        if not 0 < factor <= len(brokers):
            name = f"{partition[0]}-{partition[1]}"
            raise ValueError(f"{name} needs {factor} brokers, and {len(brokers)} are given: {sorted(brokers)}")
        plan.keep(partition, [broker for broker in replicas if broker in brokers], factor)
    for partition, replicas in sorted(current.items()):
        plan.fill(partition, len(replicas) if replication_factor is None else replication_factor)
    plan.level()
    return plan.with_leaders()


def plan_without(
    broker: int, current: Mapping[TopicPartition, Sequence[int]], brokers: Mapping[int, str | None]
) -> Assignment:
    """New replicas of the partitions that have one on `broker`: it goes to that of the other `brokers` (id → rack)
    whose rack has fewest of the partition's replicas, and that has fewest replicas at all. All other replicas stay, in
    their order. ValueError if there are too few brokers."""
    load = Counter(one for replicas in current.values() for one in replicas)
    plan: Assignment = {}
    for partition, replicas in sorted(current.items()):
        if broker not in replicas:
            continue
        free = [one for one in brokers if one not in replicas]
        if not free:
            name = f"{partition[0]}-{partition[1]}"
            raise ValueError(f"{name} has {len(replicas)} replicas, and all other live brokers hold one already")
        racks = Counter(brokers.get(one) for one in replicas if one != broker and brokers.get(one) is not None)
        best = min(free, key=lambda one: (racks[brokers[one]], load[one], one))
        load[best] += 1
        plan[partition] = tuple(best if one == broker else one for one in replicas)
    return plan


class _Plan:
    def __init__(self, brokers: Mapping[int, str | None]) -> None:
        self._racks = brokers
        self._load: Counter[int] = Counter(dict.fromkeys(brokers, 0))
        self._replicas: dict[TopicPartition, list[int]] = {}
        self._order: list[TopicPartition] = []
        self._looked_at: dict[tuple[int, int], int] = {}

    def keep(self, partition: TopicPartition, replicas: list[int], factor: int) -> None:
        """These may stay; if they are too many, those that share a rack with an earlier one go first."""
        while len(replicas) > factor:
            racks = [self._racks[broker] for broker in replicas]
            doubled = [at for at, rack in enumerate(racks) if rack is not None and rack in racks[:at]]
            del replicas[doubled[-1] if doubled else -1]
        self._replicas[partition] = replicas
        self._load.update(replicas)

    def fill(self, partition: TopicPartition, factor: int) -> None:
        replicas = self._replicas[partition]
        while len(replicas) < factor:
            free = [broker for broker in self._racks if broker not in replicas]
            best = min(free, key=lambda broker: (self._crowd(broker, replicas), self._load[broker], broker))
            replicas.append(best)
            self._load[best] += 1

    def level(self) -> None:
        """Move replicas from the brokers with the most to those with the least, as long as that evens them out."""
        self._order = sorted(self._replicas)
        while self._move_one():
            pass

    def _move_one(self) -> bool:
        by_load = sorted(self._racks, key=lambda broker: (self._load[broker], broker))
        for source in reversed(by_load):
            for target in by_load:
                if self._load[source] - self._load[target] < 2:
                    break
                if self._move(source, target):
                    return True
        return False

    def _move(self, source: int, target: int) -> bool:
        """Move the next replica that may go from one to the other; what was looked at for this pair comes last."""
        order = self._order
        start = self._looked_at.get((source, target), 0)
        for step in range(len(order)):
            at = (start + step) % len(order)
            replicas = self._replicas[order[at]]
            if source in replicas and target not in replicas:
                others = [broker for broker in replicas if broker != source]
                if self._crowd(target, others) <= self._crowd(source, others):
                    replicas[replicas.index(source)] = target
                    self._load[source] -= 1
                    self._load[target] += 1
                    self._looked_at[source, target] = at + 1
                    return True
        return False

    def _crowd(self, broker: int, others: Sequence[int]) -> int:
        """How many of the others are in this broker's rack."""
        rack = self._racks[broker]
        return 0 if rack is None else sum(self._racks[other] == rack for other in others)

    def with_leaders(self) -> Assignment:
        """Each broker is the preferred leader of its share; one that is first already stays unless it has more."""
        led: Counter[int] = Counter(dict.fromkeys(self._racks, 0))
        share = -(-len(self._replicas) // max(1, len(self._racks)))
        plan: Assignment = {}
        for partition, replicas in sorted(self._replicas.items()):
            first = replicas[0]
            if led[first] >= share:
                first = min(replicas, key=lambda broker: (led[broker], replicas.index(broker)))
            led[first] += 1
            plan[partition] = (first, *(broker for broker in replicas if broker != first))
        return plan
