"""Async: the simulated implementation of the seam (kraft.seam): network, disk, clock and randomness of one seeded trio
run. May import kraft.seam and kraft.wire.

`World(seed).run(main)` is all that other packages need.
"""

from kraft.sim.world.incarnation import Incarnation
from kraft.sim.world.options import WorldOptions
from kraft.sim.world.tripwires import NotOfThisWorld
from kraft.sim.world.world import Deadlock, World

__all__ = ["Deadlock", "Incarnation", "NotOfThisWorld", "World", "WorldOptions"]
