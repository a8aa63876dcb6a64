"""Async: the table `configs`.

Each broker describes its own settings. A fenced broker has no rows; if any other broker does not respond, an error
names it. The value of a secret is NULL even if a broker reports it, also among the setting's synonyms.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from types import MappingProxyType
from typing import NamedTuple

from kraft.client.admin import ConfigEntry, ConfigResource, ConfigSource, ConfigType, ResourceType
from kraft.client.core.records import KafkaError
from kraft.client.spark.state.table_query import Family, TableQuery, require_answers
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

TYPES = (ResourceType.TOPIC, ResourceType.BROKER, ResourceType.GROUP, ResourceType.CLIENT_METRICS)
ALL_BROKERS = ""
"""Name of the BROKER resource that has the cluster-wide defaults of all brokers."""
VERSION_WITH_ALL_TYPES = 1
"""The first version of ListConfigResources that lists all types of resources (KIP-1142)."""
GONE = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.GROUP_ID_NOT_FOUND}
)


class ConfigRow(NamedTuple):
    """One setting of a resource."""

    resource: ConfigResource
    entry: ConfigEntry


async def request_configs(query: TableQuery) -> list[ConfigRow]:
    """Return all settings of the resources that the filters select."""
    with_docs = query.settings.with_docs and query.reads("documentation")
    with_synonyms = query.reads("synonyms")
    resources = await _resources(query)
    configs = query.admin.configs
    brokers = [one for one in resources if one.type is ResourceType.BROKER and one.name != ALL_BROKERS]
    outcomes = await query.each(
        "the settings of", brokers, lambda one: configs.describe(one, documentation=with_docs, synonyms=with_synonyms)
    )
    found: dict[ConfigResource, tuple[ConfigEntry, ...] | KafkaError] = {**require_answers(outcomes)}
    found |= await configs.describe_each(
        [one for one in resources if one not in outcomes], documentation=with_docs, synonyms=with_synonyms
    )
    rows: list[ConfigRow] = []
    for resource in resources:
        entries = found.get(resource, ())
        if isinstance(entries, KafkaError):
            if entries.code in GONE:
                continue
            raise entries
        rows += [ConfigRow(resource, entry) for entry in entries]
    return rows


async def _resources(query: TableQuery) -> list[ConfigResource]:
    """Return the resources that have settings and that the filters select, by type and name."""
    types, names = query.bounds.values("resource_type"), query.bounds.values("resource")
    wanted = [kind for kind in TYPES if types is None or kind.name in types]
    found: list[ConfigResource] = []
    if ResourceType.TOPIC in wanted:
        found += await _topics(query, names)
    if ResourceType.BROKER in wanted:
        brokers = [ALL_BROKERS, *map(str, await query.live_brokers())]
        found += [ConfigResource(ResourceType.BROKER, name) for name in brokers]
    others = [kind for kind in wanted if kind in (ResourceType.GROUP, ResourceType.CLIENT_METRICS)]
    if others and query.answers(ApiKey.LIST_CONFIG_RESOURCES, VERSION_WITH_ALL_TYPES):
        found += await query.admin.configs.resources(others)
    return [one for one in found if names is None or one.name in names]


async def _topics(query: TableQuery, names: Iterable[str] | None) -> list[ConfigResource]:
    topics = query.admin.topics
    listed = await (topics.list() if names is None else topics.describe(sorted(names), skip_unknown=True))
    return [ConfigResource(ResourceType.TOPIC, topic.name) for topic in listed]


def _value(row: ConfigRow) -> str | None:
    return None if row.entry.is_sensitive else row.entry.value


def _synonyms(row: ConfigRow) -> list[tuple[str, str | None, str]]:
    is_secret = row.entry.is_sensitive
    return [(one.name, None if is_secret else one.value, one.source.name) for one in row.entry.synonyms]


def _type(row: ConfigRow) -> str | None:
    return None if row.entry.type is ConfigType.UNKNOWN else row.entry.type.name


FAMILIES = MappingProxyType(
    {
        "configs": Family(
            {
                "resource_type": attrgetter("resource.type.name"),
                "resource": attrgetter("resource.name"),
                "name": attrgetter("entry.name"),
                "value": _value,
                "source": attrgetter("entry.source.name"),
                "is_default": lambda row: row.entry.source is ConfigSource.DEFAULT,
                "is_read_only": attrgetter("entry.is_read_only"),
                "is_sensitive": attrgetter("entry.is_sensitive"),
                "type": _type,
                "synonyms": _synonyms,
                "documentation": attrgetter("entry.documentation"),
            },
            request_configs,
        ),
    }
)
