"""When the faults are over and all replicas are in sync, the others must go on without one that is dead, deaf or mute
for good, as the voters of a quorum must (`kraft.sim.cores.core_alone`)."""

from __future__ import annotations

from kraft.image import PartitionState
from kraft.sim.cores.core_alone import Outside
from kraft.sim.cores.replicas.world import ReplicaWorld
from kraft.sim.cores.schedule import Stuck

SETTLED_MS_MAX = 10_000
"""L4 and L5: somebody of the core leads, and all of the core are in sync, and nobody else."""
REST_MS = 3_000
"""Then nobody else leads for so long, and who is outside stays out of sync, while producers go on."""


class ReplicasAlone:
    """A random broker is outside. Not a deaf one that leads, or that the controller may hand the partition back to: the
    controller hears it and it hears no follower, so it has the partition for itself, with Kafka as well."""

    def __init__(self, world: ReplicaWorld) -> None:
        chance, kinds = world.chance, [*Outside]
        self._world = world
        self.outside = 1 + chance.below(len(world.brokers))
        if self.outside in (world.state.leader, world.state.replicas[0]):
            kinds.remove(Outside.DEAF)
        self.kind = kinds[chance.below(len(kinds))]

    def demand(self) -> None:
        """Raises `Stuck`. The links of who was outside are whole again when everything is healed."""
        world = self._world
        self._leave_outside()
        if not world.run_until(self._is_settled, SETTLED_MS_MAX):
            raise Stuck(f"L5: without {self.kind.value} broker {self.outside} the partition is at {world.state}")
        before, served = world.state, world.happened["acknowledged"]
        if world.run_until(lambda: not self._is_at_rest(before), REST_MS):
            raise Stuck(f"L12: without {self.kind.value} broker {self.outside} {before} became {world.state}")
        if world.happened["acknowledged"] <= served:
            raise Stuck(f"L7: nothing is acknowledged without {self.kind.value} broker {self.outside}")
        world.cut_for_good = frozenset()

    def _is_at_rest(self, before: PartitionState) -> bool:
        """Who is well may be out of sync for a while, if its disk is slow."""
        state = self._world.state
        return state.leader == before.leader and self.outside not in state.isr

    def _leave_outside(self) -> None:
        world, one = self._world, self.outside
        others = [other for other in (0, *world.brokers) if other != one]
        if self.kind is not Outside.MUTE:
            world.cut_for_good |= {(other, one) for other in others}
        if self.kind is not Outside.DEAF:
            world.cut_for_good |= {(one, other) for other in others}
        if self.kind is Outside.DEAD:
            world.kill(one)
        world.heal()

    def _is_settled(self) -> bool:
        """The controller hands the partition back to its first replica, if that is in sync, when it looks for it."""
        core = {one for one in self._world.brokers if one != self.outside}
        state = self._world.state
        leaders = core & {state.replicas[0]} or core
        return self._world.leading is not None and state.leader in leaders and {*state.isr} == core
