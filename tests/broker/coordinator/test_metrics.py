"""The metrics of the group coordinator change with members' requests."""

from __future__ import annotations

from typing import Any

from kraft.wire.api_keys import ApiKey
from tests.broker.coordinator.member import Member

RUNTIME = "group-coordinator-metrics"


def test_commits_rebalances_and_loads_are_counted_in_the_coordinators_metrics(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        await member.settle()
        metrics = cluster.node(member.broker).metrics

        def value(name: str, **tags: str) -> float:
            return metrics.value("kafka.coordinator.group", RUNTIME, name, **tags) or 0

        assert value("group-completed-rebalance-count") == 1
        assert value("num-partitions", state="active") >= 1
        assert value("partition-load-time-max") >= value("partition-load-time-avg") > 0
        assert value("event-queue-size") == 0
        for offset in range(1, 4):
            await member.commit(offset)
        await world.sleep_ms(2_000)
        assert value("offset-commit-count") == 3
        assert value("offset-commit-rate") > 0
        assert value("group-completed-rebalance-rate") > 0
        await member.ask(ApiKey.LEAVE_GROUP, group_id="g", members=[{"member_id": member.member_id}])
        await member.ask(ApiKey.DELETE_GROUPS, groups_names=["g"])
        assert value("offset-deletion-count") == 1

    run(test)


def test_the_metric_of_expired_offsets_counts_an_offset_when_it_is_removed(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        await member.settle()
        await member.commit(1)
        metrics = cluster.node(member.broker).metrics
        await member.ask(ApiKey.LEAVE_GROUP, group_id="g", members=[{"member_id": member.member_id}])
        await world.sleep_ms(3 * 60_000)
        assert metrics.value("kafka.coordinator.group", RUNTIME, "offset-expiration-count") == 1

    run(test, offsets_retention_minutes="1", offsets_retention_check_interval_ms="10000")
