"""Bugs planted in the group coordinator, and the check that catches each bug. The same schedule passes without them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio

from kraft.broker.coordinator import shard_driver as coordinator_shard
from kraft.broker.group import coordinator, offsets, rebalance, syncing
from kraft.broker.group.durable import EMPTY_STATE
from kraft.broker.group.records import GroupLogEntry
from kraft.broker.group.requests import CommitReply, FetchOffsetsReply, PartitionError
from kraft.broker.group.step import SendReply
from kraft.broker.partition.log_waits import wait_open
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.workload.admin_work import AdminWorker
from kraft.sim.workload.group_work import GroupWork
from kraft.wire.error_codes import ErrorCode
from tests.stages.checked_cluster import play
from tests.stages.tables import replace_row

Bug = Callable[[pytest.MonkeyPatch], None]
TOPIC = "many"
PARTITIONS = 3
CALM_MS, BETWEEN_CRASHES_MS = 40_000, 5_000


def found(bug: Callable[[], None], crashes: int) -> set[str]:
    """Return the findings of the group checks in a run in which the coordinator loses power this many times. With none,
    the run is longer."""
    works: list[GroupWork] = []

    async def story(cluster: SimCluster) -> None:
        await AdminWorker(cluster).create(TOPIC, PARTITIONS)
        work = GroupWork(cluster, [(TOPIC, index) for index in range(PARTITIONS)])
        works.append(work)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work.run)
            for _ in range(crashes):
                await cluster.world.sleep_ms(BETWEEN_CRASHES_MS)
                await lose_the_coordinator(cluster)
            if not crashes:
                await cluster.world.sleep_ms(CALM_MS)
            await work.wait_until_settled()
            nursery.cancel_scope.cancel()
        await cluster.world.sleep_ms(500)
        work.compare_coordinators()

    play(story, bug=bug)
    return {finding.check for finding in works[0].checks.findings}


async def lose_the_coordinator(cluster: SimCluster) -> None:
    for node in cluster.shape.broker_ids:
        broker = cluster.watch.nodes[node].node.broker
        assert broker is not None
        if any(shard.machine is not None and shard.machine.groups for shard in broker.broker.groups.shards.values()):
            cluster.crash(node, lose_power=True, is_noticed=False)
            await cluster.world.sleep_ms(1_000)
            cluster.start(node)
            assert await cluster.wait_until(lambda: not cluster.trouble(), 30_000), cluster.trouble()
            return


@pytest.mark.parametrize("crashes", [0, 2])
def test_group_checks_find_nothing_without_a_planted_bug(crashes: int) -> None:
    assert found(lambda: None, crashes) == set()


# G3: acknowledged commits


def commits_are_acknowledged_without_a_write(patch: pytest.MonkeyPatch) -> None:
    def twin(shard: Any, request: Any, ticket: Any, turn: Any) -> None:
        rows = tuple(PartitionError(row.topic, row.partition, ErrorCode.NONE) for row in request.offsets)
        turn.then(SendReply(ticket, request, CommitReply(rows)))

    replace_row(patch, coordinator.HANDLERS, offsets.CommitRequest, twin)


def a_new_coordinator_begins_with_nothing(patch: pytest.MonkeyPatch) -> None:
    async def twin(disk: Any, gates: Any, partition: Any, is_wanted: Any, bytes_max: int, **_: Any) -> Any:
        await wait_open(partition)
        return EMPTY_STATE, partition.log.log_end_offset

    patch.setattr(coordinator_shard, "load_state", twin)


def reads_return_no_offsets(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(offsets, "read_offsets", lambda state, request: FetchOffsetsReply(ErrorCode.NONE, _none(request)))
    patch.setattr(coordinator, "read_offsets", lambda state, request: FetchOffsetsReply(ErrorCode.NONE, _none(request)))


def _none(request: Any) -> Any:
    return tuple(offsets.FetchedOffset(topic, partition) for topic, partition in request.partitions)


# G4: fencing


def old_generations_may_commit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(offsets, "_commit_error", lambda group, request: ErrorCode.NONE)


# G1: generations


def a_generation_number_stays(patch: pytest.MonkeyPatch) -> None:
    original = rebalance.complete

    def twin(shard: Any, group: Any, turn: Any) -> None:
        group.generation -= group.generation > 1
        original(shard, group, turn)

    patch.setattr(rebalance, "complete", twin)


def every_member_gets_the_leaders_assignment(patch: pytest.MonkeyPatch) -> None:
    original = syncing.assigned

    def twin(shard: Any, stored: Any, turn: Any) -> None:
        part = stored.assignments[0][1] if stored.assignments else b""
        everybody = tuple((member_id, part) for member_id, _ in stored.assignments)
        original(shard, stored._replace(assignments=everybody), turn)

    patch.setattr(coordinator, "assigned", twin)


# G7: the state depends only on the log


def only_half_of_an_append_is_applied(patch: pytest.MonkeyPatch) -> None:
    original = coordinator.GroupCoordinator.appended

    def twin(self: Any, entries: Any, end_offset: int) -> None:
        kept: list[GroupLogEntry] = [entry for entry in entries if not isinstance(entry.value, offsets.OffsetValue)]
        original(self, kept, end_offset)

    patch.setattr(coordinator.GroupCoordinator, "appended", twin)


@pytest.mark.parametrize(
    ("bug", "crashes", "check"),
    [
        (commits_are_acknowledged_without_a_write, 1, "G3"),
        (a_new_coordinator_begins_with_nothing, 2, "G3"),
        (reads_return_no_offsets, 1, "G3"),
        (old_generations_may_commit, 0, "G4"),
        (a_generation_number_stays, 0, "G5"),
        (every_member_gets_the_leaders_assignment, 0, "G5"),
        (only_half_of_an_append_is_applied, 0, "G7"),
    ],
)
def test_checks_catch_each_planted_coordinator_bug(
    monkeypatch: pytest.MonkeyPatch, bug: Bug, crashes: int, check: str
) -> None:
    assert check in found(partial(bug, monkeypatch), crashes)
