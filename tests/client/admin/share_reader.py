"""ShareReader: a member of a share group that reads topics through the requests of an admin client."""

from __future__ import annotations

from typing import Any

import trio

from kraft.client.admin import Admin
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

BEATS_MAX = 100
BEAT_SECONDS = 0.1


class ShareReader:
    """The member `m-1` of a share group."""

    def __init__(self, admin: Admin, group: str) -> None:
        self.admin = admin
        self.group = group

    async def _beat(self, epoch: int, topics: tuple[str, ...] = ()) -> Any:
        _, answer = await self.admin.groups._router.ask_coordinator(
            self.group,
            ApiKey.SHARE_GROUP_HEARTBEAT,
            lambda told: told.error_code,
            group_id=self.group,
            member_id="m-1",
            member_epoch=epoch,
            subscribed_topic_names=topics or None,
        )
        assert answer.error_code == ErrorCode.NONE, answer.error_message
        return answer

    async def join(self, *topics: str, partitions: int) -> None:
        """Join the group, which reads these topics, and stay until this many partitions are assigned."""
        epoch = 0
        for _ in range(BEATS_MAX):
            answer = await self._beat(epoch, topics)
            epoch = answer.member_epoch
            rows = () if answer.assignment is None else answer.assignment.topic_partitions
            if sum(len(row.partitions) for row in rows) == partitions:
                return
            await trio.sleep(BEAT_SECONDS)
        raise AssertionError(f"{partitions} partitions are not assigned")

    async def leave(self) -> None:
        await self._beat(-1)


async def make_share_group(admin: Admin, group: str, *topics: str, partitions: int) -> None:
    """Create a share group without members, which may read these topics."""
    reader = ShareReader(admin, group)
    await reader.join(*topics, partitions=partitions)
    await reader.leave()
