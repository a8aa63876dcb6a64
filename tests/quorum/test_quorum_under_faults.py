"""Whole quorum drivers under crashes, power losses and partitions: committed values stay on every node, in order."""

from __future__ import annotations

import pytest

from kraft.quorum.quorum import NotLeader
from kraft.sim.world import World

from .test_quorum_in_world import Cluster


def snapshot(cluster: Cluster, n: int) -> None:
    """Have this node write a snapshot of what it has replayed."""
    member = cluster.members[n]
    replica = member.replica
    if member.quorum is not None and replica.values:
        member.quorum.request_snapshot(replica.next_offset, replica.epoch, [tuple(replica.values)])


async def write_under_faults(world: World, cluster: Cluster, duration_ms: int) -> list[bytes]:
    """Write continuously and inject faults from time to time. Return the values that were seen committed, in order."""
    chance = world.random.stream("write_under_faults")
    committed: list[bytes] = []
    down: dict[int, int] = {}
    end_ns = world.now_ns + duration_ms * 1_000_000
    number = 0
    while world.now_ns < end_ns:
        leader = cluster.leader
        if leader is not None and leader.quorum is not None:
            number += 1
            try:
                leader.quorum.append([b"%d" % number])
            except NotLeader:
                number -= 1
        await world.sleep_ms(10 + chance.below(20))
        for member in cluster.members.values():
            values = member.replica.values
            if len(values) > len(committed):
                assert values[: len(committed)] == committed
                committed = list(values)
        for n in [n for n, at in down.items() if at <= world.now_ns]:
            cluster.restart(n)
            del down[n]
        if chance.below(25) == 0:
            victim = 1 + chance.below(len(cluster.members))
            if leader is not None and chance.below(2):
                victim = leader.config.node_id
            if victim in down:
                continue
            if chance.below(3):
                cluster.kill(victim, power=bool(chance.below(2)))
                down[victim] = world.now_ns + chance.below(600) * 1_000_000
            else:
                for other in cluster.members:
                    if other != victim:
                        world.partition(f"c{victim}", f"c{other}")
        elif chance.below(40) == 0:
            world.heal_all()
        elif chance.below(10) == 0:
            snapshot(cluster, 1 + chance.below(len(cluster.members)))
    world.heal_all()
    for n in down:
        cluster.restart(n)
    return committed


@pytest.mark.parametrize("seed", range(8))
def test_committed_events_survive_crashes_power_losses_and_network_partitions(seed: int) -> None:
    async def main(world: World) -> None:
        limits = {"internal_metadata_log_segment_bytes": "1024", "metadata_max_retention_bytes": "1"}
        cluster = Cluster(world, voters=3 + seed % 2 * 2, observers=1, **(limits if seed % 4 < 2 else {}))
        cluster.start()
        await cluster.elect()
        committed = await write_under_faults(world, cluster, 7_000)
        assert len(committed) > 20
        await cluster.write(b"last")

        def all_equal() -> bool:
            first = cluster.members[1].replica.values
            return first[-1:] == [b"last"] and all(m.replica.values == first for m in cluster.members.values())

        await cluster.wait(all_equal, 20_000)
        values = cluster.members[1].replica.values
        assert values[: len(committed)] == committed
        assert len(set(values)) == len(values)
        assert all(member.replica.gaps == 0 for member in cluster.members.values())

    World(seed).run(main)
