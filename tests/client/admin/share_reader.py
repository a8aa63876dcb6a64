"""ShareReader: a member of a share group that reads topics through the requests of an admin client."""

from __future__ import annotations

from typing import Any

from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.stages.admin_client import Stage

BEATS_MAX = 100
BEAT_MS = 100


class ShareReader:
    """The member `m-1` of a share group."""

    def __init__(self, stage: Stage, group: str) -> None:
        self.stage = stage
        self.group = group
        self.epoch = 0

    async def _beat(self, epoch: int, topics: tuple[str, ...] = ()) -> Any:
        _, answer = await self.stage.admin.groups._router.ask_coordinator(
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
            await self.stage.cluster.world.sleep_ms(BEAT_MS)
        raise AssertionError(f"{partitions} partitions are not assigned")

    async def leave(self) -> None:
        await self._beat(-1)


async def make_share_group(stage: Stage, group: str, *topics: str, partitions: int) -> None:
    """Create a share group without members, which may read these topics."""
    reader = ShareReader(stage, group)
    await reader.join(*topics, partitions=partitions)
    await reader.leave()
