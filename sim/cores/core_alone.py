"""When the faults are over, a core of the nodes must go on although what is outside of it stays as it is: dead, deaf or
mute. A schedule that heals everybody never sees a node that disturbs others for ever (X09 of the bank of bugs).
"""

from __future__ import annotations

from enum import Enum

from kraft.raft.state import Leader
from kraft.sim.cores.schedule import Stuck
from kraft.sim.cores.world import World

ELECTED_MS_MAX = 20_000
"""L1: all of the core know one leader, who has committed a record of its epoch."""
GOES_ON_MS_MAX = 20_000
"""L1: then it commits more: a fetch that a cut link has swallowed is missed after two seconds, and the leader may have
resigned by then."""
CAUGHT_UP_MS_MAX = 10_000
REST_MS = 20_000
"""L2: so long the epoch stays as it is: twenty election time-outs."""
STEPS_PER_NODE_AND_SECOND_MAX = 25
"""L12: of a quorum without clients, those outside included. A fetch each half second is four of them, also of an idle
observer, and who cannot be heard asks again at the backoff's pace: at most 12 were seen."""


class Outside(Enum):
    """What is permanent of a node outside the core. Who is dead may be started again, and is cut off all the same."""

    DEAD = "dead"
    DEAF = "deaf"
    MUTE = "mute"


class CoreAlone:
    """A random majority of the voters, and all observers, are well; the other voters are not any more."""

    def __init__(self, world: World) -> None:
        chance, voters = world.chance, [*world.voters.ids]
        self._world = world
        self._core: list[int] = []
        while len(self._core) * 2 <= len(world.voters):
            self._core.append(voters.pop(chance.below(len(voters))))
        kinds = [*Outside]
        self.outside = {node: kinds[chance.below(len(kinds))] for node in voters}

    @property
    def _inside(self) -> list[int]:
        return [node for node in self._world.nodes if node not in self.outside]

    def demand(self) -> None:
        """Nobody appends when this ends. Raises `Stuck`."""
        world = self._world
        self._leave_outside()
        world.start(*self._inside)
        world.run(max(0, *(world.nodes[node].paused_until - world.now for node in self._inside)))
        if not world.run_until(self.is_led, ELECTED_MS_MAX):
            raise Stuck(f"L1: the core {self._core} has no leader while {self._told} are outside")
        before = world.committed_end
        if not world.run_until(lambda: world.committed_end > before, GOES_ON_MS_MAX):
            raise Stuck(f"L1: nothing is committed in the core {self._core} while {self._told} are outside")
        world.stop_appends()
        if not world.run_until(self._is_caught_up, CAUGHT_UP_MS_MAX):
            raise Stuck(f"L11: not all of the core {self._core} caught up while {self._told} are outside")
        self._demand_rest()
        world.cut_for_good = frozenset()

    @property
    def _told(self) -> dict[int, str]:
        return {node: kind.value for node, kind in self.outside.items()}

    def _leave_outside(self) -> None:
        world = self._world
        for node, kind in self.outside.items():
            others = [other for other in world.nodes if other != node]
            if kind is not Outside.MUTE:
                world.cut_for_good |= {(other, node) for other in others}
            if kind is not Outside.DEAF:
                world.cut_for_good |= {(node, other) for other in others}
            if kind is Outside.DEAD:
                world.kill(node)
        world.heal()

    def _epoch(self) -> int:
        return max(raft.epoch for node in self._core if (raft := self._world.nodes[node].raft) is not None)

    def is_led(self) -> bool:
        """Whether all of the core know one leader of their own, who has committed a record of its epoch."""
        world, leader = self._world, self._world.leader
        if leader is None or leader.raft is None or leader.node_id not in self._core:
            return False
        role = leader.raft.role
        known = {(raft.leader_id, raft.epoch) for node in self._core if (raft := world.nodes[node].raft) is not None}
        is_committed = isinstance(role, Leader) and role.high_watermark is not None
        return is_committed and known == {(leader.node_id, leader.raft.epoch)}

    def _is_caught_up(self) -> bool:
        leader = self._world.leader
        end = -1 if leader is None else leader.disk.end
        inside = [self._world.nodes[node] for node in self._inside]
        return all(node.raft is not None and node.raft.high_watermark == end == node.disk.end for node in inside)

    def _demand_rest(self) -> None:
        world, epoch, steps = self._world, self._epoch(), self._world.steps
        world.run(REST_MS)
        if self._epoch() != epoch or not self.is_led():
            raise Stuck(f"L2: the core {self._core} went from epoch {epoch} to {self._epoch()}; outside: {self._told}")
        rate = (world.steps - steps) * 1_000 // (REST_MS * len(world.nodes))
        if rate > STEPS_PER_NODE_AND_SECOND_MAX:
            raise Stuck(f"L12: {rate} steps per node and second without a client; outside: {self._told}")
