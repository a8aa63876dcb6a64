"""`kraft groups` on share groups: what it prints, resets, and refuses."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.client.admin import NewTopic
from kraft.client.admin.group_lag import SharePartitionLag, find_share_lags
from kraft.client.admin.reset import ResetRule, ResetTo
from kraft.client.admin.values import GroupDescription, GroupMember
from kraft.deploy.cli.groups.descriptions import json_of, member_table, text_of
from kraft.deploy.cli.groups.group_verbs import _require_whole_topics
from kraft.deploy.cli.groups.offset_resets import ResetRequest, carry_out_plans, make_plans, require_empty
from kraft.deploy.cli.output import CommandFailed
from tests.client.admin.share_reader import ShareReader, make_share_group
from tests.stages.admin_client import Stage, play

FIRST = GroupMember("m-1", None, "me", "/h", (("t", 0), ("t", 1)), epoch=4)
SECOND = GroupMember("m-2", None, "me", "/h", (("t", 1),), epoch=4)
SHARED = GroupDescription("s", "Stable", "Share", "share", "simple", 1, (FIRST, SECOND), 5, 4)
LAGS = [SharePartitionLag("t", 0, 7, 3, (FIRST,)), SharePartitionLag("t", 1, None, None, (FIRST, SECOND))]


def test_a_share_group_is_shown_with_start_offsets_and_all_readers_of_a_partition() -> None:
    head, columns, *rows = text_of(SHARED, LAGS).splitlines()
    assert "type Share" in head
    assert "total lag 3" in head
    assert columns.split() == ["TOPIC", "PARTITION", "START", "OFFSET", "LAG", "MEMBERS"]
    assert [row.split() for row in rows] == [["t", "0", "7", "3", "m-1"], ["t", "1", "-", "-", "m-1,m-2"]]
    found: Any = json_of(SHARED, LAGS)
    assert found["lag"] == 3
    assert found["partitions"][0] == {"topic": "t", "partition": 0, "start_offset": 7, "lag": 3, "members": ["m-1"]}


def test_members_of_a_share_group_are_shown_with_an_epoch_and_without_a_target() -> None:
    columns, rows = member_table(SHARED)
    assert columns[-1] == "epoch"
    assert rows[1] == ("m-2", None, "me", "/h", 1, ["t-1"], 4)


def test_a_reset_of_all_topics_resets_the_partitions_of_an_empty_share_group() -> None:
    async def work(stage: Stage) -> None:
        await stage.admin.topics.create(NewTopic("t", 1))
        await stage.produce("t", {1_000: 0, 2_000: 1})
        await make_share_group(stage.admin, "s", "t", partitions=1)
        plans = await make_plans(stage.admin, ResetRequest(("s",), rule=ResetRule(ResetTo.EARLIEST)))
        assert [(one.before, one.after) for one in plans["s"]] == [(None, 0)]
        await require_empty(stage.admin, plans)
        await carry_out_plans(stage.admin, plans)
        (lag,) = await find_share_lags(stage.admin, await stage.admin.groups.describe("s"))
        assert (lag.start_offset, lag.lag) == (0, 2)

    play(work)


def test_a_reset_of_a_share_group_with_a_member_is_refused() -> None:
    async def work(stage: Stage) -> None:
        await stage.admin.topics.create(NewTopic("t", 1))
        await ShareReader(stage.admin, "s").join("t", partitions=1)
        plans = await make_plans(stage.admin, ResetRequest(("s",), ["t"], ResetRule(ResetTo.EARLIEST)))
        with pytest.raises(CommandFailed, match=r"^group s \(1\) has active members: stop them first"):
            await require_empty(stage.admin, plans)

    play(work)


def test_a_reset_of_all_groups_leaves_share_groups_alone() -> None:
    async def work(stage: Stage) -> None:
        await stage.admin.topics.create(NewTopic("t", 1))
        await make_share_group(stage.admin, "s", "t", partitions=1)
        await stage.admin.groups.alter_offsets("c", {("t", 0): 0})
        assert list(await make_plans(stage.admin, ResetRequest(None, rule=ResetRule(ResetTo.LATEST)))) == ["c"]

    play(work)


def test_the_offsets_of_single_partitions_of_a_share_group_cannot_be_deleted() -> None:
    _require_whole_topics(["t", "u"])
    with pytest.raises(CommandFailed, match="--topic t:0: the offsets of a share group are deleted by topic"):
        _require_whole_topics(["u", "t:0"])
