"""Share groups (KIP-932) through the admin client, with coordinators in the simulated world."""

from __future__ import annotations

import pytest

from kraft.client import KafkaError
from kraft.client.admin import NewTopic, ShareOffset
from kraft.client.admin.group_lag import find_share_lags
from kraft.client.admin.reset import ResetRule, ResetTo, carry_out, plan_reset
from kraft.wire.error_codes import ErrorCode
from tests.client.admin.share_reader import ShareReader, make_share_group
from tests.stages.admin_client import Stage, play


async def prepare(stage: Stage) -> None:
    """Create the topic `t` with four records in partition 0."""
    await stage.admin.topics.create(NewTopic("t", 2))
    await stage.produce("t", {1_000: 0, 2_000: 1, 3_000: 2, 4_000: 3})


def test_a_share_group_is_listed_and_described_with_its_members() -> None:
    async def work(stage: Stage) -> None:
        await prepare(stage)
        await ShareReader(stage.admin, "s").join("t", partitions=2)
        (listed,) = await stage.admin.groups.list()
        assert (listed.group_id, listed.type, listed.state) == ("s", "Share", "Stable")
        assert await stage.admin.groups.list(types=["share"]) == (listed,)
        assert await stage.admin.groups.list(types=["consumer"]) == ()
        described = await stage.admin.groups.describe("s")
        assert (described.type, described.state, described.assignor) == ("Share", "Stable", "simple")
        (member,) = described.members
        assert (member.member_id, member.assignment, member.subscribed) == ("m-1", (("t", 0), ("t", 1)), ("t",))
        assert (member.epoch, member.target, member.instance_id) == (described.epoch, None, None)
        lags = await find_share_lags(stage.admin, described)
        assert [(one.partition, one.start_offset, one.lag, one.members) for one in lags] == [
            (0, None, None, (member,)),
            (1, None, None, (member,)),
        ]

    play(work)


def test_a_share_groups_offsets_are_set_while_it_is_empty() -> None:
    async def work(stage: Stage) -> None:
        await prepare(stage)
        reader = ShareReader(stage.admin, "s")
        await reader.join("t", partitions=2)
        with pytest.raises(KafkaError, match=r"group s: .*has 1 members") as refused:
            await stage.admin.share_groups.alter_offsets("s", {("t", 0): 1})
        assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
        await reader.leave()
        await stage.admin.share_groups.alter_offsets("s", {("t", 0): 1})
        found = await stage.admin.share_groups.offsets("s")
        assert found == {("t", 0): ShareOffset(1, 3), ("t", 1): ShareOffset(None, None)}
        with pytest.raises(KafkaError, match="group s, t-7") as unknown:
            await stage.admin.share_groups.alter_offsets("s", {("t", 7): 1})
        assert unknown.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    play(work)


@pytest.mark.parametrize(
    ("rule", "offset"),
    [
        (ResetRule(ResetTo.EARLIEST), 0),
        (ResetRule(ResetTo.LATEST), 4),
        (ResetRule(ResetTo.TIME, 2_500), 2),
        (ResetRule(ResetTo.SHIFT, -1), 2),
    ],
    ids=lambda one: one.to.value if isinstance(one, ResetRule) else str(one),
)
def test_a_share_groups_reset_is_planned_and_carried_out_as_that_of_any_group(rule: ResetRule, offset: int) -> None:
    async def work(stage: Stage) -> None:
        await prepare(stage)
        await make_share_group(stage.admin, "s", "t", partitions=2)
        await stage.admin.share_groups.alter_offsets("s", {("t", 0): 3})
        plan = await plan_reset(stage.admin, "s", {("t", 0): rule})
        assert [(one.before, one.after) for one in plan] == [(3, offset)]
        assert (await stage.admin.share_groups.offsets("s"))[("t", 0)] == ShareOffset(3, 1)
        await carry_out(stage.admin, "s", plan)
        assert (await stage.admin.share_groups.offsets("s"))[("t", 0)] == ShareOffset(offset, 4 - offset)

    play(work)


def test_a_share_groups_offsets_are_deleted_by_topic() -> None:
    async def work(stage: Stage) -> None:
        await prepare(stage)
        await stage.admin.topics.create(NewTopic("u", 1))
        await make_share_group(stage.admin, "s", "t", "u", partitions=3)
        await stage.admin.share_groups.delete_offsets("s", ["t"])
        assert list(await stage.admin.share_groups.offsets("s")) == [("u", 0)]
        with pytest.raises(KafkaError, match="group s, t: There is no offset information to delete") as refused:
            await stage.admin.share_groups.delete_offsets("s", ["t"])
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    play(work)


def test_a_share_group_is_deleted_once_it_is_empty() -> None:
    async def work(stage: Stage) -> None:
        await prepare(stage)
        reader = ShareReader(stage.admin, "s")
        await reader.join("t", partitions=2)
        with pytest.raises(KafkaError) as refused:
            await stage.admin.groups.delete("s")
        assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
        await reader.leave()
        await stage.admin.groups.delete("s")
        assert await stage.admin.groups.list() == ()
        for call in (stage.admin.groups.describe("s"), stage.admin.share_groups.offsets("s")):
            with pytest.raises(KafkaError) as missing:
                await call
            assert missing.value.code is ErrorCode.GROUP_ID_NOT_FOUND

    play(work)
