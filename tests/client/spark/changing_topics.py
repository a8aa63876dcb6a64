"""Functions that change topics while tests read them: growth, truncation, deletion, and recreation."""

from __future__ import annotations

import time
from contextlib import closing

import kafka
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.client.spark.topic_records import SECONDS_MAX, create_topic


def grow_topic(bootstrap: str, topic: str, partitions: int) -> None:
    """Add partitions to a topic, and wait until all of them have a leader."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(SECONDS_MAX)
    while True:
        known = admin.list_topics(topic=topic, timeout=SECONDS_MAX).topics[topic].partitions
        if len(known) == partitions and all(one.leader >= 0 for one in known.values()):
            return


def truncate_partition(bootstrap: str, topic: str, partition: int, before: int) -> None:
    """Delete the records of a partition below an offset."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = TopicPartition(topic, partition, before)
    for future in admin.delete_records([wanted]).values():
        future.result(SECONDS_MAX)


def delete_topic(bootstrap: str, topic: str) -> None:
    """Delete a topic, and wait until no broker has it in its metadata."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(SECONDS_MAX)
    deadline = time.monotonic() + SECONDS_MAX
    while topic in admin.list_topics(timeout=SECONDS_MAX).topics:
        assert time.monotonic() < deadline, f"{topic} is still there after {SECONDS_MAX} s"


def recreate_topic(bootstrap: str, topic: str, *, partitions: int = 1) -> None:
    """Delete a topic, and create another one with the same name."""
    delete_topic(bootstrap, topic)
    create_topic(bootstrap, topic, partitions=partitions)


def group_offsets(bootstrap: str, group_id: str, topic: str) -> dict[int, tuple[int, str]]:
    """Return (offset, metadata) by partition as the group has committed them for a topic. Uses kafka-python, because
    confluent-kafka reads beyond the end of the metadata."""
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=group_id, enable_auto_commit=False)
    with closing(consumer):
        partitions = consumer.partitions_for_topic(topic) or ()
        found = {index: consumer.committed(kafka.TopicPartition(topic, index), metadata=True) for index in partitions}
    return {index: (one.offset, one.metadata) for index, one in found.items() if one is not None}
