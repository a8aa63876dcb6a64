"""Seam: one value with all of a node's access to the outside world, and the current one for client code."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass

from kraft.seam.clock import Clock, Random
from kraft.seam.disk import Disk
from kraft.seam.network import Network


@dataclass(frozen=True, slots=True)
class Seam:
    """The access to the outside world that one node (or one client) has. Implemented by `kraft.runtime` in production
    and by `sim.world` in simulations."""

    clock: Clock
    random: Random
    network: Network
    disk: Disk


current_seam: ContextVar[Seam | None] = ContextVar("current_seam", default=None)
"""The seam of the simulated world that this code runs in, set by the simulator; None in production. Public client
classes use this seam if no seam is passed to them."""
