"""Async: whole clusters in one process under virtual time, and the checks over them.

May import everything but kraft.deploy.cli; sim.world never imports kraft.runtime. `SimulatedCluster` is for users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kraft.sim.simulated_cluster import SimulatedCluster

__all__ = ["SimulatedCluster"]


def __getattr__(name: str) -> Any:
    """Import it when it is asked for: the world alone does not bring a broker along."""
    if name in __all__:
        from kraft.sim.simulated_cluster import SimulatedCluster

        return SimulatedCluster
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
