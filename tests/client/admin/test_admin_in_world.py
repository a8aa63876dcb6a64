"""The admin client against a whole cluster in the simulated world."""

from __future__ import annotations

import pytest

from kraft.client import KafkaError
from kraft.client.admin import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    Admin,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ConfigSource,
    ElectionType,
    NewTopic,
    ResourceType,
)
from kraft.client.connections import TimedOut
from kraft.wire.error_codes import ErrorCode
from tests.stages.admin_client import Stage, play

TOPIC = ConfigResource(ResourceType.TOPIC, "t")


def test_admin_creates_describes_extends_and_deletes_a_topic() -> None:
    async def work(stage: Stage) -> None:
        topics = stage.admin.topics
        created = await topics.create(NewTopic("t", assignment={0: [2, 1], 1: [1, 2]}, configs={"retention.ms": "9"}))
        assert (created.name, created.partitions, created.replication_factor) == ("t", 2, 2)
        (described,) = await topics.describe(["t"])
        assert [(part.leader, part.replicas) for part in described.partitions] == [(2, (2, 1)), (1, (1, 2))]
        assert not described.is_internal
        await topics.add_partitions("t", 3)
        assert [len(topic.partitions) for topic in await topics.list()] == [3]
        await topics.delete("t")
        assert await topics.list() == ()

    play(work)


def test_creating_a_topic_with_validate_only_creates_nothing() -> None:
    async def work(stage: Stage) -> None:
        await stage.admin.topics.create(NewTopic("t"), validate_only=True)
        assert await stage.admin.topics.list() == ()
        with pytest.raises(KafkaError, match="INVALID_REPLICATION_FACTOR"):
            await stage.admin.topics.create(NewTopic("t", replication_factor=9), validate_only=True)

    play(work)


def test_an_admin_client_that_is_not_open_raises_runtime_error() -> None:
    admin = Admin(bootstrap_servers="localhost:9092")
    for use in (
        lambda: admin.topics.create,
        lambda: admin.partitions.offsets,
        lambda: admin.configs.describe,
        lambda: admin.groups.list,
        lambda: admin.nodes.cluster,
    ):
        with pytest.raises(RuntimeError, match=r"Admin is open only within `async with Admin\(\.\.\.\) as admin:`"):
            use()


def test_admin_errors_carry_kafkas_code_and_name_the_resource() -> None:
    async def work(stage: Stage) -> None:
        await stage.admin.topics.create(NewTopic("t"))
        with pytest.raises(KafkaError, match="topic t") as exists:
            await stage.admin.topics.create(NewTopic("t"))
        assert exists.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
        with pytest.raises(KafkaError, match="topic nothing") as missing:
            await stage.admin.topics.describe(["t", "nothing"])
        assert missing.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(KafkaError, match="there is no partition t-9"):
            await stage.admin.partitions.offsets({("t", 9): LATEST})
        with pytest.raises(KafkaError, match=r"broker 9 is not there, or not up \(up: 1, 2\)"):
            await stage.admin.configs.describe(ConfigResource(ResourceType.BROKER, "9"))

    play(work)


def test_a_number_too_large_for_its_request_field_raises_value_error_and_the_client_works_on() -> None:
    async def work(stage: Stage) -> None:
        with pytest.raises(ValueError, match="a number is too large for its field in CREATE_TOPICS"):
            await stage.admin.topics.create(NewTopic("t", partitions=1 << 31))
        await stage.admin.topics.create(NewTopic("t"))

    play(work)


def test_admin_finds_offsets_at_the_log_ends_and_by_timestamp() -> None:
    async def work(stage: Stage) -> None:
        await stage.admin.topics.create(NewTopic("t", 2))
        await stage.produce("t", {1_000: 0, 2_000: 1, 3_000: 2})
        expected = {EARLIEST: 0, LATEST: 3, 1_500: 1, 3_000: 2, 3_001: -1}
        for when, offset in expected.items():
            found = await stage.admin.partitions.offsets({("t", 0): when, ("t", 1): when})
            assert found[("t", 0)].offset == offset, when
        newest = await stage.admin.partitions.offsets({("t", 0): MAX_TIMESTAMP})
        assert (newest[("t", 0)].offset, newest[("t", 0)].timestamp_ms) == (2, 3_000)

    play(work)


def test_admin_deletes_records_below_an_offset_or_all_of_them() -> None:
    async def work(stage: Stage) -> None:
        await stage.admin.topics.create(NewTopic("t", 1))
        await stage.produce("t", {1: 0, 2: 1, 3: 2})
        assert await stage.admin.partitions.delete_records({("t", 0): 2}) == {("t", 0): 2}
        assert await stage.admin.partitions.delete_records({("t", 0): -1}) == {("t", 0): 3}
        with pytest.raises(KafkaError, match="OFFSET_OUT_OF_RANGE"):
            await stage.admin.partitions.delete_records({("t", 0): 4})

    play(work)


def test_an_offset_request_is_retried_at_the_new_leader_after_the_leader_crashed() -> None:
    async def work(stage: Stage) -> None:
        await stage.admin.topics.create(NewTopic("t", assignment={0: [1, 2]}))
        await stage.produce("t", {1: 0})
        await stage.admin.partitions.offsets({("t", 0): LATEST})
        stage.cluster.crash(1, lose_power=False, is_noticed=True)
        found = await stage.admin.partitions.offsets({("t", 0): LATEST})
        assert found[("t", 0)].offset == 1
        (described,) = await stage.admin.topics.describe(["t"])
        assert described.partitions[0].leader == 2

    play(work)


def test_offsets_of_a_partition_without_a_leader_fail_after_the_timeout() -> None:
    async def work(stage: Stage) -> None:
        await stage.admin.topics.create(NewTopic("t", assignment={0: [1]}))
        stage.cluster.crash(1, lose_power=False, is_noticed=True)
        with pytest.raises((KafkaError, TimedOut)) as failure:
            await stage.admin.partitions.offsets({("t", 0): LATEST})
        assert "t-0" in str(failure.value) or "broker" in str(failure.value)

    play(work, timeout_ms=3_000)


def test_altering_configs_changes_only_the_named_settings() -> None:
    async def work(stage: Stage) -> None:
        await stage.admin.topics.create(NewTopic("t", configs={"retention.ms": "5", "segment.ms": "7"}))

        async def own() -> dict[str, str | None]:
            entries = await stage.admin.configs.describe(TOPIC)
            return {entry.name: entry.value for entry in entries if entry.source is ConfigSource.TOPIC}

        assert await own() == {"retention.ms": "5", "segment.ms": "7"}
        changes = [
            ConfigChange(ConfigOperation.DELETE, "segment.ms"),
            ConfigChange(ConfigOperation.APPEND, "cleanup.policy", "compact"),
        ]
        await stage.admin.configs.alter(TOPIC, changes, validate_only=True)
        assert await own() == {"retention.ms": "5", "segment.ms": "7"}
        await stage.admin.configs.alter(TOPIC, changes)
        assert await own() == {"retention.ms": "5", "cleanup.policy": "delete,compact"}
        with pytest.raises(KafkaError, match="topic t"):
            await stage.admin.configs.alter(TOPIC, [ConfigChange(ConfigOperation.SET, "retention.ms", "-7")])

    play(work)


def test_log_level_requests_go_to_the_named_broker() -> None:
    async def work(stage: Stage) -> None:
        for node in ("1", "1", "2", "2"):
            loggers = ConfigResource(ResourceType.BROKER_LOGGER, node)
            entry = (await stage.admin.configs.describe(loggers))[0]
            change = ConfigChange(ConfigOperation.SET, entry.name, entry.value)
            await stage.admin.configs.alter(loggers, [change], validate_only=True)

    play(work)


def test_log_level_requests_go_to_the_named_controller() -> None:
    async def work(stage: Stage) -> None:
        voters = [one.node_id for one in (await stage.admin.nodes.quorum()).voters]
        assert voters
        for node_id in voters:
            loggers = ConfigResource(ResourceType.BROKER_LOGGER, str(node_id))
            entry = (await stage.admin.configs.describe(loggers))[0]
            change = ConfigChange(ConfigOperation.SET, entry.name, entry.value)
            await stage.admin.configs.alter(loggers, [change], validate_only=True)
        with pytest.raises(KafkaError, match="broker 9999 is not there"):
            await stage.admin.configs.describe(ConfigResource(ResourceType.BROKER_LOGGER, "9999"))

    play(work)


def test_a_preferred_election_returns_leadership_to_the_preferred_replica() -> None:
    async def work(stage: Stage) -> None:
        await stage.admin.topics.create(NewTopic("t", assignment={0: [1, 2]}))
        stage.cluster.crash(1, lose_power=False, is_noticed=True)
        await stage.cluster.wait_until(lambda: leader(stage) == 2, 10_000)
        stage.cluster.start(1)
        assert await stage.cluster.wait_until(lambda: not stage.cluster.trouble(), 10_000)
        if leader(stage) == 2:
            assert await stage.admin.partitions.elect_leaders(ElectionType.PREFERRED, [("t", 0)]) == {("t", 0): None}
        assert leader(stage) == 1
        again = await stage.admin.partitions.elect_leaders(ElectionType.PREFERRED, [("t", 0)])
        problem = again[("t", 0)]
        assert problem is not None
        assert problem.code is ErrorCode.ELECTION_NOT_NEEDED

    play(work)


def test_admin_describes_the_brokers_and_the_quorum() -> None:
    async def work(stage: Stage) -> None:
        cluster = await stage.admin.nodes.cluster()
        assert [(broker.node_id, broker.is_fenced) for broker in cluster.brokers] == [(1, False), (2, False)]
        quorum = await stage.admin.nodes.quorum()
        assert quorum.leader == 101
        assert [voter.node_id for voter in quorum.voters] == [101]
        assert [observer.node_id for observer in quorum.observers] == [1, 2]
        assert quorum.log_end_offset == quorum.voters[0].log_end_offset > 0

    play(work)


def test_admin_lists_features_and_an_unsupported_feature_level_is_rejected() -> None:
    async def work(stage: Stage) -> None:
        features = {feature.name: feature for feature in await stage.admin.nodes.features()}
        version = features["metadata.version"]
        assert version.level is not None
        assert version.min_level <= version.level <= version.max_level
        await stage.admin.nodes.update_features({"metadata.version": version.level}, validate_only=True)
        with pytest.raises(KafkaError, match=r"metadata\.version"):
            await stage.admin.nodes.update_features({"metadata.version": version.max_level + 1})

    play(work)


def test_a_crashed_broker_can_be_unregistered() -> None:
    async def work(stage: Stage) -> None:
        stage.cluster.crash(2, lose_power=False, is_noticed=True)

        def is_fenced() -> bool:
            return stage.cluster.image.brokers[2].fenced

        assert await stage.cluster.wait_until(is_fenced, 20_000)
        await stage.admin.nodes.unregister_broker(2)
        assert [broker.node_id for broker in (await stage.admin.nodes.cluster()).brokers] == [1]
        with pytest.raises(KafkaError, match="broker 7"):
            await stage.admin.nodes.unregister_broker(7)

    play(work)


def leader(stage: Stage) -> int:
    topic = stage.cluster.image.topics.get("t")
    assert topic is not None
    return topic.partition(0).leader
