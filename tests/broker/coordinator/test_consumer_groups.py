"""Consumer groups (KIP-848) in a simulated cluster, as clients and administrators see them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kraft.broker.consumer_group import targets
from kraft.broker.coordinator.group_coordinators import has_other_partitions
from kraft.broker.serving.gates import Operation, ResourceType
from kraft.image import ImageDelta, events, replay
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.broker.coordinator.consumer import LEAVES_FOR_A_WHILE, ConsumerMember
from tests.broker.coordinator.member import WITH_TOPIC_IDS, Member
from tests.broker.coordinator.test_apis import deny
from tests.stages.admin_requests import altered, feature_update
from tests.stages.images import ORDERS, image_of, orders, three_brokers

GROUP, SET = 32, 0
RUNTIME = "group-coordinator-metrics"
QUICK = {"group_consumer_min_session_timeout_ms": "1000", "group_consumer_min_heartbeat_interval_ms": "100"}


async def described(member: Member, group: str = "g") -> Any:
    reply = await member.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=[group], include_authorized_operations=False)
    (row,) = reply.groups
    return row


async def listed(member: Member, **filters: Any) -> list[tuple[str, str, str, str]]:
    fields = {"states_filter": [], "types_filter": [], **filters}
    reply = await member.ask(ApiKey.LIST_GROUPS, **fields)
    assert reply.error_code == ErrorCode.NONE
    return [(row.group_id, row.group_state, row.group_type, row.protocol_type) for row in reply.groups]


def test_two_members_share_the_partitions_and_one_takes_over_when_the_other_leaves(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        first, second = ConsumerMember(member, "a"), ConsumerMember(member, "b")
        await first.join("orders")
        await first.settle(2)
        await second.join("orders")
        await first.settle(1)
        await first.beat()
        await second.settle(1)
        topic_id = await member.topic_id("orders")
        assert sorted(first.owned[topic_id] + second.owned[topic_id]) == [0, 1]
        row = await described(member)
        assert (row.error_code, row.group_state, row.assignor_name) == (ErrorCode.NONE, "Stable", "uniform")
        assert [one.member_id for one in row.members] == ["a", "b"]
        assert {one.topic_name for found in row.members for one in found.assignment.topic_partitions} == {"orders"}
        await second.leave()
        await first.settle(2)

    run(test)


def test_a_group_is_listed_and_described_by_its_type(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        classic = Member(world, cluster, world.node("classic"), "h")
        await classic.settle()
        consumer = ConsumerMember(member, "a")
        await consumer.join("orders")
        mine = ("g", "Stable", "consumer", "consumer")
        assert await listed(member, types_filter=["Consumer"]) == [mine]
        assert mine in await listed(member, states_filter=["stable"])
        assert mine not in await listed(member, types_filter=["classic"])
        assert await listed(classic, types_filter=["classic"]) == [("h", "Stable", "classic", "consumer")]
        (row,) = (await member.ask(ApiKey.DESCRIBE_GROUPS, groups=["g"])).groups
        assert (row.error_code, row.error_message, row.group_state) == (
            ErrorCode.GROUP_ID_NOT_FOUND,
            "Group g is not a classic group.",
            "Dead",
        )
        (row,) = (await member.ask(ApiKey.DESCRIBE_GROUPS, 5, groups=["g"])).groups
        assert (row.error_code, row.group_state) == (ErrorCode.NONE, "Dead")
        row = await described(classic, "h")
        assert (row.error_code, row.error_message) == (
            ErrorCode.GROUP_ID_NOT_FOUND,
            "Group h is not a consumer group.",
        )
        row = await described(member, "none")
        assert row.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NOT_COORDINATOR)

    run(test)


def test_a_member_that_sends_no_heartbeat_is_removed_after_the_session_timeout_of_its_group(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        session, interval = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
        resource = altered(GROUP, "g", (session, SET, "2000"), (interval, SET, "200"))
        reply = await member.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
        assert reply.responses[0].error_code == ErrorCode.NONE
        await world.sleep_ms(200)
        silent, living = ConsumerMember(member, "a"), ConsumerMember(member, "b")
        assert (await silent.join("orders")).heartbeat_interval == messages.duration(200)
        for _ in range(20):
            await (living.beat() if living.epoch else living.join("orders"))
            await world.sleep_ms(200)
        assert [one.member_id for one in (await described(member)).members] == ["b"]
        await living.settle(2)
        assert (await silent.beat()).error_code == ErrorCode.UNKNOWN_MEMBER_ID

    run(test, **QUICK)


def test_members_get_the_partitions_of_a_topic_that_is_created_or_grown_later(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        consumer = ConsumerMember(member, "a")
        await consumer.join("orders", "later")
        await consumer.settle(2)
        rows = [{"name": "later", "num_partitions": 3, "replication_factor": 3}]
        await member.ask(ApiKey.CREATE_TOPICS, 7, topics=rows, timeout=messages.duration(10_000))
        await world.sleep_ms(200)
        await consumer.settle(5)
        grown = [{"name": "orders", "count": 4, "assignments": None}]
        await member.ask(ApiKey.CREATE_PARTITIONS, 3, topics=grown, timeout=messages.duration(10_000))
        await world.sleep_ms(200)
        await consumer.settle(7)

    run(test)


def test_shards_get_the_topics_of_an_image_only_if_a_topic_was_created_deleted_or_grown() -> None:
    before = image_of(*three_brokers(), *orders())
    users, new_id = UUID(int=5), UUID(int=6)
    partition = events.Partition(ORDERS, 3, (1, 2, 3), (1, 2, 3), leader=1, leader_epoch=1)
    first = events.Partition(users, 0, (1, 2, 3), (1, 2, 3), leader=1, leader_epoch=1)
    again = events.Partition(new_id, 0, (1, 2, 3), (1, 2, 3), leader=1, leader_epoch=1)
    for changes, expected in (
        ([events.PartitionChange(ORDERS, 0, isr=(1,))], False),
        ([events.Config(2, "orders", "retention.ms", "1")], False),
        ([partition], True),
        ([events.Topic("users", users), first], True),
        ([events.RemoveTopic(ORDERS)], True),
        ([events.RemoveTopic(ORDERS), events.Topic("orders", new_id), again], True),
    ):
        after = replay(before, changes, 200, 1)
        delta = ImageDelta.between(before, after)
        assert has_other_partitions(before.topics, after.topics, delta) is expected, changes


def test_offsets_are_committed_and_fetched_with_the_members_epoch_and_topic_ids(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        consumer = ConsumerMember(member, "a")
        await consumer.join("orders")
        await consumer.settle(2)
        topic_id = await member.topic_id("orders")

        async def commit(member_id: str, epoch: int, offset: int, version: int = WITH_TOPIC_IDS) -> ErrorCode:
            row = {"partitions": [{"partition_index": 0, "committed_offset": offset}]}
            row |= {"topic_id": topic_id} if version >= WITH_TOPIC_IDS else {"name": "orders"}
            fields = {"group_id": "g", "member_id": member_id, "generation_id_or_member_epoch": epoch, "topics": [row]}
            reply = await member.ask(ApiKey.OFFSET_COMMIT, version, **fields)
            return ErrorCode(int(reply.topics[0].partitions[0].error_code))

        async def fetch(member_id: str | None, epoch: int) -> tuple[ErrorCode, int | None]:
            group = {"group_id": "g", "member_id": member_id, "member_epoch": epoch}
            group["topics"] = [{"topic_id": topic_id, "partition_indexes": [0]}]
            reply = await member.ask(ApiKey.OFFSET_FETCH, WITH_TOPIC_IDS, groups=[group], require_stable=True)
            (found,) = reply.groups
            offset = found.topics[0].partitions[0].committed_offset if found.topics else None
            return ErrorCode(int(found.error_code)), offset

        assert await commit("a", consumer.epoch, 5) is ErrorCode.NONE
        assert await commit("a", consumer.epoch, 6, version=9) is ErrorCode.NONE
        assert await commit("a", consumer.epoch, 7, version=8) is ErrorCode.UNSUPPORTED_VERSION
        assert await commit("a", consumer.epoch + 1, 7) is ErrorCode.STALE_MEMBER_EPOCH
        assert await commit("b", consumer.epoch, 7) is ErrorCode.UNKNOWN_MEMBER_ID
        assert await commit("", -1, 7) is ErrorCode.UNKNOWN_MEMBER_ID
        assert await fetch("a", consumer.epoch) == (ErrorCode.NONE, 6)
        assert await fetch("a", consumer.epoch + 1) == (ErrorCode.STALE_MEMBER_EPOCH, None)
        assert await fetch("b", consumer.epoch) == (ErrorCode.UNKNOWN_MEMBER_ID, None)
        assert await fetch(None, -1) == (ErrorCode.NONE, 6)

    run(test)


def test_a_consumer_group_is_deleted_only_when_it_has_no_members(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        consumer = ConsumerMember(member, "a")
        await consumer.join("orders")

        async def delete() -> ErrorCode:
            (row,) = (await member.ask(ApiKey.DELETE_GROUPS, groups_names=["g"])).results
            return ErrorCode(int(row.error_code))

        assert await delete() is ErrorCode.NON_EMPTY_GROUP
        await consumer.leave()
        assert (await described(member)).group_state == "Empty"
        assert await delete() is ErrorCode.NONE
        assert await delete() is ErrorCode.GROUP_ID_NOT_FOUND
        assert await listed(member) == []

    run(test)


def test_the_members_and_their_partitions_survive_a_crash_of_the_coordinator(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        consumer, static = ConsumerMember(member, "a"), ConsumerMember(member, "s")
        await consumer.join("orders")
        await static.join("orders", instance_id="one")
        await consumer.settle(1)
        await consumer.beat()
        await static.settle(1)
        await static.leave(LEAVES_FOR_A_WHILE)
        before = await described(member)
        world.kill(cluster.name(member.broker))
        after = await _described_elsewhere(world, cluster)
        assert after.group_epoch == before.group_epoch
        assert after.members == before.members

    run(test)


async def _described_elsewhere(world: Any, cluster: Any) -> Any:
    """Return the description from the next coordinator."""
    successor = Member(world, cluster, world.node("successor"))
    for _ in range(300):
        await successor.find()
        row = await described(successor)
        if row.error_code == ErrorCode.NONE:
            return row
        await world.sleep_ms(50)
    raise AssertionError("no broker describes the group")


def test_a_lowered_group_version_ends_heartbeats_but_keeps_the_groups(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        consumer = ConsumerMember(member, "a")
        await consumer.join("orders")
        for level, upgrade_type, error in ((0, 2, ErrorCode.UNSUPPORTED_VERSION), (1, 1, ErrorCode.NONE)):
            updates = [feature_update("group.version", level, upgrade_type)]
            fields = {"timeout": messages.duration(10_000), "feature_updates": updates, "validate_only": False}
            assert (await member.ask(ApiKey.UPDATE_FEATURES, 2, **fields)).error_code == ErrorCode.NONE
            await world.sleep_ms(200)
            assert (await consumer.beat()).error_code == error
        assert (await described(member)).members[0].member_id == "a"

    run(test)


def test_an_expression_matches_only_topics_that_the_member_may_describe(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        deny(cluster, (Operation.DESCRIBE, ResourceType.TOPIC, "others"))
        consumer = ConsumerMember(member, "a")
        await consumer.join(subscribed_topic_regex="o.*")
        await consumer.settle(2)
        assert list(consumer.owned) == [await member.topic_id("orders")]
        row = await described(member)
        assert (row.error_code, row.members[0].subscribed_topic_regex) == (ErrorCode.NONE, "o.*")

    run(test, topics=("orders", "others"))


@pytest.mark.parametrize("is_held", [False, True], ids=["at-once", "after-waiting-for-the-log"])
def test_a_failing_assignor_fails_the_heartbeat_and_nothing_else(
    run: Any, monkeypatch: pytest.MonkeyPatch, is_held: bool
) -> None:
    def fail(*_: Any) -> Any:
        raise ZeroDivisionError("assignor")

    async def test(world: Any, cluster: Any, member: Member) -> None:
        consumer = ConsumerMember(member, "a")
        await consumer.join("orders")
        await consumer.leave()
        with monkeypatch.context() as patched:
            patched.setattr(targets, "ASSIGNORS", {"uniform": fail, "range": fail})
            if is_held:
                cluster.node(member.broker).broker.broker.groups.partition_of("g").hold_appends()
            refused = await consumer.join("orders")
        assert refused.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert (await described(member)).members == ()
        await consumer.join("orders")
        await consumer.settle(2)

    run(test)


def test_the_metrics_of_consumer_groups_follow_their_members(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        consumer, other = ConsumerMember(member, "a"), ConsumerMember(member, "b")
        await member.find()
        metrics = cluster.node(member.broker).metrics

        def value(name: str, **tags: str) -> float:
            return metrics.value("kafka.coordinator.group", RUNTIME, name, **tags) or 0

        def states() -> dict[str, float]:
            names = ("empty", "assigning", "reconciling", "stable")
            return {name: count for name in names if (count := value("consumer-group-count", state=name))}

        assert states() == {}
        await consumer.join("orders")
        await consumer.settle(2)
        assert (value("group-count", protocol="consumer"), value("group-count", protocol="classic")) == (1, 0)
        assert states() == {"stable": 1}
        rebalances = value("consumer-group-rebalance-count")
        assert rebalances >= 1
        await other.join("orders")
        assert states() == {"reconciling": 1}
        assert value("consumer-group-rebalance-count") == rebalances + 1
        await world.sleep_ms(2_000)
        assert value("consumer-group-rebalance-rate") > 0
        await consumer.leave()
        await other.leave()
        assert states() == {"empty": 1}
        assert value("group-completed-rebalance-count") == 0

    run(test)


@pytest.mark.parametrize("version", range(2))
def test_both_versions_of_a_heartbeat_join_a_group(run: Any, version: int) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        fields = {
            "group_id": "g",
            "member_id": "m" if version else "",
            "member_epoch": 0,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout": messages.duration(30_000),
            "subscribed_topic_names": ["orders"],
            "server_assignor": "range",
            "topic_partitions": [],
        }
        reply = await member.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, **fields)
        assert reply.error_code == ErrorCode.NONE
        assert reply.member_id
        (row,) = reply.assignment.topic_partitions
        assert row.partitions == (0, 1)

    run(test)
