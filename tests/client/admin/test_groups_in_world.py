"""Consumer groups through the admin client, with coordinators in the simulated world."""

from __future__ import annotations

import pytest

from kraft.client import Consumer, KafkaError
from kraft.client.admin import CommittedOffset, NewTopic
from kraft.client.admin.reset import ResetRule, ResetTo, carry_out, plan_reset
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.stages.admin_client import Stage, play


async def prepare(stage: Stage) -> None:
    await stage.admin.topics.create(NewTopic("t", 2))
    await stage.produce("t", {1_000: 0, 2_000: 1, 3_000: 2, 4_000: 3})


def test_altering_offsets_of_an_unknown_group_creates_the_group() -> None:
    async def work(stage: Stage) -> None:
        await prepare(stage)
        groups = stage.admin.groups
        assert await groups.offsets("g") == {}
        await groups.alter_offsets("g", {("t", 0): 3, ("t", 1): CommittedOffset(0, metadata="note")})
        committed = await groups.offsets("g")
        assert {tp: one.offset for tp, one in committed.items()} == {("t", 0): 3, ("t", 1): 0}
        assert committed[("t", 1)].metadata == "note"
        assert [(group.group_id, group.state) for group in await groups.list()] == [("g", "Empty")]
        described = await groups.describe("g")
        assert (described.state, described.members) == ("Empty", ())

    play(work)


def test_a_group_with_an_empty_id_can_be_deleted_but_not_created() -> None:
    async def work(stage: Stage) -> None:
        await prepare(stage)
        groups = stage.admin.groups
        with pytest.raises(KafkaError, match="the name of the group is empty") as refused:
            await groups.alter_offsets("", {("t", 0): 3})
        assert refused.value.code is ErrorCode.INVALID_GROUP_ID
        assert await groups.list() == ()
        for verb in (groups.describe, groups.delete):
            with pytest.raises(KafkaError, match="group '': ") as missing:
                await verb("")
            assert missing.value.code is ErrorCode.GROUP_ID_NOT_FOUND
        topics = [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 3}]}]
        fields = {"group_id": "", "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics}
        # as clients of old Kafka releases do
        await groups._router.ask_coordinator("", ApiKey.OFFSET_COMMIT, lambda told: 0, **fields)
        assert [group.group_id for group in await groups.list()] == [""]
        assert {tp: one.offset for tp, one in (await groups.offsets("")).items()} == {("t", 0): 3}
        await groups.delete("")
        assert await groups.list() == ()

    play(work)


def test_an_offset_reset_is_planned_without_changes_and_then_carried_out() -> None:
    async def work(stage: Stage) -> None:
        await prepare(stage)
        await stage.admin.groups.alter_offsets("g", {("t", 0): 3})
        rules = {("t", 0): ResetRule(ResetTo.SHIFT, -2), ("t", 1): ResetRule(ResetTo.LATEST)}
        plan = await plan_reset(stage.admin, "g", rules)
        assert [(one.before, one.after, one.is_change) for one in plan] == [(3, 1, True), (None, 0, True)]
        assert (await stage.admin.groups.offsets("g"))[("t", 0)].offset == 3
        await carry_out(stage.admin, "g", plan)
        by_time = await plan_reset(stage.admin, "g", {("t", 0): ResetRule(ResetTo.TIME, 2_500)})
        assert [(one.before, one.after, one.is_clamped) for one in by_time] == [(1, 2, False)]
        (far,) = await plan_reset(stage.admin, "g", {("t", 1): ResetRule(ResetTo.OFFSET, 99)})
        assert (far.after, far.is_clamped) == (0, True)

    play(work)


def test_a_group_with_a_member_rejects_deletion_and_offset_changes() -> None:
    async def work(stage: Stage) -> None:
        await prepare(stage)
        seam = stage.cluster.world.node("reader")
        settings = {"group_id": "g", "client_id": "me", "auto_offset_reset": "earliest"}
        async with Consumer(bootstrap_servers=stage.bootstrap_servers, seam=seam, **settings) as consumer:
            await consumer.subscribe(["t"])
            assert await consumer.poll()
            groups = stage.admin.groups
            described = await groups.describe("g")
            assert (described.state, described.protocol_type) == ("Stable", "consumer")
            (member,) = described.members
            assert (member.client_id, member.assignment) == ("me", (("t", 0), ("t", 1)))
            with pytest.raises(KafkaError) as refused:
                await groups.delete("g")
            assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
            with pytest.raises(KafkaError, match="group g, t-0") as commit:
                await groups.alter_offsets("g", {("t", 0): 0})
            assert commit.value.code is ErrorCode.UNKNOWN_MEMBER_ID
            with pytest.raises(KafkaError) as subscribed:
                await groups.delete_offsets("g", [("t", 0)])
            assert subscribed.value.code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC

    play(work)


def test_admin_deletes_group_offsets_and_groups() -> None:
    async def work(stage: Stage) -> None:
        await prepare(stage)
        groups = stage.admin.groups
        await groups.alter_offsets("g", {("t", 0): 3, ("t", 1): 0})
        await groups.delete_offsets("g", [("t", 1)])
        assert list(await groups.offsets("g")) == [("t", 0)]
        await groups.delete("g")
        assert await groups.list() == ()
        for call in (groups.describe("g"), groups.delete("g")):
            with pytest.raises(KafkaError) as missing:
                await call
            assert missing.value.code is ErrorCode.GROUP_ID_NOT_FOUND

    play(work)


def test_group_requests_follow_a_coordinator_that_moved() -> None:
    async def work(stage: Stage) -> None:
        await prepare(stage)
        await stage.admin.groups.alter_offsets("g", {("t", 0): 3})
        coordinator = (await stage.admin.groups.describe("g")).coordinator
        stage.cluster.crash(coordinator, lose_power=False, is_noticed=True)
        assert (await stage.admin.groups.offsets("g"))[("t", 0)].offset == 3
        assert (await stage.admin.groups.describe("g")).coordinator != coordinator

    play(work)


def test_a_request_to_all_brokers_returns_the_responses_of_the_live_brokers() -> None:
    async def work(stage: Stage) -> None:
        await prepare(stage)
        assert [one.broker for one in await stage.admin.nodes.log_dirs()] == [1, 2]
        stage.cluster.crash(2, lose_power=False, is_noticed=True)
        assert [one.broker for one in await stage.admin.nodes.log_dirs()] == [1]
        await stage.admin.groups.list()
        with pytest.raises(KafkaError, match=r"broker 2 is not there, or not up \(up: 1\)"):
            await stage.admin.nodes.log_dirs([2])

    play(work)


def test_admin_describes_log_directories_and_producers() -> None:
    async def work(stage: Stage) -> None:
        await prepare(stage)
        found = await stage.admin.nodes.log_dirs()
        assert [one.broker for one in found] == [1, 2]
        replicas = {(one.broker, part.topic, part.partition): part for one in found for part in one.replicas}
        assert replicas[(1, "t", 0)].size_bytes == replicas[(2, "t", 0)].size_bytes > 0
        assert [one.broker for one in await stage.admin.nodes.log_dirs([2])] == [2]
        states = await stage.admin.partitions.producers([("t", 0), ("t", 1)])
        assert [state.last_sequence for state in states[("t", 0)]] == [3]
        assert states[("t", 1)] == ()

    play(work)
