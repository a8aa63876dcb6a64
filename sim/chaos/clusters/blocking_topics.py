"""The verbs of `kraft.sim.prepared_topics` where they block: on a cluster of real processes, from any kind of test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial as bound

from kraft.client.core.records import ConsumerRecord, DeliveryReport
from kraft.sim import prepared_topics
from kraft.sim.breakable_cluster import BreakableCluster
from kraft.sim.chaos.clusters.onlooker import ask
from kraft.sim.shapes import Setting


class BlockingTopics(BreakableCluster):
    """See the module."""

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = -1,
        settings: Mapping[str, Setting] | None = None,
    ) -> None:
        """Create a topic; -1 replicas are as many as the cluster's default. KafkaError if it cannot be."""
        servers = self.bootstrap_servers
        ask(bound(prepared_topics.create_topic, servers, name, partitions, replication_factor, settings or {}))

    def produce(
        self, topic: str, values: Iterable[bytes | str], *, key: bytes | None = None, partition: int | None = None
    ) -> list[DeliveryReport]:
        """Write records, one by one, with acks=all; tells where each is."""
        return ask(bound(prepared_topics.produce, self.bootstrap_servers, topic, values, key, partition))

    def records(self, topic: str, *, partition: int | None = None) -> list[ConsumerRecord]:
        """All committed records, by partition and offset. ClusterError if they cannot be read."""
        return ask(bound(prepared_topics.read_records, self.bootstrap_servers, topic, partition))
