"""Async: whole clusters in one process under virtual time, and the checks over them.

May import everything but kraft.deploy.cli; sim.world never imports kraft.runtime. `SimulatedCluster` is for users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kraft.sim.simulated_cluster import SimulatedCluster

__all__ = ["SimulatedCluster"]


def __getattr__(name: str) -> Any:
    """Import a public name of this package on its first use, so that a program that uses only `kraft.sim.world` does
    not import a broker."""
    if name in __all__:
        from kraft.sim.simulated_cluster import SimulatedCluster

        return SimulatedCluster
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
