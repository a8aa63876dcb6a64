"""Pure: columns whose values exist only in the metadata log, such as epochs, directory ids, and a topic's creation.

Tables of the cluster's present state look up these values by a row's key. Tables as of a past point are built with the
same functions. Source: RegisterBrokerRecord, PartitionRecord.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any
from uuid import UUID

from kraft.client.metadata_log.replaying import LogPoint, TopicCreation
from kraft.client.spark.state.cells import id_text, known, time_of
from kraft.image import BrokerRegistration, PartitionState

NOT_CREATED = TopicCreation(-1, -1)
"""Creation values of a topic for which the log no longer has the creating event."""
Values = Mapping[tuple[Any, ...], Mapping[str, Any]]
"""Type: values by row key, then by column."""


def _ids(found: tuple[UUID, ...]) -> list[str | None]:
    return [id_text(one) for one in found]


BROKER_LOG_COLUMNS: Mapping[str, Callable[[BrokerRegistration], Any]] = MappingProxyType(
    {
        "epoch": lambda broker: broker.broker_epoch,
        "incarnation_id": lambda broker: id_text(broker.incarnation_id),
        "host_id": lambda broker: broker.host_id,
        "in_controlled_shutdown": lambda broker: broker.in_controlled_shutdown,
        "endpoints": lambda broker: [tuple(one) for one in broker.endpoints],
        "log_dir_ids": lambda broker: _ids(broker.log_dirs),
        "registered_offset": lambda broker: broker.broker_epoch,  # Kafka uses the record's offset as the epoch
    }
)
"""Columns of table `brokers` that only the metadata log has."""

TOPIC_LOG_COLUMNS: Mapping[str, Callable[[TopicCreation], Any]] = MappingProxyType(
    {
        "created_offset": lambda created: known(created.offset),
        "created": lambda created: time_of(created.timestamp_ms),
    }
)
"""Columns of table `topics` that only the metadata log has."""

PARTITION_LOG_COLUMNS: Mapping[str, Callable[[PartitionState], Any]] = MappingProxyType(
    {
        "partition_epoch": lambda state: state.partition_epoch,
        "recovery_state": lambda state: state.leader_recovery_state.name,
        "directories": lambda state: _ids(state.directories),
    }
)
"""Columns of table `partitions` that only the metadata log has."""


def directory_id(state: PartitionState, broker_id: int) -> str | None:
    """Return the value of column `directory_id` of table `replicas`."""
    found = state.directory_of(broker_id)
    return None if found is None else id_text(found)


def _broker_values(point: LogPoint, columns: tuple[str, ...]) -> Values:
    getters = {name: BROKER_LOG_COLUMNS[name] for name in columns}
    return {
        (broker.broker_id,): {name: get(broker) for name, get in getters.items()}
        for broker in point.image.sorted_brokers()
    }


def _topic_values(point: LogPoint, columns: tuple[str, ...]) -> Values:
    getters = {name: TOPIC_LOG_COLUMNS[name] for name in columns}
    created = ((topic.name, point.created.get(topic.topic_id, NOT_CREATED)) for topic in point.image.topics)
    return {(topic,): {name: get(where) for name, get in getters.items()} for topic, where in created}


def _partition_values(point: LogPoint, columns: tuple[str, ...]) -> Values:
    getters = {name: PARTITION_LOG_COLUMNS[name] for name in columns}
    return {
        (topic.name, index): {name: get(state) for name, get in getters.items()}
        for topic in point.image.topics
        for index, state in topic.partitions()
    }


def _replica_values(point: LogPoint, columns: tuple[str, ...]) -> Values:
    return {
        (topic.name, index, broker_id): {"directory_id": directory_id(state, broker_id)} if columns else {}
        for topic in point.image.topics
        for index, state in topic.partitions()
        for broker_id in state.replicas
    }


LOG_VALUES: Mapping[str, Callable[[LogPoint, tuple[str, ...]], Values]] = MappingProxyType(
    {
        "brokers": _broker_values,
        "topics": _topic_values,
        "partitions": _partition_values,
        "replicas": _replica_values,
    }
)
"""Table → function that returns the values of its metadata-log columns by row key."""
