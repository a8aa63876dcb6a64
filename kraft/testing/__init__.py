"""Synchronous: clusters for tests of applications, and the pytest plugin with its fixtures.

May import everything but kraft.deploy.cli. `KafkaCluster` runs real processes; `kraft.sim.SimulatedCluster` has the
same methods in a simulated world.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kraft.sim.breakable_cluster import Fault
    from kraft.sim.chaos.clusters.kafka_cluster import KafkaCluster
    from kraft.sim.shapes import ClusterError

__all__ = ["ClusterError", "Fault", "KafkaCluster"]


def __getattr__(name: str) -> Any:
    """Import lazily: pytest loads the plugin in every run, even if no test uses it."""
    if name == "KafkaCluster":
        from kraft.sim.chaos.clusters.kafka_cluster import KafkaCluster

        return KafkaCluster
    if name == "ClusterError":
        from kraft.sim.shapes import ClusterError

        return ClusterError
    if name == "Fault":
        from kraft.sim.breakable_cluster import Fault

        return Fault
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
