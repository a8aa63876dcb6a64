"""The methods of `kraft.sim.prepared_topics` as blocking calls on a cluster of real processes, for tests of
any kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial as bound

from kraft.client.core.records import ConsumerRecord, DeliveryReport
from kraft.sim import prepared_topics
from kraft.sim.breakable_cluster import BreakableCluster
from kraft.sim.chaos.clusters.cluster_queries import ask
from kraft.sim.shapes import Setting


class BlockingTopics(BreakableCluster):
    """Blocking calls for topics and records; see the module."""

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = -1,
        settings: Mapping[str, Setting] | None = None,
    ) -> None:
        """Create a topic; -1 replicas means the cluster's default. Raises KafkaError if that fails."""
        servers = self.bootstrap_servers
        ask(bound(prepared_topics.create_topic, servers, name, partitions, replication_factor, settings or {}))

    def produce(
        self, topic: str, values: Iterable[bytes | str], *, key: bytes | None = None, partition: int | None = None
    ) -> list[DeliveryReport]:
        """Write records one by one with acks=all, and return the partition and offset of each."""
        return ask(bound(prepared_topics.produce, self.bootstrap_servers, topic, values, key, partition))

    def records(self, topic: str, *, partition: int | None = None) -> list[ConsumerRecord]:
        """Return all committed records by partition and offset. Raises ClusterError if they cannot be read."""
        return ask(bound(prepared_topics.read_records, self.bootstrap_servers, topic, partition))
