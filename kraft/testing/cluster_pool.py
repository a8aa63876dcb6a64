"""ClusterPool: real clusters that are reused between the tests of a run.

Each test gets a cluster without topics or groups of earlier tests: a used one of the same shape if it could be reset,
else a fresh one. At most CLUSTERS_MAX are open at a time; the least recently used one is closed first.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress

from kraft.deploy.launch.errors import LaunchError
from kraft.sim.chaos.clusters.kafka_cluster import KafkaCluster
from kraft.sim.shapes import ClusterError

CLUSTERS_MAX = 2


class ClusterPool:
    """Open clusters by shape, least recently used first."""

    def __init__(self) -> None:
        self._clusters: dict[str, KafkaCluster] = {}

    def take(self, wanted: KafkaCluster) -> KafkaCluster:
        """Return an open cluster of the same shape as `wanted`; `wanted` itself is opened if there is none."""
        key = repr(wanted.shape)
        kept = self._clusters.pop(key, None)
        if kept is None or not _try_reset(kept):
            while len(self._clusters) >= CLUSTERS_MAX:
                self._clusters.pop(next(iter(self._clusters))).close()
            wanted.open()
            kept = wanted
        self._clusters[key] = kept
        return kept

    def close(self) -> None:
        with ExitStack() as closing:
            for cluster in self._clusters.values():
                closing.callback(cluster.close)
            self._clusters.clear()


def _try_reset(cluster: KafkaCluster) -> bool:
    """Reset this cluster and return whether it can be used again; it is closed if not."""
    is_reset = False
    try:
        with suppress(ClusterError, LaunchError):
            cluster.reset()
            is_reset = True
    finally:
        if not is_reset:
            cluster.close()
    return is_reset
