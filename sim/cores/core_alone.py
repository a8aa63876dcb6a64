"""Checks that after the faults a healthy majority makes progress although the other nodes stay dead, deaf (receive
nothing) or mute (send nothing).

A schedule that heals all nodes never finds a node that disturbs others permanently (X09 of the bug bank).
"""

from __future__ import annotations

from enum import Enum

from kraft.raft.state import Leader
from kraft.sim.cores.schedule import NoProgressMade
from kraft.sim.cores.world import CoreWorld

ELECTED_MS_MAX = 20_000
"""Maximum time until all healthy nodes know one leader that has committed a record of its epoch (L1)."""
GOES_ON_MS_MAX = 20_000
"""Maximum time until the leader of the healthy nodes commits further records (L1). A fetch lost on a cut link times out
after two seconds, and the leader may have resigned by then."""
CAUGHT_UP_MS_MAX = 10_000
REST_MS = 20_000
"""Time for which the epoch must not change: twenty election timeouts (L2)."""
STEPS_PER_NODE_AND_SECOND_MAX = 25
"""Maximum steps per node and second in a quorum without clients, faulty nodes included (L12). A fetch each half second
takes four steps, also for an idle observer. A node that cannot be reached is retried with backoff. At most 12 were
observed."""


class OutsideFault(Enum):
    """Permanent fault of a node outside the healthy majority. A dead node may be started again, but it is
    then cut off."""

    DEAD = "dead"
    DEAF = "deaf"
    MUTE = "mute"


class CoreAlone:
    """A random majority of the voters, and all observers, are healthy; the other voters stay faulty."""

    def __init__(self, world: CoreWorld) -> None:
        chance, voters = world.chance, [*world.voters.ids]
        self._world = world
        self._core: list[int] = []
        while len(self._core) * 2 <= len(world.voters):
            self._core.append(voters.pop(chance.below(len(voters))))
        kinds = [*OutsideFault]
        self.outside = {node: kinds[chance.below(len(kinds))] for node in voters}

    @property
    def _inside(self) -> list[int]:
        return [node for node in self._world.nodes if node not in self.outside]

    def demand(self) -> None:
        """Require progress of the healthy nodes. When this returns, no client appends any more. Raises
        `NoProgressMade`."""
        world = self._world
        self._leave_outside()
        world.start(*self._inside)
        world.run(max(0, *(world.nodes[node].paused_until - world.now for node in self._inside)))
        if not world.run_until(self.is_led, ELECTED_MS_MAX):
            raise NoProgressMade(f"L1: the core {self._core} has no leader while {self._told} are outside")
        before = world.committed_end
        if not world.run_until(lambda: world.committed_end > before, GOES_ON_MS_MAX):
            raise NoProgressMade(f"L1: nothing is committed in the core {self._core} while {self._told} are outside")
        world.stop_appends()
        if not world.run_until(self._is_caught_up, CAUGHT_UP_MS_MAX):
            raise NoProgressMade(f"L11: not all of the core {self._core} caught up while {self._told} are outside")
        self._demand_rest()
        world.cut_for_good = frozenset()

    @property
    def _told(self) -> dict[int, str]:
        return {node: kind.value for node, kind in self.outside.items()}

    def _leave_outside(self) -> None:
        world = self._world
        for node, kind in self.outside.items():
            others = [other for other in world.nodes if other != node]
            if kind is not OutsideFault.MUTE:
                world.cut_for_good |= {(other, node) for other in others}
            if kind is not OutsideFault.DEAF:
                world.cut_for_good |= {(node, other) for other in others}
            if kind is OutsideFault.DEAD:
                world.kill(node)
        world.heal()

    def _epoch(self) -> int:
        return max(raft.epoch for node in self._core if (raft := self._world.nodes[node].raft) is not None)

    def is_led(self) -> bool:
        """Return whether all healthy nodes know one leader among them that has committed a record of its epoch."""
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
            raise NoProgressMade(
                f"L2: the core {self._core} went from epoch {epoch} to {self._epoch()}; outside: {self._told}"
            )
        rate = (world.steps - steps) * 1_000 // (REST_MS * len(world.nodes))
        if rate > STEPS_PER_NODE_AND_SECOND_MAX:
            raise NoProgressMade(f"L12: {rate} steps per node and second without a client; outside: {self._told}")
