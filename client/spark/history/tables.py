"""Pure: rows of tables as of a past point of the metadata log.

Only requested columns are computed. Columns that need requests to live brokers are NULL. Settings in a node's own
configuration file are not in the log, so their defaults are shown instead. Source: RegisterBrokerRecord,
PartitionRecord, ConfigRecord, FeatureLevelRecord; KIP-966 (ELR).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import cached_property
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

from kraft.client.metadata_log.replaying import LogPoint, TopicCreation
from kraft.client.spark.history.log_columns import (
    BROKER_LOG_COLUMNS,
    NOT_CREATED,
    PARTITION_LOG_COLUMNS,
    TOPIC_LOG_COLUMNS,
    directory_id,
)
from kraft.client.spark.predicates import Bounds
from kraft.client.spark.state.cells import id_text, known, time_of
from kraft.config import BROKER_KEYS, TOPIC_KEYS, ConfigKey, ConfigValue, broker_key, topic_value
from kraft.config.errors import ConfigError
from kraft.config.secrets import is_secret_key
from kraft.image import BrokerRegistration, ConfigResourceType, MetadataImage, PartitionState, TopicImage

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


class View:
    """The metadata at a point of the log. Values that several rows need, such as counts per broker, are
    computed once."""

    def __init__(self, point: LogPoint, as_of_ms: int, *, with_docs: bool = False) -> None:
        self.image: MetadataImage = point.image
        self.created: Mapping[UUID, TopicCreation] = point.created
        self.as_of_offset = point.image.offset
        self.as_of: datetime | None = time_of(as_of_ms)
        self.with_docs = with_docs

    @cached_property
    def leaders(self) -> Counter[int]:
        """Broker id → number of partitions that it leads."""
        topics = self.image.topics
        return Counter(state.leader for topic in topics for leaf in topic.leaves for state in leaf)

    @cached_property
    def preferred(self) -> Counter[int]:
        """Broker id → number of partitions that have it as preferred leader."""
        counts: Counter[int] = Counter()
        for topic in self.image.topics:
            counts.update(topic.partition_counts.preferred)
        return counts

    def setting(self, topic: str, name: str) -> ConfigValue:
        """Return the effective value of a topic's setting: the topic's own, else the cluster-wide default of all
        brokers, else Kafka's default."""
        defaults = self.image.configs_of(ConfigResourceType.BROKER, "")
        return topic_value(name, self.image.topic_configs(topic), defaults, None)

    def min_insync(self, topic: str) -> int:
        value = self.setting(topic, "min.insync.replicas")
        return value if isinstance(value, int) else 1

    def is_offline(self, broker_id: int, state: PartitionState) -> bool:
        """Whether the replica's broker is fenced or not registered, or its log directory is offline."""
        broker = self.image.brokers.get(broker_id)
        if broker is None or broker.fenced:
            return True
        directory = state.directory_of(broker_id)
        return directory is not None and not broker.has_directory(directory)


class TopicAt(NamedTuple):
    view: View
    topic: TopicImage

    def count_of(self, is_so: Callable[[PartitionState], bool]) -> int:
        return sum(1 for leaf in self.topic.leaves for state in leaf if is_so(state))

    @property
    def created(self) -> TopicCreation:
        return self.view.created.get(self.topic.topic_id, NOT_CREATED)

    def under_min_isr(self) -> int:
        least = self.view.min_insync(self.topic.name)
        return self.count_of(lambda state: len(state.isr) < least)

    def setting(self, name: str) -> ConfigValue:
        return self.view.setting(self.topic.name, name)


class PartitionAt(NamedTuple):
    view: View
    topic: TopicImage
    number: int
    state: PartitionState
    min_insync: int


class ReplicaAt(NamedTuple):
    view: View
    topic: TopicImage
    number: int
    state: PartitionState
    broker_id: int
    position: int


class BrokerAt(NamedTuple):
    view: View
    broker: BrokerRegistration


class ConfigAt(NamedTuple):
    view: View
    kind: ConfigResourceType
    resource: str
    name: str
    value: str

    @property
    def key(self) -> ConfigKey | None:
        """The definition of this configuration key; None if no such key exists."""
        if self.kind is ConfigResourceType.TOPIC:
            return TOPIC_KEYS.get(self.name)
        if self.kind is not ConfigResourceType.BROKER:
            return None
        try:
            return BROKER_KEYS.get(self.name) or broker_key(self.name)
        except ConfigError:
            return None

    @property
    def source(self) -> str:
        if self.kind is not ConfigResourceType.BROKER:
            return self.kind.name
        return "DYNAMIC_BROKER" if self.resource else "DYNAMIC_DEFAULT_BROKER"

    @property
    def shown(self) -> str | None:
        return None if is_secret_key(self.name) else self.value


class FeatureAt(NamedTuple):
    view: View
    name: str

    def range(self) -> tuple[int, int] | None:
        """The levels of the feature that all brokers support; None if a broker does not know the feature, or no broker
        is registered."""
        ranges = [
            next(((one.min_level, one.max_level) for one in broker.features if one.name == self.name), None)
            for broker in self.view.image.sorted_brokers()
        ]
        reported = [levels for levels in ranges if levels is not None]
        if not reported or len(reported) < len(ranges):
            return None
        return max(low for low, _ in reported), min(high for _, high in reported)


Getter = Callable[[Any], Any]


def _then(first: Getter, second: Getter) -> Getter:
    return lambda row: second(first(row))


def _text(value: ConfigValue) -> str | None:
    return ",".join(value) if isinstance(value, tuple) else None if value is None else str(value)


def _is_under_replicated(state: PartitionState) -> bool:
    return len(state.isr) < len(state.replicas)


_BROKERS: Mapping[str, Getter] = MappingProxyType(
    {
        "broker_id": lambda row: row.broker.broker_id,
        "host": lambda row: row.broker.endpoints[0].host if row.broker.endpoints else None,
        "port": lambda row: row.broker.endpoints[0].port if row.broker.endpoints else None,
        "rack": lambda row: row.broker.rack,
        "is_fenced": lambda row: row.broker.fenced,
        "leaders": lambda row: row.view.leaders[row.broker.broker_id],
        "replicas": lambda row: row.view.image.topics.replica_counts.get(row.broker.broker_id, 0),
        "preferred_leaders": lambda row: row.view.preferred[row.broker.broker_id],
        **{name: _then(attrgetter("broker"), get) for name, get in BROKER_LOG_COLUMNS.items()},
    }
)

_TOPICS: Mapping[str, Getter] = MappingProxyType(
    {
        "topic": lambda row: row.topic.name,
        "topic_id": lambda row: id_text(row.topic.topic_id),
        "is_internal": lambda row: row.topic.name in INTERNAL_TOPICS,
        "partitions": lambda row: row.topic.partition_count,
        "replication_factor": lambda row: max(
            (len(state.replicas) for leaf in row.topic.leaves for state in leaf), default=0
        ),
        "under_replicated": lambda row: row.count_of(_is_under_replicated),
        "under_min_isr": lambda row: row.under_min_isr(),
        "leaderless": lambda row: row.count_of(lambda state: state.leader < 0),
        "min_insync_replicas": lambda row: row.setting("min.insync.replicas"),
        "cleanup_policy": lambda row: _text(row.setting("cleanup.policy")),
        "retention_ms": lambda row: row.setting("retention.ms"),
        "retention_bytes": lambda row: row.setting("retention.bytes"),
        **{name: _then(lambda row: row.created, get) for name, get in TOPIC_LOG_COLUMNS.items()},
    }
)

_PARTITIONS: Mapping[str, Getter] = MappingProxyType(
    {
        "topic": lambda row: row.topic.name,
        "topic_id": lambda row: id_text(row.topic.topic_id),
        "partition": lambda row: row.number,
        "leader": lambda row: known(row.state.leader),
        "leader_epoch": lambda row: row.state.leader_epoch,
        "replicas": lambda row: list(row.state.replicas),
        "isr": lambda row: list(row.state.isr),
        "offline_replicas": lambda row: [one for one in row.state.replicas if row.view.is_offline(one, row.state)],
        "elr": lambda row: list(row.state.elr),
        "last_known_elr": lambda row: list(row.state.last_known_elr),
        "adding": lambda row: list(row.state.adding) if row.state.is_reassigning else None,
        "removing": lambda row: list(row.state.removing) if row.state.is_reassigning else None,
        "preferred_leader": lambda row: row.state.replicas[0] if row.state.replicas else None,
        "is_preferred_led": lambda row: row.state.replicas[:1] == (row.state.leader,),
        "is_under_replicated": lambda row: _is_under_replicated(row.state),
        "is_under_min_isr": lambda row: len(row.state.isr) < row.min_insync,
        "is_offline": lambda row: row.state.leader < 0,
        **{name: _then(attrgetter("state"), get) for name, get in PARTITION_LOG_COLUMNS.items()},
    }
)

_REPLICAS: Mapping[str, Getter] = MappingProxyType(
    {
        "topic": lambda row: row.topic.name,
        "partition": lambda row: row.number,
        "broker_id": lambda row: row.broker_id,
        "position": lambda row: row.position,
        "is_leader": lambda row: row.state.leader == row.broker_id,
        "is_in_sync": lambda row: row.broker_id in row.state.isr,
        "is_offline": lambda row: row.view.is_offline(row.broker_id, row.state),
        "is_eligible": lambda row: row.broker_id in row.state.elr,
        "is_adding": lambda row: row.broker_id in row.state.adding if row.state.is_reassigning else None,
        "is_removing": lambda row: row.broker_id in row.state.removing if row.state.is_reassigning else None,
        "directory_id": lambda row: directory_id(row.state, row.broker_id),
    }
)

_CONFIGS: Mapping[str, Getter] = MappingProxyType(
    {
        "resource_type": lambda row: row.kind.name,
        "resource": lambda row: row.resource,
        "name": lambda row: row.name,
        "value": lambda row: row.shown,
        "source": lambda row: row.source,
        "is_default": lambda row: False,
        "is_read_only": lambda row: False,
        "is_sensitive": lambda row: is_secret_key(row.name),
        "type": lambda row: None if row.key is None else row.key.type.name,
        "synonyms": lambda row: [(row.name, row.shown, row.source)],
        "documentation": lambda row: row.key.doc if row.view.with_docs and row.key is not None else None,
    }
)

_FEATURES: Mapping[str, Getter] = MappingProxyType(
    {
        "feature": lambda row: row.name,
        "level": lambda row: row.view.image.features.get(row.name),
        "min_level": lambda row: (row.range() or (None, None))[0],
        "max_level": lambda row: (row.range() or (None, None))[1],
        "epoch": lambda row: row.view.image.offset,
    }
)


def _brokers(view: View, bounds: Bounds) -> Iterator[BrokerAt]:
    for broker in view.image.sorted_brokers():
        if bounds.admits("broker_id", broker.broker_id):
            yield BrokerAt(view, broker)


def _topics(view: View, bounds: Bounds) -> Iterator[TopicAt]:
    names = bounds.values("topic")
    found = view.image.topics if names is None else (view.image.topics.get(name) for name in sorted(names))
    for topic in found:
        if topic is not None and bounds.admits("topic", topic.name):
            yield TopicAt(view, topic)


def _partitions(view: View, bounds: Bounds) -> Iterator[PartitionAt]:
    for _, topic in _topics(view, bounds):
        min_insync = view.min_insync(topic.name)
        for index, state in topic.partitions():
            if bounds.admits("partition", index):
                yield PartitionAt(view, topic, index, state, min_insync)


def _replicas(view: View, bounds: Bounds) -> Iterator[ReplicaAt]:
    for row in _partitions(view, bounds):
        for position, broker_id in enumerate(row.state.replicas):
            if bounds.admits("broker_id", broker_id):
                yield ReplicaAt(view, row.topic, row.number, row.state, broker_id, position)


def _configs(view: View, bounds: Bounds) -> Iterator[ConfigAt]:
    for kind, resource in view.image.sorted_config_keys():
        if bounds.admits("resource_type", kind.name) and bounds.admits("resource", resource):
            for name, value in sorted(view.image.configs_of(kind, resource).items()):
                yield ConfigAt(view, kind, resource, name, value)


def _features(view: View, bounds: Bounds) -> Iterator[FeatureAt]:
    names = {one.name for broker in view.image.sorted_brokers() for one in broker.features}
    for name in sorted(names | set(view.image.features)):
        yield FeatureAt(view, name)


_TABLES: Mapping[str, tuple[Callable[[View, Bounds], Iterator[Any]], Mapping[str, Getter]]] = MappingProxyType(
    {
        "brokers": (_brokers, _BROKERS),
        "topics": (_topics, _TOPICS),
        "partitions": (_partitions, _PARTITIONS),
        "replicas": (_replicas, _REPLICAS),
        "configs": (_configs, _CONFIGS),
        "features": (_features, _FEATURES),
    }
)
"""Table → (function that lists its items at a point, function per column that computes an item's value)."""
_AS_OF: Mapping[str, Getter] = MappingProxyType(
    {
        "as_of_offset": lambda row: row.view.as_of_offset,
        "as_of": lambda row: row.view.as_of,
    }
)


def rows_at(table: str, columns: tuple[str, ...], view: View, bounds: Bounds) -> Iterator[tuple[Any, ...]]:
    """Return the rows of a table as of the view's point, with these columns. The result may include rows that `bounds`
    excludes."""
    items, of_table = _TABLES[table]
    getters = [of_table.get(name) or _AS_OF.get(name) or _null for name in columns]
    for item in items(view, bounds):
        yield tuple([get(item) for get in getters])


def _null(row: Any) -> None:
    """Return NULL: a table as of the past has no values of columns that need requests to live brokers."""
