"""A simulated member of a consumer group (KIP-848). It sends one heartbeat at a time and owns what it is assigned."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.broker.coordinator.member import Member

HEARTBEAT = ApiKey.CONSUMER_GROUP_HEARTBEAT
LEAVES, LEAVES_FOR_A_WHILE = -1, -2
BEATS_MAX = 50


class ConsumerMember:
    """One client in a consumer group. `member` is its connection to the coordinator."""

    def __init__(self, member: Member, member_id: str) -> None:
        self.member = member
        self.member_id = member_id
        self.epoch = 0
        self.owned: dict[UUID, tuple[int, ...]] = {}

    async def beat(self, **fields: Any) -> Any:
        """Send a heartbeat with these fields, and take the epoch and the assignment of the reply."""
        reply = await self.member.ask(
            HEARTBEAT,
            1,
            **{
                "group_id": self.member.group,
                "member_id": self.member_id,
                "member_epoch": self.epoch,
                "instance_id": None,
                "rack_id": None,
                "rebalance_timeout": messages.duration(-1),
                "subscribed_topic_names": None,
                "subscribed_topic_regex": None,
                "server_assignor": None,
                "topic_partitions": [{"topic_id": one, "partitions": found} for one, found in self.owned.items()],
                **fields,
            },
        )
        if reply.error_code == ErrorCode.NONE:
            self.epoch = reply.member_epoch
            if reply.assignment is not None:
                self.owned = {row.topic_id: row.partitions for row in reply.assignment.topic_partitions}
        return reply

    async def join(self, *topics: str, **fields: Any) -> Any:
        self.epoch, self.owned = 0, {}
        return await self.beat(
            rebalance_timeout=messages.duration(30_000), subscribed_topic_names=list(topics), **fields
        )

    async def settle(self, partitions: int) -> None:
        """Send heartbeats until this member owns this number of partitions."""
        for _ in range(BEATS_MAX):
            if sum(map(len, self.owned.values())) == partitions:
                return
            reply = await self.beat()
            assert reply.error_code == ErrorCode.NONE, ErrorCode(int(reply.error_code))
        raise AssertionError(f"the member owns {self.owned}, not {partitions} partitions")

    async def leave(self, epoch: int = LEAVES) -> Any:
        return await self.beat(member_epoch=epoch, topic_partitions=None)
