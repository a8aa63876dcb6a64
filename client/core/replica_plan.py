"""Plan the placement of replicas: spread evenly over brokers, with as few moves as possible.

Invariants:
- No partition has two replicas on one broker.
- A replica stays where it is, unless its broker is not a chosen one or has more replicas than its even share.
- If racks are known, a partition is spread over as many racks as possible.
- Equal input gives an equal plan.
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
    """Plan the replicas of each partition on these brokers (id → rack). Their number is `replication_factor` or, if
    that is None, as many as now. The first replica is the preferred leader. Raise ValueError if there are too few
    brokers."""
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
    """Plan a replacement for each replica on `broker`. It goes to another broker in `brokers` (id → rack): one whose
    rack has the fewest replicas of the partition, and of those the one with the fewest replicas in all. All other
    replicas stay, in their order. Raise ValueError if there are too few brokers."""
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
        """Keep these replicas of a partition. If there are more than `factor`, first drop replicas that share a rack
        with an earlier one."""
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
            best = min(free, key=lambda broker: (self._count_in_rack(broker, replicas), self._load[broker], broker))
            replicas.append(best)
            self._load[best] += 1

    def level(self) -> None:
        """Move replicas from the brokers with the most replicas to those with the fewest, as long as this makes brokers
        more even."""
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
        """Move one replica from `source` to `target`, if one may move. The search continues after the replica that was
        last moved from `source` to `target`."""
        order = self._order
        start = self._looked_at.get((source, target), 0)
        for step in range(len(order)):
            at = (start + step) % len(order)
            replicas = self._replicas[order[at]]
            if source in replicas and target not in replicas:
                others = [broker for broker in replicas if broker != source]
                if self._count_in_rack(target, others) <= self._count_in_rack(source, others):
                    replicas[replicas.index(source)] = target
                    self._load[source] -= 1
                    self._load[target] += 1
                    self._looked_at[source, target] = at + 1
                    return True
        return False

    def _count_in_rack(self, broker: int, others: Sequence[int]) -> int:
        """Return how many of the brokers `others` are in this broker's rack; 0 if its rack is not known."""
        rack = self._racks[broker]
        return 0 if rack is None else sum(self._racks[other] == rack for other in others)

    def with_leaders(self) -> Assignment:
        """Spread preferred leadership evenly. A broker that is already first in a partition stays first, unless it
        leads more than its even share."""
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
