"""Checks that after the faults the in-sync replicas make progress while one broker stays dead, deaf (receives nothing)
or mute (sends nothing).

`kraft.sim.cores.core_alone` requires the same of the voters of a quorum.
"""

from __future__ import annotations

from kraft.image import PartitionState
from kraft.sim.cores.core_alone import OutsideFault
from kraft.sim.cores.replicas.world import ReplicaWorld
from kraft.sim.cores.schedule import NoProgressMade

SETTLED_MS_MAX = 10_000
"""Maximum time until one of the healthy replicas leads, and exactly the healthy replicas are in sync (L4 and L5)."""
REST_MS = 3_000
"""Time for which the leader must not change, and the faulty replica must stay out of sync, while producers write."""


class ReplicasAlone:
    """One random broker is faulty, the others are healthy. A deaf broker is never chosen if it leads, or if the
    controller may make it the preferred leader. As a deaf leader it would keep the leadership: the controller would
    receive its heartbeats, while it receives no fetches. Kafka behaves in the same way."""

    def __init__(self, world: ReplicaWorld) -> None:
        chance, kinds = world.chance, [*OutsideFault]
        self._world = world
        self.outside = 1 + chance.below(len(world.brokers))
        if self.outside in (world.state.leader, world.state.replicas[0]):
            kinds.remove(OutsideFault.DEAF)
        self.kind = kinds[chance.below(len(kinds))]

    def demand(self) -> None:
        """Require progress of the healthy replicas; raises `NoProgressMade`. The links of the faulty broker are
        restored when everything is healed."""
        world = self._world
        self._leave_outside()
        if not world.run_until(self._is_settled, SETTLED_MS_MAX):
            raise NoProgressMade(
                f"L5: without {self.kind.value} broker {self.outside} the partition is at {world.state}"
            )
        before, served = world.state, world.happened["acknowledged"]
        if world.run_until(lambda: not self._is_at_rest(before), REST_MS):
            raise NoProgressMade(f"L12: without {self.kind.value} broker {self.outside} {before} became {world.state}")
        if world.happened["acknowledged"] <= served:
            raise NoProgressMade(f"L7: nothing is acknowledged without {self.kind.value} broker {self.outside}")
        world.cut_for_good = frozenset()

    def _is_at_rest(self, before: PartitionState) -> bool:
        """Return whether leader and ISR are as required. A healthy replica with a slow disk may be out of sync for a
        while."""
        state = self._world.state
        return state.leader == before.leader and self.outside not in state.isr

    def _leave_outside(self) -> None:
        world, one = self._world, self.outside
        others = [other for other in (0, *world.brokers) if other != one]
        if self.kind is not OutsideFault.MUTE:
            world.cut_for_good |= {(other, one) for other in others}
        if self.kind is not OutsideFault.DEAF:
            world.cut_for_good |= {(one, other) for other in others}
        if self.kind is OutsideFault.DEAD:
            world.kill(one)
        world.heal()

    def _is_settled(self) -> bool:
        """Return whether leader and ISR are final. The controller periodically returns the partition to its preferred
        replica, if that is in sync."""
        core = {one for one in self._world.brokers if one != self.outside}
        state = self._world.state
        leaders = core & {state.replicas[0]} or core
        return self._world.leading is not None and state.leader in leaders and {*state.isr} == core
