"""Facts about topics of a cluster, as confluent-kafka's admin client sees them."""

from __future__ import annotations

import confluent_kafka
from confluent_kafka.admin import AdminClient, ConfigResource

from tests.stages.started_clusters import LocalCluster

ANSWER_SECONDS_MAX = 20


def partitions_of(cluster: LocalCluster, topic: str) -> int:
    """Return how many partitions a topic has; 0 if there is no such topic."""
    known = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=ANSWER_SECONDS_MAX).topics
    return len(known[topic].partitions) if topic in known else 0


def end_offset(cluster: LocalCluster, topic: str) -> int:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "none"})
    _start, end = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), timeout=ANSWER_SECONDS_MAX)
    consumer.close()
    return end


def config_of(cluster: LocalCluster, topic: str) -> dict[str, str]:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    found = admin.describe_configs([resource])[resource].result(timeout=ANSWER_SECONDS_MAX)
    return {key: entry.value for key, entry in found.items()}
