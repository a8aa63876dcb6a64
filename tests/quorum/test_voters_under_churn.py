"""Voters are added and removed at random while controllers crash and links are cut. The invariant checks run meanwhile,
and the cluster recovers afterwards.
"""

from __future__ import annotations

import pytest

from kraft.client import KafkaError
from kraft.client.admin import NewTopic
from kraft.client.cluster import ClusterUnreachable
from kraft.client.connections import TimedOut

from .voters import Voters, address, directory, play

CONTROLLERS = (101, 102, 103, 104, 105)
STEPS = 14


async def change(voters: Voters, node: int, *, add: bool) -> None:
    """Request one change; the cluster may refuse it."""
    try:
        if add:
            await voters.admin.nodes.add_voter(node, directory(node), address(node))
        else:
            await voters.admin.nodes.remove_voter(node, directory(node))
    except (KafkaError, ClusterUnreachable, TimedOut):
        return


def can_lose(voters: Voters, node: int) -> bool:
    """Return whether a majority of the latest voter set that any node has is still up without this controller."""
    cluster = voters.cluster
    sets = [eye.node.quorum.voters.ids for at, eye in cluster.watch.nodes.items() if at in CONTROLLERS]
    up = {one for one in CONTROLLERS if cluster.is_running(one) and one != node}
    return all(2 * len(up & {*one}) > len(one) for one in sets)


@pytest.mark.parametrize("seed", range(6))
def test_quorum_keeps_committed_records_under_random_voter_changes_and_faults(seed: int) -> None:
    async def work(voters: Voters) -> None:
        cluster, world = voters.cluster, voters.cluster.world
        random = world.random.stream("churn")
        for step in range(STEPS):
            node = CONTROLLERS[random.below(len(CONTROLLERS))]
            kind = random.below(6)
            if kind < 2:
                await change(voters, node, add=True)
            elif kind == 2:
                await change(voters, node, add=False)
            elif kind == 3 and cluster.is_running(node) and can_lose(voters, node):
                cluster.crash(node, lose_power=bool(random.below(2)), is_noticed=True)
            elif kind == 4 and not cluster.is_running(node):
                cluster.start(node)
            else:
                other = CONTROLLERS[random.below(len(CONTROLLERS))]
                if other != node:
                    world.partition(f"node-{node}", f"node-{other}")
                await world.sleep_ms(random.below(3_000))
                world.heal_all()
            if not step % 4:
                await world.sleep_ms(random.below(1_000))
        world.heal_all()
        for node in cluster.down:
            cluster.start(node)
        await voters.wait(lambda: not cluster.trouble(), 30_000)
        await voters.admin.topics.create(NewTopic("after", 1, 1))
        assert 1 <= len(await voters.ids()) <= len(CONTROLLERS)

    play(work, controllers=5, seed=100 + seed, timeout_ms=4_000)
