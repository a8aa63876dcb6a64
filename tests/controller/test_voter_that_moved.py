"""A voter that comes back at another address reports it to the leader (UpdateRaftVoter), and all nodes learn it from
the log.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest

from kraft.config import NodeConfig
from kraft.quorum.bootstrap_voters import write_bootstrap_checkpoint
from kraft.raft.identity import ReplicaKey, Voter, VoterSet
from kraft.seam import Address
from kraft.sim.world import World
from tests.stages.controllers import PORT, ControllerMember, controller_config

IDS = (1, 2, 3)
SOON_MS = 30_000


def config(node_id: int, port: int = PORT) -> NodeConfig:
    servers = ",".join(f"c{one}:{PORT}" for one in IDS)
    return controller_config(
        node_id,
        (),
        controller_quorum_voters="",
        controller_quorum_bootstrap_servers=servers,
        listeners=f"CONTROLLER://c{node_id}:{port}",
    )


def address_of(member: ControllerMember, node_id: int) -> Address | None:
    quorum = member.quorum
    voter = None if quorum is None else quorum.voters.find(node_id)
    return None if voter is None else voter.address


@pytest.mark.parametrize("is_leader", [False, True])
def test_voter_that_moved_is_reached_at_its_new_address(is_leader: bool) -> None:
    members = {node_id: ControllerMember(config(node_id)) for node_id in IDS}

    def leader() -> int | None:
        return next((at for at, one in members.items() if one.controller and one.controller.queue.is_active), None)

    async def main(world: World) -> None:
        async def until(condition: Callable[[], bool]) -> None:
            began = world.now_ns
            while not condition():
                assert world.now_ns - began < SOON_MS * 1_000_000
                await world.sleep_ms(10)

        first = VoterSet(tuple(Voter(ReplicaKey(one, UUID(int=1000 + one)), Address(f"c{one}", PORT)) for one in IDS))
        for node_id, member in members.items():
            seam = world.node(f"c{node_id}")
            write_bootstrap_checkpoint(seam.disk, member.config, first, seam.clock.wall_ms())
            world.start(f"c{node_id}", member.main)
        await until(lambda: leader() is not None)
        active = leader()
        moving = active if is_leader else next(one for one in IDS if one != active)
        assert moving is not None
        world.kill(f"c{moving}")
        members[moving].controller = None
        members[moving].config = config(moving, PORT + 7)
        world.restart(f"c{moving}")
        there = Address(f"c{moving}", PORT + 7)
        await until(lambda: all(address_of(member, moving) == there for member in members.values()))
        others = [one for one in IDS if one != moving]
        world.kill(f"c{others[0]}")
        members[others[0]].controller = None
        await until(lambda: leader() in (moving, others[1]))

    World(11).run(main)
