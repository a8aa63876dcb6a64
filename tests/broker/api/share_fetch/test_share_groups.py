"""Share groups on whole brokers: members join, get initialized partitions, fetch, and leave; groups are described and
deleted."""

from __future__ import annotations

from typing import Any

from kraft.broker.shard.placement import partition_of
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.broker.api.share_fetch.share_member import ACCEPT, Share, ShareMember
from tests.stages.world_cluster import AskingClient

TRIES_MAX = 300
MOVED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


class GroupClient:
    """A client of the coordinator of the group `g`."""

    def __init__(self, share: Share) -> None:
        self.share = share
        self.seam = share.world.node("group-client")

    async def ask(self, key: ApiKey, version: int, **fields: Any) -> Any:
        """Send a request to the coordinator until it answers, and return the response."""
        for _ in range(TRIES_MAX):
            for broker_id in self.share.cluster.broker_ids:
                if not self.share.world.is_running(self.share.cluster.name(broker_id)):
                    continue
                client = await self.share.cluster.connect(broker_id, self.seam)
                await self._find(client)
                answered = await client.ask(key, version, **fields)
                rows = getattr(answered, "groups", None) or getattr(answered, "results", None) or (answered,)
                if rows[0].error_code not in MOVED:
                    return answered
            await self.share.world.sleep_ms(20)
        raise AssertionError("no coordinator answers")

    async def _find(self, client: AskingClient) -> None:
        await client.ask(ApiKey.FIND_COORDINATOR, 6, key_type=0, coordinator_keys=["g"])

    async def beat(self, member: str, epoch: int, *topics: str) -> Any:
        return await self.ask(
            ApiKey.SHARE_GROUP_HEARTBEAT,
            1,
            group_id="g",
            member_id=member,
            member_epoch=epoch,
            subscribed_topic_names=topics or None,
        )

    async def join(self, member: str) -> Any:
        """Join the group, and send heartbeats until all partitions are assigned."""
        beat = await self.beat(member, 0, "orders")
        for _ in range(TRIES_MAX):
            assert beat.error_code == ErrorCode.NONE, ErrorCode.of(int(beat.error_code))
            rows = beat.assignment.topic_partitions
            if rows:
                return {number for row in rows for number in row.partitions}
            await self.share.world.sleep_ms(50)
            beat = await self.beat(member, beat.member_epoch, "orders")
        raise AssertionError("nothing is assigned")

    async def describe(self) -> Any:
        return (await self.ask(ApiKey.SHARE_GROUP_DESCRIBE, 1, group_ids=["g"])).groups[0]


def test_a_member_joins_fetches_and_acknowledges_without_any_other_preparation(run: Any) -> None:
    async def test(world: Any, cluster: Any, _: Any) -> None:
        share = Share(world, cluster)
        client = GroupClient(share)
        assert await client.join("m1") == {0, 1}
        member = ShareMember(share, "m1")
        await member.fetch(wait_ms=500)
        await share.append("a")
        assert (await member.acquire()).values == {0: "a"}
        assert await member.acknowledge((0, 0, ACCEPT)) is ErrorCode.NONE

    run(test)


def test_a_share_group_is_described_with_its_members(run: Any) -> None:
    async def test(world: Any, cluster: Any, _: Any) -> None:
        client = GroupClient(Share(world, cluster))
        assert (await client.describe()).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        await client.join("m1")
        described = await client.describe()
        assert (described.error_code, described.group_state, described.assignor_name) == (0, "Stable", "simple")
        (member,) = described.members
        assert (member.member_id, member.subscribed_topic_names) == ("m1", ("orders",))
        (row,) = member.assignment.topic_partitions
        assert (row.topic_name, row.partitions) == ("orders", (0, 1))

    run(test)


def test_a_deleted_share_group_leaves_no_states(run: Any) -> None:
    async def test(world: Any, cluster: Any, _: Any) -> None:
        share = Share(world, cluster)
        client = GroupClient(share)
        await client.join("m1")
        refused = await client.ask(ApiKey.DELETE_GROUPS, 2, groups_names=["g"])
        assert refused.results[0].error_code == ErrorCode.NON_EMPTY_GROUP
        await client.beat("m1", -1)
        deleted = await client.ask(ApiKey.DELETE_GROUPS, 2, groups_names=["g"])
        assert deleted.results[0].error_code == ErrorCode.NONE
        assert (await client.describe()).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        brokers = [cluster.node(one).broker.broker for one in cluster.broker_ids]
        shards = [shard for broker in brokers for shard in broker.share_coordinators.shards.values()]
        assert [shard.machine.states for shard in shards if shard.machine and shard.machine.states] == []

    run(test)


def test_a_share_group_forgets_a_deleted_topic(run: Any) -> None:
    async def test(world: Any, cluster: Any, _: Any) -> None:
        client = GroupClient(Share(world, cluster))
        await client.join("m1")
        await client.beat("m1", -1)
        admin = await cluster.connect(cluster.broker_ids[0], client.seam)
        await admin.ask(ApiKey.DELETE_TOPICS, 6, topics=[{"name": "orders", "topic_id": None}], timeout=10_000)
        await world.sleep_ms(1_000)
        brokers = [cluster.node(one).broker.broker for one in cluster.broker_ids]
        machines = [shard.machine for broker in brokers for shard in broker.groups.shards.values()]
        (group,) = [machine.newest.shares["g"] for machine in machines if machine and "g" in machine.newest.shares]
        assert group.states.initialized == group.states.initializing == {}

    run(test)


def test_members_keep_their_partitions_when_the_group_coordinator_dies(run: Any) -> None:
    async def test(world: Any, cluster: Any, _: Any) -> None:
        share = Share(world, cluster)
        client = GroupClient(share)
        await client.join("m1")
        epoch = (await client.describe()).members[0].member_epoch
        topic = share.states.image.topics.by_name["__consumer_offsets"]
        world.kill(cluster.name(topic.partition(partition_of("g", topic.partition_count)).leader))
        assert (await client.beat("m1", epoch)).member_epoch == epoch

    run(test)


def test_share_groups_are_refused_while_the_feature_is_off(run: Any) -> None:
    async def test(world: Any, cluster: Any, _: Any) -> None:
        share = Share(world, cluster)
        client = GroupClient(share)
        admin = await cluster.connect(cluster.broker_ids[0], client.seam)
        off = {"feature": "share.version", "max_version_level": 0, "upgrade_type": 2}
        changed = await admin.ask(ApiKey.UPDATE_FEATURES, 2, timeout=10_000, feature_updates=[off])
        assert changed.error_code == ErrorCode.NONE
        await world.sleep_ms(200)
        assert (await client.beat("m1", 0, "orders")).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert (await client.describe()).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert (await ShareMember(share).respond()).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert (await ShareMember(share, "m2").acknowledge(share_session_epoch=1)) is ErrorCode.UNSUPPORTED_VERSION

    run(test)
