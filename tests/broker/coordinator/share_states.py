"""ShareStates: a client in a simulated cluster that sends the RPCs of share partition state to share coordinators."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kraft.broker.share_coordinator.records import share_coordinator_key
from kraft.seam import DialFailed
from kraft.sim.world import World
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.stages.world_cluster import AskingClient, WorldCluster

TRIES_MAX = 600
MOVED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


class ShareStates:
    """The state of one share partition, as its leader reads and writes it."""

    def __init__(self, world: World, cluster: WorldCluster, *, group: str = "g", topic: str = "orders") -> None:
        self.world = world
        self.cluster = cluster
        self.seam = world.node("share-state-client")
        self.group = group
        self.topic = topic
        self.broker = -1
        self._client: AskingClient | None = None

    @property
    def image(self) -> Any:
        """The newest image of any running broker."""
        nodes = [
            self.cluster.node(broker_id)
            for broker_id in self.cluster.broker_ids
            if self.world.is_running(self.cluster.name(broker_id))
        ]
        return max((node.publisher.image for node in nodes), key=lambda one: one.offset)

    @property
    def topic_id(self) -> UUID:
        topic_id: UUID = self.image.topics.by_name[self.topic].topic_id
        return topic_id

    @property
    def shard(self) -> Any:
        """The shard of the coordinator that was found last."""
        node: Any = self.cluster.node(self.broker)
        coordinators = node.broker.broker.share_coordinators
        return next(
            shard
            for shard in coordinators.shards.values()
            if shard.machine and any(key.topic_id == self.topic_id for key in shard.machine.states)
        )

    async def find(self) -> int:
        """Return the coordinator's node id. Wait until a broker names itself as the coordinator."""
        for _ in range(TRIES_MAX):
            for broker_id in self.cluster.broker_ids:
                if self.world.is_running(self.cluster.name(broker_id)) and await self._ask_where(broker_id):
                    return self.broker
            await self.world.sleep_ms(10)
        raise AssertionError("no share coordinator was found")

    async def _ask_where(self, broker_id: int) -> bool:
        key = share_coordinator_key(self.group, self.topic_id, 0)
        try:
            client = await self.cluster.connect(broker_id, self.seam)
            answered = await client.ask(ApiKey.FIND_COORDINATOR, 6, key_type=2, coordinator_keys=[key])
        except (ConnectionError, DialFailed):
            return False
        (found,) = answered.coordinators
        if found.error_code != ErrorCode.NONE or found.node_id != broker_id:
            return False
        self._client, self.broker = client, broker_id
        return True

    async def ask(self, key: ApiKey, version: int, **fields: Any) -> Any:
        """Send a request about partition 0, and return its row of the response. Look up the coordinator again when it
        has moved."""
        topics = [{"topic_id": self.topic_id, "partitions": [{"partition": 0, **fields}]}]
        for _ in range(TRIES_MAX):
            if self._client is None:
                await self.find()
            assert self._client is not None
            try:
                answered = await self._client.ask(key, version, group_id=self.group, topics=topics)
                ((row,),) = (topic.partitions for topic in answered.results)
                if row.error_code not in MOVED:
                    return row
            except (ConnectionError, DialFailed):
                pass
            self._client = None
            await self.world.sleep_ms(20)
        raise AssertionError(f"{key.name} does not succeed")

    async def initialize(self, start_offset: int = -1, *, state_epoch: int = 0) -> ErrorCode:
        row = await self.ask(ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, state_epoch=state_epoch, start_offset=start_offset)
        return ErrorCode.of(int(row.error_code))

    async def read(self, leader_epoch: int = 0) -> Any:
        return await self.ask(ApiKey.READ_SHARE_GROUP_STATE, 0, leader_epoch=leader_epoch)

    async def write(self, start_offset: int, *batches: tuple[int, int, int, int], leader_epoch: int = -1) -> ErrorCode:
        """Write the state, as a leader of `leader_epoch`; -1: without the check of the epoch."""
        names = ("first_offset", "last_offset", "delivery_state", "delivery_count")
        row = await self.ask(
            ApiKey.WRITE_SHARE_GROUP_STATE,
            1,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=0,
            state_batches=[dict(zip(names, batch, strict=True)) for batch in batches],
        )
        return ErrorCode.of(int(row.error_code))

    async def summary(self) -> Any:
        return await self.ask(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 1, leader_epoch=-1)

    async def delete(self) -> ErrorCode:
        return ErrorCode.of(int((await self.ask(ApiKey.DELETE_SHARE_GROUP_STATE, 0)).error_code))
