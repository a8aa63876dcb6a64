"""ClusterPool: the real clusters of a test run, kept from one test to the next.

A test gets a cluster that is as if it were new: an earlier one of the same shape that could be reset, else a fresh one.
At most CLUSTERS_MAX are open at a time; the one that was not used for longest goes first.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress

from kraft.deploy.launch.errors import LaunchError
from kraft.sim.chaos.clusters.kafka_cluster import KafkaCluster
from kraft.sim.shapes import ClusterError

CLUSTERS_MAX = 2


class ClusterPool:
    """Clusters by shape, in the order of their last use."""

    def __init__(self) -> None:
        self._clusters: dict[str, KafkaCluster] = {}

    def take(self, wanted: KafkaCluster) -> KafkaCluster:
        """An open cluster of the shape of `wanted`, which is opened itself if there is no other."""
        key = repr(wanted.shape)
        kept = self._clusters.pop(key, None)
        if kept is None or not _is_reset(kept):
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


def _is_reset(cluster: KafkaCluster) -> bool:
    """Whether this cluster can be used again; it is closed if not."""
    is_reset = False
    try:
        with suppress(ClusterError, LaunchError):
            cluster.reset()
            is_reset = True
    finally:
        if not is_reset:
            cluster.close()
    return is_reset
