"""`kraft groups reset-offsets --all-groups`: which groups it resets, and that it resets none if one has members."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from kraft.client import Consumer
from kraft.client.admin import NewTopic
from kraft.client.admin.reset import ResetRule, ResetTo
from kraft.deploy.cli.groups.offset_resets import ResetRequest, carry_out_plans, make_plans, require_empty
from kraft.deploy.cli.output import CommandFailed
from kraft.wire.api_keys import ApiKey
from tests.stages.admin_client import Stage, play

EARLIEST, LATEST = ResetRule(ResetTo.EARLIEST), ResetRule(ResetTo.LATEST)
RECORDS = {1_000: 0, 2_000: 1, 3_000: 2, 4_000: 3}


async def make_two_groups(stage: Stage) -> None:
    """Create two groups: `one` has committed offset 1 of partition 0, and `two` has committed offset 2 of partition
    1."""
    await stage.admin.topics.create(NewTopic("t", 2))
    for partition in (0, 1):
        await stage.produce("t", RECORDS, partition=partition)
    await stage.admin.groups.alter_offsets("one", {("t", 0): 1})
    await stage.admin.groups.alter_offsets("two", {("t", 1): 2})


async def committed(stage: Stage, group: str) -> dict[int, int]:
    return {tp[1]: one.offset for tp, one in (await stage.admin.groups.offsets(group)).items()}


async def join_as_connect_does(stage: Stage, group: str) -> None:
    """Join a group as one member whose protocol type is not that of consumers."""
    fields = {
        "group_id": group,
        "session_timeout": 30_000,
        "rebalance_timeout": 30_000,
        "protocol_type": "connect",
        "protocols": ({"name": "sessioned", "metadata": b""},),
    }
    router = stage.admin.groups._router
    _, answer = await router.ask_coordinator(group, ApiKey.JOIN_GROUP, lambda told: 0, member_id="", **fields)
    await router.ask_coordinator(group, ApiKey.JOIN_GROUP, lambda told: 0, member_id=answer.member_id, **fields)


def test_resetting_all_groups_and_topics_resets_everything_that_consumer_groups_committed() -> None:
    async def work(stage: Stage) -> None:
        await make_two_groups(stage)
        plans = await make_plans(stage.admin, ResetRequest(None, rule=LATEST))
        assert {name: [(one.partition, one.before, one.after) for one in plan] for name, plan in plans.items()} == {
            "one": [(0, 1, 4)],
            "two": [(1, 2, 4)],
        }
        assert (await committed(stage, "one"), await committed(stage, "two")) == ({0: 1}, {1: 2})
        await require_empty(stage.admin, plans)
        await carry_out_plans(stage.admin, plans)
        assert (await committed(stage, "one"), await committed(stage, "two")) == ({0: 4}, {1: 4})

    play(work)


def test_resetting_all_groups_resets_the_named_topics_in_each_consumer_group() -> None:
    async def work(stage: Stage) -> None:
        await make_two_groups(stage)
        await join_as_connect_does(stage, "workers")
        assert [group.group_id for group in await stage.admin.groups.list()] == ["one", "two", "workers"]
        plans = await make_plans(stage.admin, ResetRequest(None, topics=["t:0"], rule=EARLIEST))
        assert {name: [(one.before, one.after) for one in plan] for name, plan in plans.items()} == {
            "one": [(1, 0)],
            "two": [(None, 0)],
        }

    play(work)


def test_an_offset_reset_skips_a_group_without_commits_with_all_groups_and_refuses_it_by_name() -> None:
    async def work(stage: Stage) -> None:
        await make_two_groups(stage)
        await stage.admin.groups.delete_offsets("two", [("t", 1)])
        settings = {"group_id": "new", "auto_offset_reset": "earliest", "enable_auto_commit": False}
        seam = stage.cluster.world.node("reader")
        async with Consumer(bootstrap_servers=stage.bootstrap_servers, seam=seam, **settings) as consumer:
            await consumer.subscribe(["t"])
            await consumer.poll(timeout_ms=10_000)
            plans = await make_plans(stage.admin, ResetRequest(None, rule=EARLIEST))
            assert list(plans) == ["one"]
            await require_empty(stage.admin, plans)
        with pytest.raises(CommandFailed, match="group new has committed nothing"):
            await make_plans(stage.admin, ResetRequest(("one", "new"), rule=EARLIEST))

    play(work)


def test_an_offset_reset_of_groups_with_members_names_all_of_them_and_changes_none() -> None:
    async def work(stage: Stage) -> None:
        await make_two_groups(stage)
        await stage.admin.groups.alter_offsets("three", {("t", 0): 3})
        world, servers = stage.cluster.world, stage.bootstrap_servers
        plans = await make_plans(stage.admin, ResetRequest(None, rule=EARLIEST))
        async with Consumer(bootstrap_servers=servers, seam=world.node("a"), group_id="two") as first:
            await first.subscribe(["t"])
            await first.poll(timeout_ms=1_000)
            with pytest.raises(CommandFailed, match=r"^group two \(1\) has active members: stop them first; nothing"):
                await require_empty(stage.admin, plans)
            async with Consumer(bootstrap_servers=servers, seam=world.node("b"), group_id="one") as second:
                await second.subscribe(["t"])
                await second.poll(timeout_ms=1_000)
                with pytest.raises(CommandFailed, match=r"^groups one \(1\), two \(1\) have active members"):
                    await require_empty(stage.admin, plans)

    play(work)


def test_a_reset_reports_a_group_that_gains_a_member_and_changes_the_others() -> None:
    async def work(stage: Stage) -> None:
        await make_two_groups(stage)
        plans = await make_plans(stage.admin, ResetRequest(None, rule=EARLIEST))
        await require_empty(stage.admin, plans)
        seam = stage.cluster.world.node("reader")
        async with Consumer(bootstrap_servers=stage.bootstrap_servers, seam=seam, group_id="one") as consumer:
            await consumer.subscribe(["t"])
            await consumer.poll(timeout_ms=1_000)
            refused, done = await carry_out_plans(stage.admin, plans)
        assert (refused.name, refused.value) == ("one", None)
        assert re.search("group one, t-0: .*active members: stop them first", str(refused.problem))
        assert (done.name, done.value, done.problem) == ("two", plans["two"], None)
        assert await committed(stage, "two") == {1: 0}

    play(work)


def test_a_reset_reports_each_group_whose_coordinator_does_not_respond() -> None:
    async def work(stage: Stage) -> None:
        await make_two_groups(stage)
        plans = await make_plans(stage.admin, ResetRequest(None, rule=EARLIEST))
        for broker in (1, 2):
            stage.cluster.crash(broker, lose_power=False, is_noticed=True)
        outcomes = await carry_out_plans(stage.admin, plans)
        assert [one.name for one in outcomes] == ["one", "two"]
        for one in outcomes:
            assert one.problem is not None
            assert one.problem.code == 3
            assert re.match(
                f"group {one.name}: .*; kraft groups describe shows whether its offsets have changed", str(one.problem)
            )

    play(work, timeout_ms=3_000)


def test_a_reset_of_several_groups_requests_topic_offsets_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(stage: Stage) -> None:
        await make_two_groups(stage)
        asked: list[str] = []
        for room, name in ((stage.admin.topics, "describe"), (stage.admin.partitions, "offsets")):
            monkeypatch.setattr(room, name, partial(note, asked, name, getattr(room, name)))
        await make_plans(stage.admin, ResetRequest(None, topics=["t"], rule=EARLIEST))
        # start offset, end offset, and offset by time
        assert sorted(asked) == ["describe", "offsets", "offsets", "offsets"]

    play(work)


async def note(asked: list[str], name: str, ask: Callable[..., Awaitable[Any]], *args: Any) -> Any:
    asked.append(name)
    return await ask(*args)


def test_a_reset_plan_file_applies_to_existing_groups_only() -> None:
    async def work(stage: Stage) -> None:
        await make_two_groups(stage)
        wanted = ResetRequest(None, rows=[(None, "t", 0, 2), ("two", "t", 1, 3)])
        plans = await make_plans(stage.admin, wanted)
        assert {name: [(one.partition, one.after) for one in plan] for name, plan in plans.items()} == {
            "one": [(0, 2)],
            "two": [(0, 2), (1, 3)],
        }
        assert list(await make_plans(stage.admin, ResetRequest(None, rows=[("two", "t", 1, 3)]))) == ["two"]
        with pytest.raises(CommandFailed, match="lines for groups that are not there: owt; name groups") as refused:
            await make_plans(stage.admin, ResetRequest(None, rows=[("two", "t", 1, 3), ("owt", "t", 1, 3)]))
        assert refused.value.code == 4

    play(work)
