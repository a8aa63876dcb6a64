"""The throttle of a reassignment plan, on simulated clusters."""

from __future__ import annotations

from kraft.client.admin import ConfigResource, NewTopic, ResourceType
from kraft.client.admin.reassign_throttle import FOLLOWER_RATE, LEADER_RATE, set_throttle
from tests.stages.admin_client import Stage, play

PART = ("t", 0)


async def rates(stage: Stage, broker: int) -> set[str | None]:
    told = await stage.admin.configs.describe(ConfigResource(ResourceType.BROKER, str(broker)))
    return {entry.value for entry in told if entry.name in (LEADER_RATE, FOLLOWER_RATE)}


def test_a_throttled_move_works_with_an_unregistered_broker_in_the_plan() -> None:
    """The broker was unregistered while it had a replica, or the plan names a wrong broker id."""

    async def work(stage: Stage) -> None:
        await stage.admin.topics.create(NewTopic("t", assignment={0: [1, 2]}))
        stage.cluster.crash(2, lose_power=False, is_noticed=True)
        fenced = lambda: stage.cluster.image.brokers[2].fenced  # noqa: E731
        assert await stage.cluster.wait_until(fenced, 20_000)
        await stage.admin.nodes.unregister_broker(2)
        await set_throttle(stage.admin, {PART: (1, 2)}, {PART: (1, 3, 9)}, 1_000_000)
        for broker in (1, 3):
            assert await rates(stage, broker) == {"1000000"}

    play(work, brokers=3)
