"""Drain a broker: choose the brokers that get its replicas, and move the replicas there.

Invariants: the plan keeps each partition's number of replicas, and changes only partitions that have a replica on the
drained broker. A partition that is being moved already counts as being at its target, so an interrupted drain continues
where it stopped. If a target broker is down, another one is chosen. A throttle left by an interrupted drain is removed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kraft.client.core.replica_plan import plan_without
from kraft.deploy.cli.output import EXIT_NOT_FOUND, CommandFailed, plural
from kraft.deploy.cli.partitions.reassign_progress import DONE, wait_until_over
from kraft.deploy.cli.partitions.reassignment_file import Placement

if TYPE_CHECKING:
    from kraft.client.admin import Admin, PartitionDescription, Reassignment

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainPlan:
    """Replicas of each partition that has one on the drained broker, before and after the drain. `running` has the
    partitions that are already moving to their target."""

    broker: int
    before: Mapping[TopicPartition, tuple[int, ...]]
    targets: Mapping[TopicPartition, tuple[int, ...]]
    running: frozenset[TopicPartition]


async def find_drain_plan(admin: Admin, broker: int) -> DrainPlan:
    """Return the plan of a drain. Raise CommandFailed if the broker does not exist, or if too few other brokers are
    active to take its replicas."""
    known = {one.node_id: one for one in (await admin.nodes.cluster()).brokers}
    if broker not in known:
        raise CommandFailed(f"there is no broker {broker} (there are: {_ids(known)})", code=EXIT_NOT_FOUND)
    usable = {one.node_id: one.rack for one in known.values() if not one.is_fenced and one.node_id != broker}
    running = await admin.partitions.reassignments()
    partitions = [part for topic in await admin.topics.list() for part in topic.partitions]
    try:
        return decide_drain(broker, partitions, running, usable)
    except ValueError as problem:
        raise CommandFailed(f"broker {broker} cannot be drained: {problem}; start another broker first") from None


def decide_drain(
    broker: int,
    partitions: Sequence[PartitionDescription],
    running: Mapping[TopicPartition, Reassignment],
    usable: Mapping[int, str | None],
) -> DrainPlan:
    """Return the plan of a drain, given the brokers that may take replicas (id → rack). Each replica of the drained
    broker goes to the broker that is best by rack and load; all other replicas stay. Raise ValueError if there are too
    few brokers."""
    before = {(one.topic, one.index): one.replicas for one in partitions if broker in one.replicas}
    current = {(one.topic, one.index): one.replicas for one in partitions}
    for one, move in running.items():
        down = [replica for replica in move.adding if replica not in usable and broker in move.removing]
        current[one] = tuple(broker if replica in down[:1] else replica for replica in move.target)
    moving = frozenset(one for one in before if broker not in current[one])
    targets = {one: current[one] for one in moving}
    targets |= plan_without(broker, current, usable)
    return DrainPlan(broker=broker, before=before, targets=targets, running=moving)


async def carry_out(admin: Admin, plan: DrainPlan, throttle: int | None) -> None:
    """Start the moves that are not in progress yet, and wait until all moves of the plan have ended. Raise
    CommandFailed with the partitions that were not moved."""
    from kraft.client.admin.reassign_throttle import set_throttle

    new = {one: target for one, target in plan.targets.items() if one not in plan.running}
    if throttle is None:
        await _lift(admin, plan.broker)
    else:
        await set_throttle(admin, plan.before, plan.targets, throttle)
    refused = {one: why for one, why in (await admin.partitions.reassign(new)).items() if why} if new else {}
    placements = {one: Placement(target) for one, target in plan.targets.items() if one not in refused}
    progress = await wait_until_over(admin, placements)
    await _lift(admin, plan.broker)
    left = [one for one in placements if progress.state(one) != DONE]
    if refused or left:
        named = [f"{topic}-{index}: {why}" for (topic, index), why in sorted(refused.items())]
        named += [f"{topic}-{index}: {progress.state((topic, index))}" for topic, index in sorted(left)]
        raise CommandFailed(f"{plural(len(named), 'partition')} did not move: {'; '.join(named[:5])}")


async def _lift(admin: Admin, broker: int) -> None:
    """Remove the throttle that this drain, or an earlier drain of the same broker that was interrupted, has set."""
    from kraft.client.admin.reassign_throttle import remove_throttle, throttled_topics

    topics = await throttled_topics(admin, broker)
    if topics:
        await remove_throttle(admin, topics, [one.node_id for one in (await admin.nodes.cluster()).brokers])


def _ids(brokers: Mapping[int, object]) -> str:
    return ", ".join(map(str, sorted(brokers)))
