"""A simulated group member. It sends one request at a time and looks up its coordinator when necessary."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kraft.seam import DialFailed, Seam
from kraft.sim.world import World
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.stages.world_cluster import AskingClient, WorldCluster

RANGE = ({"name": "range", "metadata": b"\0\0\0\0\0\1\0\6orders\0\0\0\0"},)
WITH_TOPIC_IDS = 10
NEWEST = {
    ApiKey.OFFSET_COMMIT: WITH_TOPIC_IDS - 1,
    ApiKey.OFFSET_FETCH: WITH_TOPIC_IDS - 1,
    ApiKey.JOIN_GROUP: 9,
    ApiKey.HEARTBEAT: 4,
    ApiKey.LEAVE_GROUP: 5,
    ApiKey.SYNC_GROUP: 5,
    ApiKey.DESCRIBE_GROUPS: 6,
    ApiKey.LIST_GROUPS: 5,
    ApiKey.DELETE_GROUPS: 2,
    ApiKey.OFFSET_DELETE: 0,
}
"""The newest version of each API. For the offset APIs it is the newest version in which requests name topics by name.
"""

TRIES_MAX = 200


class Member:
    """One client in a group. `broker` is the connection to the broker that the client considers its coordinator."""

    def __init__(self, world: World, cluster: WorldCluster, seam: Seam, group: str = "g") -> None:
        self.world = world
        self.cluster = cluster
        self.seam = seam
        self.group = group
        self.broker = -1
        self.member_id = ""
        self.generation = -1
        self._client: AskingClient | None = None

    async def find(self) -> int:
        """Return the coordinator's node id. Wait until a broker names itself as the coordinator."""
        for _ in range(TRIES_MAX):
            for broker_id in self.cluster.broker_ids:
                if self.world.is_running(self.cluster.name(broker_id)) and await self._ask_where(broker_id):
                    return self.broker
            await self.world.sleep_ms(10)
        raise AssertionError("no coordinator was found")

    async def _ask_where(self, broker_id: int) -> bool:
        """Ask this broker for the coordinator, and connect to this broker if it names itself. If it names another
        broker, that broker may not know yet that it is the coordinator."""
        try:
            client = await self.cluster.connect(broker_id, self.seam)
            answer = await client.ask(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[self.group])
            (found,) = answer.coordinators
            if found.error_code != ErrorCode.NONE or found.node_id != broker_id:
                return False
            self._client = client
        except (ConnectionError, DialFailed):
            return False
        self.broker = found.node_id
        return True

    async def ask(self, key: ApiKey, version: int | None = None, **fields: Any) -> Any:
        """Send a request to the coordinator; look the coordinator up again if it has moved."""
        if self._client is None:
            await self.find()
        assert self._client is not None
        return await self._client.ask(key, NEWEST[key] if version is None else version, **fields)

    async def join(self, **fields: Any) -> Any:
        """Send JoinGroup, with the member id if one is given. Return the reply."""
        while True:
            reply = await self.ask(
                ApiKey.JOIN_GROUP,
                **{
                    "group_id": self.group,
                    "member_id": self.member_id,
                    "session_timeout": 10_000,
                    "rebalance_timeout": 30_000,
                    "protocol_type": "consumer",
                    "protocols": RANGE,
                    **fields,
                },
            )
            if reply.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                break
            self.member_id = reply.member_id
        if reply.error_code == ErrorCode.NONE:
            self.member_id, self.generation = reply.member_id, reply.generation_id
        return reply

    async def sync(self, assignments: dict[str, bytes] | None = None) -> Any:
        return await self.ask(
            ApiKey.SYNC_GROUP,
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[{"member_id": one, "assignment": data} for one, data in (assignments or {}).items()],
        )

    async def settle(self) -> None:
        """Join and sync until this client is the only member of a stable group."""
        await self.join()
        reply = await self.sync({self.member_id: b"everything"})
        assert reply.error_code == ErrorCode.NONE

    async def topic_id(self, name: str) -> UUID:
        """Return the id of a topic, from the coordinator."""
        (topic,) = (await self.ask(ApiKey.METADATA, 12, topics=[{"name": name}])).topics
        assert topic.error_code == ErrorCode.NONE
        found: UUID = topic.topic_id
        return found

    async def heartbeat(self) -> ErrorCode:
        reply = await self.ask(
            ApiKey.HEARTBEAT, group_id=self.group, generation_id=self.generation, member_id=self.member_id
        )
        return ErrorCode(int(reply.error_code))

    async def commit(self, offset: int, topic: str = "orders", partition: int = 0, **fields: Any) -> ErrorCode:
        reply = await self.ask(
            ApiKey.OFFSET_COMMIT,
            **{
                "group_id": self.group,
                "generation_id_or_member_epoch": self.generation,
                "member_id": self.member_id,
                "topics": [
                    {
                        "name": topic,
                        "partitions": [{"partition_index": partition, "committed_offset": offset}],
                    }
                ],
                **fields,
            },
        )
        return ErrorCode(int(reply.topics[0].partitions[0].error_code))

    async def committed(self, topic: str = "orders", partition: int = 0, *, stable: bool = False) -> int:
        """Return the committed offset; -1 if no offset is committed. Raises AssertionError on any error."""
        row = await self.fetched(topic, partition, stable=stable)
        assert row.error_code == ErrorCode.NONE
        offset: int = row.committed_offset
        return offset

    async def fetched(self, topic: str = "orders", partition: int = 0, *, stable: bool = False) -> Any:
        """Return the result row of an OffsetFetch for one partition."""
        reply = await self.ask(
            ApiKey.OFFSET_FETCH,
            groups=[{"group_id": self.group, "topics": [{"name": topic, "partition_indexes": [partition]}]}],
            require_stable=stable,
        )
        (group,) = reply.groups
        assert group.error_code == ErrorCode.NONE, ErrorCode(int(group.error_code))
        return group.topics[0].partitions[0]
