"""The group APIs as clients see them: every version, every error of the handlers, and the internal topic."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kraft.broker.serving.gates import Operation, Resource, ResourceType
from kraft.broker.serving.session import Session
from kraft.image import events, replay
from kraft.wire import messages
from kraft.wire.api_keys import BROKER_APIS, ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.broker.coordinator.member import NEWEST, WITH_TOPIC_IDS, Member

OFFSETS_TOPIC = "__consumer_offsets"


def versions(key: ApiKey) -> range:
    return range(BROKER_APIS[key].min, BROKER_APIS[key].max + 1)


# FindCoordinator and the internal topic


def test_the_first_find_coordinator_request_creates_the_offsets_topic(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        client = await cluster.connect(1, member.seam)
        answer = await client.ask(ApiKey.FIND_COORDINATOR, 6, key_type=0, coordinator_keys=["g", "h"])
        assert [row.error_code for row in answer.coordinators] == [0, 0], "it waits until the topic is there"
        assert [row.key for row in answer.coordinators] == ["g", "h"]
        answer = await client.ask(ApiKey.METADATA, 12, topics=[{"name": OFFSETS_TOPIC}])
        (topic,) = answer.topics
        assert (topic.is_internal, len(topic.partitions)) == (True, 7)
        assert all(len(partition.replica_nodes) == 3 for partition in topic.partitions)
        configs = cluster.node(1).broker.broker.dynamic_configs.topic(OFFSETS_TOPIC)
        assert (configs.cleanup_policy, configs.segment_bytes) == ({"compact"}, 104_857_600)

    run(test, offsets_topic_num_partitions="7")


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR))
def test_every_version_of_find_coordinator_names_the_same_broker(run: Any, version: int) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        expected = await member.find()
        for broker_id in cluster.broker_ids:
            client = await cluster.connect(broker_id, member.seam)
            answer = await client.ask(ApiKey.FIND_COORDINATOR, version, key_type=0, coordinator_keys=["g"])
            (found,) = answer.coordinators
            assert (found.error_code, found.node_id, found.port) == (0, expected, 9092)

    run(test)


@pytest.mark.parametrize("key_type", [2, 9])
def test_find_coordinator_for_an_unsupported_key_type_fails_at_once(run: Any, key_type: int) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        client = await cluster.connect(1, member.seam)
        answer = await client.ask(ApiKey.FIND_COORDINATOR, 6, key_type=key_type, coordinator_keys=["t"])
        (found,) = answer.coordinators
        assert (found.error_code, found.node_id) == (ErrorCode.INVALID_REQUEST, -1)
        assert found.error_message

    run(test)


def test_find_coordinator_waits_a_limited_time_for_an_offsets_topic_that_cannot_be_created(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        client = await cluster.connect(1, member.seam)
        answer = await client.ask(ApiKey.FIND_COORDINATOR, 2, key_type=0, coordinator_keys=["g"])
        assert answer.coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    run(test, offsets_topic_replication_factor="4")


def test_adding_partitions_to_the_offsets_topic_is_rejected(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        await member.find()
        client = await cluster.connect(1, member.seam)
        reply = await client.ask(
            ApiKey.CREATE_PARTITIONS,
            3,
            topics=[{"name": OFFSETS_TOPIC, "count": 60, "assignments": None}],
            timeout=5_000,
        )
        assert reply.results[0].error_code == ErrorCode.INVALID_PARTITIONS

    run(test)


def test_group_coordinator_metrics_have_kafkas_names(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        await member.settle()
        await member.commit(1)
        metrics = cluster.node(member.broker).metrics
        found = {row.name: value for row, value in metrics.readings() if row.group == "kafka.coordinator.group"}
        assert (found["NumGroups"], found["NumGroupsStable"], found["NumGroupsEmpty"], found["NumOffsets"]) == (
            1,
            1,
            0,
            1,
        )
        assert found["offset-commit-count"] == 1

    run(test)


# errors in a request itself

ME = {"group_id": "", "generation_id": 1, "member_id": "m"}
JOIN = {"group_id": "g", "session_timeout": 10_000, "rebalance_timeout": 30_000, "protocol_type": "consumer"}
OWN_ERRORS: list[tuple[ApiKey, dict[str, Any], ErrorCode]] = [
    (ApiKey.JOIN_GROUP, {**JOIN, "group_id": ""}, ErrorCode.INVALID_GROUP_ID),
    (ApiKey.JOIN_GROUP, {**JOIN, "session_timeout": 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
    (ApiKey.JOIN_GROUP, {**JOIN, "session_timeout": 2**31 - 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
    (ApiKey.SYNC_GROUP, {**ME, "protocol_type": "consumer", "protocol_name": "range"}, ErrorCode.INVALID_GROUP_ID),
    (ApiKey.SYNC_GROUP, {**ME, "group_id": "g"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    (ApiKey.HEARTBEAT, ME, ErrorCode.INVALID_GROUP_ID),
    (ApiKey.LEAVE_GROUP, {"group_id": "", "members": [{"member_id": "m"}]}, ErrorCode.INVALID_GROUP_ID),
    (ApiKey.OFFSET_DELETE, {"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
]


@pytest.mark.parametrize("is_there", [False, True], ids=["before-the-offsets-topic", "with-the-offsets-topic"])
def test_every_broker_detects_an_invalid_group_request_even_if_it_is_not_the_coordinator(
    run: Any, is_there: bool
) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        if is_there:
            await member.settle()
        for broker_id in cluster.broker_ids:
            client = await cluster.connect(broker_id, member.seam)
            for key, fields, error in OWN_ERRORS:
                answer = await client.ask(key, NEWEST[key], **fields)
                assert ErrorCode(int(answer.error_code)) is error, (broker_id, key.name, fields)
            beat = await client.ask(ApiKey.HEARTBEAT, 4, **{**ME, "group_id": "g"})
            leads = is_there and broker_id == member.broker
            assert beat.error_code == (ErrorCode.UNKNOWN_MEMBER_ID if leads else ErrorCode.NOT_COORDINATOR)

    run(test)


def test_an_empty_offset_commit_is_answered_by_every_broker(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        for broker_id in cluster.broker_ids:
            client = await cluster.connect(broker_id, member.seam)
            fields = {"group_id": "g", "generation_id_or_member_epoch": 5, "member_id": "who"}
            assert (await client.ask(ApiKey.OFFSET_COMMIT, 9, **fields)).topics == ()

    run(test)


# every version


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
def test_a_member_joins_its_group_with_every_version_of_join_group(run: Any, version: int) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        reply = await member.join(version=version)
        assert (reply.error_code, reply.generation_id, reply.leader) == (0, 1, member.member_id)
        assert [one.member_id for one in reply.members] == [member.member_id]
        shards = cluster.node(member.broker).broker.broker.groups.shards.values()
        (group,) = [shard.machine.groups["g"] for shard in shards if shard.machine and "g" in shard.machine.groups]
        assert group.rebalance_timeout_ms == (30_000 if version else 10_000)

    run(test)


@pytest.mark.parametrize("version", range(6))
def test_every_version_of_sync_group_heartbeat_and_leave_group_works(run: Any, version: int) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        await member.join()
        names = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
        me = {"group_id": "g", "generation_id": 1, "member_id": member.member_id}
        mine = [{"member_id": member.member_id, "assignment": b"a"}]
        synced = await member.ask(ApiKey.SYNC_GROUP, version, **me, **names, assignments=mine)
        assert (synced.error_code, synced.assignment) == (0, b"a")
        beat = await member.ask(ApiKey.HEARTBEAT, min(version, 4), **me)
        assert beat.error_code == 0
        unknown = await member.ask(ApiKey.LEAVE_GROUP, version, group_id="g", members=[{"member_id": "unknown"}])
        errors = [row.error_code for row in unknown.members] or [unknown.error_code]
        assert errors == [ErrorCode.UNKNOWN_MEMBER_ID]
        left = await member.ask(ApiKey.LEAVE_GROUP, version, group_id="g", members=[{"member_id": member.member_id}])
        assert left.error_code == 0

    run(test)


@pytest.mark.parametrize("missing", ["protocol_type", "protocol_name"])
def test_a_sync_group_of_version_5_returns_its_protocol(run: Any, missing: str) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        await member.join()
        names = {"protocol_type": "consumer", "protocol_name": "range", missing: None}
        me = {"group_id": "g", "generation_id": 1, "member_id": member.member_id}
        refused = await member.ask(ApiKey.SYNC_GROUP, 5, **me, **names)
        assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert (await member.ask(ApiKey.SYNC_GROUP, 4, **me)).error_code == ErrorCode.NONE

    run(test)


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_COMMIT))
def test_every_version_of_offset_commit_is_read_by_every_version_of_offset_fetch(run: Any, version: int) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        orders = {"name": "orders", "topic_id": await member.topic_id("orders")}
        topics = [{**orders, "partitions": [{"partition_index": 0, "committed_offset": 17}]}]
        reply = await member.ask(
            ApiKey.OFFSET_COMMIT, version, group_id="g", generation_id_or_member_epoch=-1, topics=topics
        )
        answer = reply.topics[0]
        assert answer.name == (None if version >= WITH_TOPIC_IDS else "orders")
        assert answer.topic_id == (orders["topic_id"] if version >= WITH_TOPIC_IDS else None)
        assert [row.error_code for row in answer.partitions] == [ErrorCode.NONE]
        for fetch_version in versions(ApiKey.OFFSET_FETCH):
            wanted = [{**orders, "partition_indexes": [0, 1]}]
            for topics in (wanted, None) if fetch_version >= 2 else (wanted,):
                groups = [{"group_id": "g", "topics": topics}]
                stable = fetch_version >= 7
                reply = await member.ask(ApiKey.OFFSET_FETCH, fetch_version, groups=groups, require_stable=stable)
                (group,) = reply.groups
                assert group.error_code == ErrorCode.NONE
                assert group.topics[0].name == (None if fetch_version >= WITH_TOPIC_IDS else "orders")
                assert group.topics[0].topic_id == (orders["topic_id"] if fetch_version >= WITH_TOPIC_IDS else None)
                offsets = [(row.partition_index, row.committed_offset) for row in group.topics[0].partitions]
                assert offsets == ([(0, 17), (1, -1)] if topics else [(0, 17)])

    run(test)


def test_an_offset_commit_before_version_5_may_request_a_retention_time(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        await member.find()
        old = messages.versioned_class(ApiKey.OFFSET_COMMIT, 4, messages.MessageDirection.REQUEST)
        partition = messages.build(
            messages.nested_class(messages.nested_class(old, "topics"), "partitions"),
            partition_index=0,
            committed_offset=5,
        )
        topic = messages.build(messages.nested_class(old, "topics"), name="orders", partitions=[partition])
        request = messages.build(
            old, group_id="g", generation_id_or_member_epoch=-1, retention_time=1_000, topics=[topic]
        )
        parts: list[bytes] = []
        from kraft.wire.messages.compiled_writers import compile_writer

        compile_writer(old, old)(parts.append, request)
        assert member._client is not None
        await member._client.ask_bytes(ApiKey.OFFSET_COMMIT, 4, b"".join(parts))
        assert await member.committed() == 5
        await world.sleep_ms(2_500)
        assert await member.committed() == -1, "the coordinator's own round has taken it away"

    run(test, offsets_retention_check_interval_ms="500")


# names and ids of topics


def test_an_offset_commit_rejects_offsets_of_unknown_topics_and_stores_the_others(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        row = {"committed_offset": 3}
        topics = [
            {"name": "missing", "partitions": [{"partition_index": 0, **row}]},
            {"name": "orders", "partitions": [{"partition_index": 1, **row}, {"partition_index": 2, **row}]},
        ]
        reply = await member.ask(
            ApiKey.OFFSET_COMMIT, group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=topics
        )
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        found = [[row.error_code for row in topic.partitions] for topic in reply.topics]
        assert found == [[unknown], [ErrorCode.NONE, unknown]]
        assert await member.committed(partition=1) == 3

    run(test)


def test_a_recreated_topic_does_not_get_the_committed_offsets_of_the_deleted_topic(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        assert await member.commit(5) is ErrorCode.NONE
        assert await member.commit(6, topic="others") is ErrorCode.NONE
        client = await cluster.connect(1, member.seam)
        await client.ask(ApiKey.DELETE_TOPICS, 6, topics=[{"name": "orders"}], timeout=5_000)
        await world.sleep_ms(200)
        reply = await member.ask(ApiKey.OFFSET_FETCH, groups=[{"group_id": "g", "topics": None}], require_stable=True)
        assert [topic.name for topic in reply.groups[0].topics] == ["others"]
        await client.ask(
            ApiKey.CREATE_TOPICS,
            7,
            topics=[{"name": "orders", "num_partitions": 2, "replication_factor": 3}],
            timeout=5_000,
        )
        await world.sleep_ms(200)
        assert await member.committed() == -1

    run(test, topics=("orders", "others"))


async def commit_by_id(member: Member, topic_id: UUID | None, offset: int, partition: int = 0) -> ErrorCode:
    topics = [{"topic_id": topic_id, "partitions": [{"partition_index": partition, "committed_offset": offset}]}]
    reply = await member.ask(
        ApiKey.OFFSET_COMMIT, WITH_TOPIC_IDS, group_id="g", generation_id_or_member_epoch=-1, topics=topics
    )
    (topic,) = reply.topics
    assert topic.topic_id == topic_id
    return ErrorCode(int(topic.partitions[0].error_code))


async def fetch_by_ids(member: Member, *topic_ids: UUID | None) -> list[tuple[UUID, ErrorCode, int]]:
    """Return (topic id, error, offset) of partition 0 of each topic; if no topic is given, of all topics of the
    group."""
    topics = [{"topic_id": one, "partition_indexes": [0]} for one in topic_ids] or None
    groups = [{"group_id": "g", "topics": topics}]
    (group,) = (await member.ask(ApiKey.OFFSET_FETCH, WITH_TOPIC_IDS, groups=groups)).groups
    assert group.error_code == ErrorCode.NONE
    return [
        (topic.topic_id, ErrorCode(int(row.error_code)), row.committed_offset)
        for topic in group.topics
        for row in topic.partitions
    ]


def test_an_offset_commit_rejects_unknown_topic_ids_and_stores_the_other_offsets(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        orders = await member.topic_id("orders")
        unknown, none = ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NONE
        assert await commit_by_id(member, orders, 7) is none
        assert await commit_by_id(member, orders, 7, partition=9) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for strange in (UUID(int=9), None):
            assert await commit_by_id(member, strange, 8) is unknown
        assert await fetch_by_ids(member, UUID(int=9), orders, None) == [
            (UUID(int=9), unknown, -1),
            (orders, none, 7),
            (None, unknown, -1),
        ]
        assert await member.committed() == 7

    run(test)


def test_an_offset_committed_while_its_topic_is_recreated_does_not_count_for_the_new_topic(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        old = await member.topic_id("orders")
        assert await commit_by_id(member, old, 5) is ErrorCode.NONE
        client = await cluster.connect(1, member.seam)
        await client.ask(ApiKey.DELETE_TOPICS, 6, topics=[{"name": "orders"}], timeout=5_000)
        await world.sleep_ms(200)
        created = [{"name": "orders", "num_partitions": 2, "replication_factor": 3}]
        await client.ask(ApiKey.CREATE_TOPICS, 7, topics=created, timeout=5_000)
        await world.sleep_ms(200)
        new = await member.topic_id("orders")
        assert await commit_by_id(member, old, 6) is ErrorCode.UNKNOWN_TOPIC_ID
        unknown = ErrorCode.UNKNOWN_TOPIC_ID
        assert await fetch_by_ids(member, old, new) == [(old, unknown, -1), (new, ErrorCode.NONE, -1)]

    run(test)


def test_a_fetch_of_all_offsets_by_topic_id_returns_every_topic_of_the_group(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        ids = {name: await member.topic_id(name) for name in ("orders", "others")}
        for offset, name in enumerate(ids, 5):
            assert await member.commit(offset, topic=name) is ErrorCode.NONE
        answer = [(ids["orders"], ErrorCode.NONE, 5), (ids["others"], ErrorCode.NONE, 6)]
        assert await fetch_by_ids(member) == answer, "in order of their names"
        deny(cluster, (Operation.DESCRIBE, ResourceType.TOPIC, "others"))
        refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert await fetch_by_ids(member) == [(ids["orders"], ErrorCode.NONE, 5)]
        assert await fetch_by_ids(member, ids["others"]) == [(ids["others"], refused, -1)]

    run(test, topics=("orders", "others"))


def test_a_fetch_of_all_offsets_by_topic_id_omits_a_deleted_topic(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        ids = {name: await member.topic_id(name) for name in ("orders", "others")}
        for name in ids:
            assert await member.commit(5, topic=name) is ErrorCode.NONE
        publisher = cluster.node(await member.find()).publisher
        image = publisher.image  # the next image is published, but the coordinator is not notified
        publisher.image = replay(image, [events.RemoveTopic(ids["orders"])], image.offset + 1, image.epoch)
        assert await fetch_by_ids(member) == [(ids["others"], ErrorCode.NONE, 5)]
        reply = await member.ask(ApiKey.OFFSET_FETCH, groups=[{"group_id": "g", "topics": None}])
        assert [topic.name for topic in reply.groups[0].topics] == ["orders", "others"]
        publisher.image = image

    run(test, topics=("orders", "others"))


def test_offsets_of_a_group_without_members_expire_in_the_coordinators_rounds(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        assert await member.commit(5) is ErrorCode.NONE
        await world.sleep_ms(50_000)
        assert await member.committed() == 5
        await world.sleep_ms(15_000)
        assert await member.committed() == -1

    run(test, offsets_retention_minutes="1", offsets_retention_check_interval_ms="5000")


# administration


def test_groups_are_listed_described_and_deleted(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        await member.settle()
        await member.commit(4)
        listed = []
        for broker_id in cluster.broker_ids:
            client = await cluster.connect(broker_id, member.seam)
            for filters in ({}, {"states_filter": ["stable"]}, {"types_filter": ["Classic"]}):
                listed.append(await client.ask(ApiKey.LIST_GROUPS, 5, **filters))
            for filters in ({"states_filter": ["Empty"]}, {"types_filter": ["consumer"]}):
                assert (await client.ask(ApiKey.LIST_GROUPS, 5, **filters)).groups == ()
        rows = [(row.group_id, row.group_state, row.group_type) for reply in listed for row in reply.groups]
        assert rows == [("g", "Stable", "classic")] * 3, "by its coordinator alone"
        described = await member.ask(
            ApiKey.DESCRIBE_GROUPS, groups=["g", "missing"], include_authorized_operations=True
        )
        found, missing = described.groups
        assert (found.group_state, found.protocol_data, found.members[0].member_id) == (
            "Stable",
            "range",
            member.member_id,
        )
        assert found.authorized_operations == sum(1 << one for one in (3, 6, 8, 10, 11))
        assert missing.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NOT_COORDINATOR)
        deleted = await member.ask(ApiKey.DELETE_GROUPS, groups_names=["g"])
        assert deleted.results[0].error_code == ErrorCode.NON_EMPTY_GROUP
        await member.ask(ApiKey.LEAVE_GROUP, group_id="g", members=[{"member_id": member.member_id}])
        deleted = await member.ask(ApiKey.DELETE_GROUPS, groups_names=["g"])
        assert deleted.results[0].error_code == ErrorCode.NONE
        (gone,) = (await member.ask(ApiKey.DESCRIBE_GROUPS, groups=["g"])).groups
        assert (gone.group_state, gone.error_code) == ("Dead", ErrorCode.GROUP_ID_NOT_FOUND)
        (gone,) = (await member.ask(ApiKey.DESCRIBE_GROUPS, 5, groups=["g"])).groups
        assert (gone.group_state, gone.error_code) == ("Dead", ErrorCode.NONE)

    run(test)


def test_a_group_whose_removal_does_not_fit_into_one_batch_is_deleted_completely(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        member.group = "g" * 600
        for partition in (0, 1):
            assert await member.commit(5, partition=partition) is ErrorCode.NONE
        deleted = await member.ask(ApiKey.DELETE_GROUPS, groups_names=[member.group])
        assert deleted.results[0].error_code == ErrorCode.NONE
        assert await member.committed() == -1
        (gone,) = (await member.ask(ApiKey.DESCRIBE_GROUPS, groups=[member.group])).groups
        assert gone.error_code == ErrorCode.GROUP_ID_NOT_FOUND

    run(test, message_max_bytes="1500")


def test_offsets_are_deleted_unless_a_member_subscribes_to_their_topic(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        await member.settle()
        await member.commit(4)
        await member.commit(5, topic="others")
        partitions = [{"partition_index": 0}]
        reply = await member.ask(
            ApiKey.OFFSET_DELETE,
            group_id="g",
            topics=[{"name": name, "partitions": partitions} for name in ("orders", "others", "missing")],
        )
        assert {topic.name: topic.partitions[0].error_code for topic in reply.topics} == {
            "orders": ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
            "others": ErrorCode.NONE,
            "missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert (await member.committed(), await member.committed("others")) == (4, -1)

    run(test, topics=("orders", "others"))


# authorisation


class Denying:
    """An authorizer that denies some operations on some resources."""

    def __init__(self, *denied: tuple[Operation, ResourceType, str]) -> None:
        self.denied = set(denied)

    def authorize(self, session: Session, operation: Operation, resource: Resource) -> bool:
        return (operation, resource.type, resource.name) not in self.denied

    def authorize_any(self, session: Session, operation: Operation, type: ResourceType) -> bool:
        return True


def deny(cluster: Any, *denied: tuple[Operation, ResourceType, str]) -> None:
    for broker_id in cluster.broker_ids:
        cluster.node(broker_id).gates.authorizer = Denying(*denied)


def test_a_client_without_permission_for_a_group_gets_no_information_about_that_group(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        await member.settle()
        await member.commit(1)
        denied = [(one, ResourceType.GROUP, "g") for one in (Operation.READ, Operation.DESCRIBE, Operation.DELETE)]
        deny(cluster, *denied, (Operation.DESCRIBE, ResourceType.CLUSTER, "kafka-cluster"))
        refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert (await member.join()).error_code == refused
        assert (await member.sync()).error_code == refused
        assert await member.heartbeat() is refused
        assert await member.commit(2) is refused
        left = await member.ask(ApiKey.LEAVE_GROUP, group_id="g", members=[{"member_id": member.member_id}])
        assert left.error_code == refused
        for version in versions(ApiKey.OFFSET_FETCH):
            wanted = [{"group_id": "g", "topics": [{"name": "orders", "partition_indexes": [0]}]}]
            (group,) = (await member.ask(ApiKey.OFFSET_FETCH, version, groups=wanted)).groups
            answer = group.error_code if version >= 2 else group.topics[0].partitions[0].error_code
            assert answer == refused
        assert (await member.ask(ApiKey.DESCRIBE_GROUPS, groups=["g"])).groups[0].error_code == refused
        assert (await member.ask(ApiKey.DELETE_GROUPS, groups_names=["g"])).results[0].error_code == refused
        assert (await member.ask(ApiKey.OFFSET_DELETE, group_id="g", topics=[])).error_code == refused
        assert (await member.ask(ApiKey.LIST_GROUPS)).groups == ()
        client = await cluster.connect(1, member.seam)
        found = await client.ask(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["g"])
        assert found.coordinators[0].error_code == refused

    run(test)


def test_an_offset_request_for_an_unauthorized_topic_is_rejected_whether_or_not_the_topic_exists(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        await member.settle()
        await member.commit(1)
        denied = [
            (operation, ResourceType.TOPIC, name)
            for operation in (Operation.READ, Operation.DESCRIBE)
            for name in ("orders", "missing")
        ]
        deny(cluster, *denied)
        refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert await member.commit(2) is refused
        assert await member.commit(2, topic="missing") is refused
        assert (await member.fetched()).error_code == refused
        reply = await member.ask(ApiKey.OFFSET_FETCH, groups=[{"group_id": "g", "topics": None}])
        assert reply.groups[0].topics == (), "all topics: those that may be described"
        deleted = await member.ask(
            ApiKey.OFFSET_DELETE, group_id="g", topics=[{"name": "orders", "partitions": [{"partition_index": 0}]}]
        )
        assert deleted.topics[0].partitions[0].error_code == refused

    run(test)
