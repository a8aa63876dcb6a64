"""The seam itself: one value that holds all of a node's outside world, and the current world's for client code."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass

from kraft.seam.clock import Clock, Random
from kraft.seam.disk import Disk
from kraft.seam.network import Network


@dataclass(frozen=True, slots=True)
class Seam:
    """What one node (or one client) may touch of the world. Production: `kraft.runtime`; simulation: `sim.world`."""

    clock: Clock
    random: Random
    network: Network
    disk: Disk


current_seam: ContextVar[Seam | None] = ContextVar("current_seam", default=None)
"""The seam of the world that this code runs in, set by the simulator; None in production. Public client classes read
it when they are given no seam."""
