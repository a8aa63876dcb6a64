"""Progress of a reassignment plan: which replicas are on the planned brokers, and in the planned log directories.

Invariant: the list of running moves is requested before the list of current replicas. So a move that ends between the
two requests counts as running, and its partition never counts as failed.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kraft.deploy.cli.output import EXIT_NOT_FOUND, CommandFailed, progress, warn
from kraft.deploy.cli.partitions.reassignment_file import Placement

if TYPE_CHECKING:
    from kraft.client.admin import Admin, Reassignment

POLL_MS = 200
IDLE_POLLS_MAX = 10
"""Number of polls without a running move after which waiting ends. More than one is needed: a move between directories
becomes visible only once the copied log is open, and brokers learn of a finished move a little later than the
controller."""

DONE = "done"
MOVING = "being moved"
BETWEEN_DIRECTORIES = "being moved between directories"
ASTRAY = "not as planned"

TopicPartition = tuple[str, int]
Replica = tuple[int, TopicPartition]
"""Replica as (broker id, partition)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignmentProgress:
    """State of the partitions of a plan. For a broker that is down, the log directories are missing."""

    placements: Mapping[TopicPartition, Placement]
    running: Mapping[TopicPartition, Reassignment]
    """Partitions that are being moved between brokers."""
    current: Mapping[TopicPartition, tuple[int, ...]]
    held: Mapping[Replica, str]
    """Current log directory of each replica for which the plan names a directory."""
    coming: Mapping[Replica, str]
    """Log directory into which a replica of `held` is being moved, if it is."""

    def state(self, partition: TopicPartition) -> str:
        placement = self.placements[partition]
        if partition in self.running:
            target = self.running[partition].target
            return MOVING if target == placement.replicas else f"{MOVING} to {list(target)}"
        if self.current[partition] != placement.replicas:
            return ASTRAY
        wanted = {(broker, partition): path for broker, path in placement.directories.items()}
        if any(self.coming.get(replica) == path for replica, path in wanted.items()):
            return BETWEEN_DIRECTORIES
        is_there = all(
            replica not in self.coming and self.held.get(replica) == path for replica, path in wanted.items()
        )
        return DONE if is_there else ASTRAY

    @property
    def done(self) -> int:
        """Number of partitions that are as planned."""
        return sum(self.state(partition) == DONE for partition in self.placements)

    @property
    def is_done(self) -> bool:
        return self.done == len(self.placements)

    @property
    def is_moving(self) -> bool:
        return any(self.state(partition) not in (DONE, ASTRAY) for partition in self.placements)


async def fetch_progress(admin: Admin, placements: Mapping[TopicPartition, Placement]) -> ReassignmentProgress:
    """Request the state of these partitions. Raise CommandFailed if one does not exist."""
    running = await admin.partitions.reassignments(placements)
    held: dict[Replica, str] = {}
    coming: dict[Replica, str] = {}
    named = {broker for placement in placements.values() for broker in placement.directories}
    if named:
        up = {one.node_id for one in (await admin.nodes.cluster()).brokers if not one.is_fenced}
        for directory in await admin.nodes.log_dirs(named & up):
            for one in directory.replicas:
                places = coming if one.is_future else held
                places[directory.broker, (one.topic, one.partition)] = directory.path
    current = await current_replicas(admin, placements)
    return ReassignmentProgress(placements=placements, running=running, current=current, held=held, coming=coming)


async def wait_until_over(admin: Admin, placements: Mapping[TopicPartition, Placement]) -> ReassignmentProgress:
    """Wait until all moves are done, or until no move has been running for a while. The bar counts the partitions that
    are done. If moves wait for brokers that are down, these brokers are named on standard error as soon as this is
    noticed."""
    import trio

    idle_polls = told = 0
    missing: frozenset[int] = frozenset()
    with progress("moving", len(placements)) as advance:
        while True:
            found = await fetch_progress(admin, placements)
            advance(found.done - told)
            told = found.done
            idle_polls = 0 if found.is_moving else idle_polls + 1
            if found.is_done or idle_polls > IDLE_POLLS_MAX:
                return found
            missed = awaited_brokers(found.running, await _active_brokers(admin)) if found.running else frozenset()
            if missed - missing:
                warn(_missing_text(missed))
            missing = missed
            await trio.sleep(POLL_MS / 1000)


def awaited_brokers(running: Mapping[TopicPartition, Reassignment], active: Container[int]) -> frozenset[int]:
    """Return the brokers that are down and without which these moves cannot finish. These are the brokers that are to
    get a replica, and the previous replicas of a partition if all of them are down."""
    down: set[int] = set()
    for move in running.values():
        down.update(broker for broker in move.adding if broker not in active)
        sources = [broker for broker in move.replicas if broker not in move.adding]
        if not any(broker in active for broker in sources):
            down.update(sources)
    return frozenset(down)


async def _active_brokers(admin: Admin) -> frozenset[int]:
    return frozenset(one.node_id for one in (await admin.nodes.cluster()).brokers if not one.is_fenced)


def _missing_text(brokers: Iterable[int]) -> str:
    named = ", ".join(map(str, sorted(brokers)))
    return (
        f"moves wait for brokers that are down: {named}. They continue when these are back (kraft start); "
        "ctrl-C ends this command, not the moves"
    )


async def current_replicas(admin: Admin, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the replicas of these partitions. Raise CommandFailed if one does not exist."""
    wanted = sorted(set(partitions))
    topics = await admin.topics.describe(sorted({topic for topic, _ in wanted}))
    known = {(part.topic, part.index): part.replicas for topic in topics for part in topic.partitions}
    for partition in wanted:
        if partition not in known:
            raise CommandFailed(f"there is no partition {partition[0]}-{partition[1]}", code=EXIT_NOT_FOUND)
    return {partition: known[partition] for partition in wanted}
