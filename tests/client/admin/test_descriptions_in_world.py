"""Descriptions that the admin client returns: many configurations at once, synonyms, endpoints, subscriptions. A
request that the brokers do not support is an error.
"""

from __future__ import annotations

import pytest

from kraft.client import Consumer, KafkaError
from kraft.client.admin import ConfigResource, ConfigSource, ConfigType, NewTopic, ResourceType, TransactionListing
from kraft.client.admin import configs as admin_configs
from kraft.client.connections import VersionMismatch
from kraft.wire.error_codes import ErrorCode
from tests.stages.admin_client import Stage, play


def of_topic(name: str) -> ConfigResource:
    return ConfigResource(ResourceType.TOPIC, name)


@pytest.mark.parametrize("limit", [1, 2, 500])
def test_describing_many_topics_configs_returns_an_error_for_each_missing_topic(
    monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(admin_configs, "RESOURCES_PER_REQUEST", limit)

    async def work(stage: Stage) -> None:
        for name in ("a", "b"):
            await stage.admin.topics.create(NewTopic(name, 1, configs={"retention.ms": "5000"}))
        wanted = [of_topic("a"), of_topic("gone"), of_topic("b")]
        found = await stage.admin.configs.describe_each(wanted, names=["retention.ms", "cleanup.policy"])
        problem = found.pop(of_topic("gone"))
        assert isinstance(problem, KafkaError)
        assert problem.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert set(found) == {of_topic("a"), of_topic("b")}
        for entries in found.values():
            assert not isinstance(entries, KafkaError)
            values = {entry.name: (entry.value, entry.source, entry.type) for entry in entries}
            assert values == {
                "cleanup.policy": ("delete", ConfigSource.DEFAULT, ConfigType.LIST),
                "retention.ms": ("5000", ConfigSource.TOPIC, ConfigType.LONG),
            }

    play(work)


def test_config_synonyms_are_returned_on_request_with_the_strongest_first() -> None:
    async def work(stage: Stage) -> None:
        await stage.admin.topics.create(NewTopic("t", 1, configs={"max.message.bytes": "5000"}))
        describe = stage.admin.configs.describe
        with_them = {entry.name: entry for entry in await describe(of_topic("t"), synonyms=True)}
        first, *others = with_them["max.message.bytes"].synonyms
        assert (first.name, first.value, first.source) == ("max.message.bytes", "5000", ConfigSource.TOPIC)
        assert [(other.name, other.source) for other in others] == [("message.max.bytes", ConfigSource.DEFAULT)]
        assert not any(entry.synonyms for entry in await describe(of_topic("t")))

    play(work)


def test_describing_topics_can_skip_unknown_topics() -> None:
    async def work(stage: Stage) -> None:
        await stage.admin.topics.create(NewTopic("t", 1))
        describe = stage.admin.topics.describe
        found = await describe(["gone", "t", "no name!"], skip_unknown=True)
        assert [topic.name for topic in found] == ["t"]
        assert await describe([], skip_unknown=True) == ()
        with pytest.raises(KafkaError, match="gone"):
            await describe(["gone", "t"])

    play(work)


def test_quorum_description_has_voter_endpoints_and_features_have_their_epoch() -> None:
    async def work(stage: Stage) -> None:
        quorum = await stage.admin.nodes.quorum()
        assert set(quorum.endpoints) == {voter.node_id for voter in quorum.voters}
        assert all(one.address.port > 0 for listeners in quorum.endpoints.values() for one in listeners)
        of_any, of_one = await stage.admin.nodes.features(), await stage.admin.nodes.features(1)
        assert [one.name for one in of_any] == [one.name for one in of_one]
        assert all(one.epoch is not None and one.epoch >= 0 for one in of_any)

    play(work)


def test_log_directories_can_be_described_for_given_partitions_only() -> None:
    async def work(stage: Stage) -> None:
        await stage.admin.topics.create(NewTopic("t", assignment={0: [1], 1: [1]}))
        (everything,) = await stage.admin.nodes.log_dirs([1])
        (some,) = await stage.admin.nodes.log_dirs([1], partitions=[("t", 1)])
        assert {("t", 0), ("t", 1)} <= {(one.topic, one.partition) for one in everything.replicas}
        assert [(one.topic, one.partition) for one in some.replicas] == [("t", 1)]

    play(work)


def test_a_described_classic_group_member_has_its_subscription_and_rack() -> None:
    async def work(stage: Stage) -> None:
        await stage.admin.topics.create(NewTopic("t", 1))
        await stage.produce("t", {1_000: 0})
        seam = stage.cluster.world.node("consumer")
        settings = {"group_id": "g", "auto_offset_reset": "earliest", "client_rack": "r1"}
        async with Consumer(bootstrap_servers=stage.bootstrap_servers, seam=seam, **settings) as consumer:
            await consumer.subscribe(["t"])
            assert await consumer.poll(timeout_ms=20_000)
            (member,) = (await stage.admin.groups.describe("g")).members
            assert await stage.admin.groups.list(brokers=[1]) + await stage.admin.groups.list(brokers=[2])
        assert (member.subscribed, member.rack) == (("t",), "r1")
        assert (member.epoch, member.target) == (None, None)

    play(work)


def test_listing_acls_without_an_authorizer_is_an_error_and_transactions_are_empty() -> None:
    async def work(stage: Stage) -> None:
        with pytest.raises(KafkaError, match="No Authorizer is configured") as refused:
            await stage.admin.access.acls()
        assert refused.value.code is ErrorCode.SECURITY_DISABLED
        assert await stage.admin.transactions.list() == ()
        gone = TransactionListing("pay", 1, "Ongoing", 1)
        assert await stage.admin.transactions.describe([gone]) == ()

    play(work)


def test_a_request_that_the_brokers_do_not_support_is_an_error_that_names_it() -> None:
    async def work(stage: Stage) -> None:
        with pytest.raises(VersionMismatch, match="DESCRIBE_CLIENT_QUOTAS"):
            await stage.admin.access.quotas()
        with pytest.raises(VersionMismatch, match="DESCRIBE_USER_SCRAM_CREDENTIALS"):
            await stage.admin.access.scram_users()

    play(work)
