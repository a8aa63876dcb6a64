"""The end of group activity in a simulated run: it has ended when the coordinator reports the group as idle. The
coordinator writes nothing afterwards.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio

from kraft.broker.coordinator import group_coordinators
from kraft.broker.group.classic_group import GroupState
from kraft.broker.group.records import GroupLogEntry, GroupValue, LogRecord
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.nemesis.plan import BE_SILENT, MEMBERS, Plan, PlannedOperation
from kraft.sim.run.run import run_plan
from kraft.sim.workload.admin_work import AdminWorker
from kraft.sim.workload.group_work import GROUP, SESSION_TIMEOUT_MS, GroupWork
from tests.stages.checked_cluster import play

PARTITIONS = [("many", index) for index in range(3)]
SILENT_AT_MS, LOOKED_AT_MS = 4_000, 8_000


def state_of(cluster: SimCluster) -> str:
    """Return the group's state from the only coordinator that has it."""
    (state,) = (
        shard.machine.groups[GROUP].state
        for node in cluster.shape.broker_ids
        for shard in cluster.watch.nodes[node].node.broker.broker.groups.shards.values()  # type: ignore[union-attr]
        if shard.machine is not None and GROUP in shard.machine.groups
    )
    return state.value


def test_the_end_of_a_run_waits_until_the_session_of_a_silent_member_has_expired() -> None:
    at_rest_ms, ends = [], []

    async def story(cluster: SimCluster) -> None:
        world = cluster.world
        await AdminWorker(cluster).create("many", len(PARTITIONS))
        silent = [PlannedOperation(SILENT_AT_MS, BE_SILENT)]
        work = GroupWork(cluster, PARTITIONS, {MEMBERS[0]: silent, MEMBERS[1]: [], MEMBERS[2]: []})
        async with trio.open_nursery() as nursery:
            began_ns = world.now_ns
            nursery.start_soon(work.run)
            await world.sleep_ms(LOOKED_AT_MS)
            assert all(member.owned for member in work._members), "it believes to own what it owned"
            assert not work.has_settled
            await work.wait_until_settled()
            at_rest_ms.append((world.now_ns - began_ns) // 1_000_000)
            nursery.cancel_scope.cancel()
        assert state_of(cluster) == GroupState.STABLE.value
        await work.leave()
        await cluster.wait_until(lambda: not cluster.trouble(), 5_000)
        assert state_of(cluster) == GroupState.EMPTY.value
        for wait_ms in (0, 2 * SESSION_TIMEOUT_MS):
            await world.sleep_ms(wait_ms)
            shadows = cluster.watch.suite.shadows
            ends.append(
                [
                    shadows.log(node, ("__consumer_offsets", index)).end_offset
                    for node in cluster.shape.broker_ids
                    for index in range(3)
                ]
            )
        assert not work.checks.findings

    assert not play(story)
    assert at_rest_ms[0] > SILENT_AT_MS + SESSION_TIMEOUT_MS
    assert ends[0] == ends[1]


def members_are_written_without_their_assignments(patch: pytest.MonkeyPatch) -> None:
    original = group_coordinators.encode_entry

    def twin(entry: GroupLogEntry) -> LogRecord:
        value: Any = entry.value
        if isinstance(value, GroupValue):
            value = value._replace(members=tuple(member._replace(assignment=b"") for member in value.members))
        return original(entry._replace(value=value))

    patch.setattr(group_coordinators, "encode_entry", twin)


def test_group_checks_compare_group_members_in_log_and_coordinator_before_the_members_leave(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calm = Plan(seed=3, duration_ms=6_000, work=dict.fromkeys(MEMBERS, ()))
    assert not run_plan(calm).findings
    members_are_written_without_their_assignments(monkeypatch)
    assert {finding.check for finding in run_plan(calm).findings} == {"G7"}
