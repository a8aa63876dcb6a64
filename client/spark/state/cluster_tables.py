"""Async: the tables `log_dirs`, `features`, `apis` and `producers`.

In `log_dirs`, a broker that is fenced or does not respond is one row with the reason. `features` and `apis` need a
response of each broker that is not fenced; if one does not respond, an error names it.
"""

from __future__ import annotations

import time
from operator import attrgetter
from types import MappingProxyType
from typing import NamedTuple

from kraft.client.admin import Feature, LogDir, ProducerState
from kraft.client.spark.state.cells import known, time_of
from kraft.client.spark.state.table_query import Family, TableQuery, require_answers
from kraft.client.spark.state.topics import partitions_of, request_topic_descriptions, with_leader
from kraft.wire.api_keys import ApiKey
from kraft.wire.reply_policy import api_name


class LogDirRow(NamedTuple):
    """A log directory, or a broker whose directories are not available; `error` gives the reason."""

    broker: int
    error: str | None
    log_dir: LogDir | None

    @property
    def replicas(self) -> int | None:
        return None if self.log_dir is None else sum(not one.is_future for one in self.log_dir.replicas)

    @property
    def future_replicas(self) -> int | None:
        return None if self.log_dir is None else sum(one.is_future for one in self.log_dir.replicas)


async def request_log_dirs(query: TableQuery) -> list[LogDirRow]:
    wanted, nodes = query.bounds.values("broker_id"), query.admin.nodes
    brokers = [one for one in (await nodes.cluster()).brokers if wanted is None or one.node_id in wanted]
    up = [one.node_id for one in brokers if not one.is_fenced]
    outcomes = await query.each("broker", up, lambda broker: nodes.log_dirs([broker]))
    rows: list[LogDirRow] = []
    for broker in (one.node_id for one in brokers):
        dirs = outcomes.get(broker)
        if dirs is None:
            rows.append(LogDirRow(broker, f"broker {broker} is fenced: it is down, or has just started", None))
        elif isinstance(dirs, Exception):
            rows.append(LogDirRow(broker, str(dirs), None))
        else:
            rows += [LogDirRow(broker, one.error, one) for one in dirs]
    return rows


async def request_features(query: TableQuery) -> list[Feature]:
    """Return each feature with the range of levels that all brokers support."""
    brokers = await query.live_brokers()
    answers = require_answers(await query.each("broker", brokers, query.admin.nodes.features))
    found: dict[str, Feature] = {}
    for features in answers.values():
        for one in features:
            other = found.get(one.name, one)
            low, high = max(one.min_level, other.min_level), min(one.max_level, other.max_level)
            found[one.name] = Feature(one.name, one.level, low, high, one.epoch)
    return [found[name] for name in sorted(found)]


class ApiRow(NamedTuple):
    """The range of versions of one API that a broker supports."""

    broker: int
    api_key: int
    min_version: int
    max_version: int

    @property
    def api(self) -> str | None:
        known_keys = {int(key) for key in ApiKey}
        return api_name(ApiKey(self.api_key)) if self.api_key in known_keys else None


async def request_apis(query: TableQuery) -> list[ApiRow]:
    brokers = await query.live_brokers()
    answers = require_answers(await query.each("broker", brokers, query.admin.nodes.api_versions))
    return [
        ApiRow(broker, key, low, high)
        for broker, versions in answers.items()
        for key, (low, high) in sorted(versions.items())
    ]


class ProducerRow(NamedTuple):
    """A producer whose state a partition keeps; `asked_ms` is the time of the request."""

    topic: str
    partition: int
    state: ProducerState
    asked_ms: int

    @property
    def open_ms(self) -> int | None:
        if self.state.transaction_start is None or self.state.last_timestamp_ms < 0:
            return None
        return max(self.asked_ms - self.state.last_timestamp_ms, 0)


async def request_producers(query: TableQuery) -> list[ProducerRow]:
    """Return the producers of all partitions that have a leader."""
    parts = with_leader(partitions_of(query, await request_topic_descriptions(query)))
    found = await query.admin.partitions.producers(parts)
    asked_ms = int(time.time() * 1000)
    return [
        ProducerRow(topic, partition, state, asked_ms)
        for (topic, partition), states in sorted(found.items())
        for state in states
    ]


FAMILIES = MappingProxyType(
    {
        "log_dirs": Family(
            {
                "broker_id": attrgetter("broker"),
                "path": lambda row: None if row.log_dir is None else row.log_dir.path,
                "error": attrgetter("error"),
                "total_bytes": lambda row: None if row.log_dir is None else row.log_dir.total_bytes,
                "usable_bytes": lambda row: None if row.log_dir is None else row.log_dir.usable_bytes,
                "size_bytes": lambda row: None if row.log_dir is None else row.log_dir.size_bytes,
                "replicas": attrgetter("replicas"),
                "future_replicas": attrgetter("future_replicas"),
            },
            request_log_dirs,
        ),
        "features": Family(
            {
                "feature": attrgetter("name"),
                "level": attrgetter("level"),
                "min_level": attrgetter("min_level"),
                "max_level": attrgetter("max_level"),
                "epoch": attrgetter("epoch"),
            },
            request_features,
        ),
        "apis": Family(
            {
                "broker_id": attrgetter("broker"),
                "api_key": attrgetter("api_key"),
                "api": attrgetter("api"),
                "min_version": attrgetter("min_version"),
                "max_version": attrgetter("max_version"),
            },
            request_apis,
        ),
        "producers": Family(
            {
                "topic": attrgetter("topic"),
                "partition": attrgetter("partition"),
                "producer_id": attrgetter("state.producer_id"),
                "producer_epoch": attrgetter("state.producer_epoch"),
                "last_sequence": lambda row: known(row.state.last_sequence),
                "last_timestamp": lambda row: time_of(row.state.last_timestamp_ms),
                "coordinator_epoch": attrgetter("state.coordinator_epoch"),
                "transaction_start": attrgetter("state.transaction_start"),
                "open_ms": attrgetter("open_ms"),
            },
            request_producers,
        ),
    }
)
