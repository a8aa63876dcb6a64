"""Async: the table `configs`.

Brokers describe their own settings: a broker that is fenced has no rows, and one that is not, and does not answer, is
an error that names it. The value of a secret is NULL whatever a broker says, also among the synonyms.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from types import MappingProxyType
from typing import NamedTuple

from kraft.client.admin import ConfigEntry, ConfigResource, ConfigSource, ConfigType, ResourceType
from kraft.client.core.records import KafkaError
from kraft.client.spark.state.asking import Asking, Family, require_answers
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

TYPES = (ResourceType.TOPIC, ResourceType.BROKER, ResourceType.GROUP, ResourceType.CLIENT_METRICS)
ALL_BROKERS = ""
"""Name of the resource of type BROKER that holds what is set for all of them."""
VERSION_WITH_ALL_TYPES = 1
"""Of ListConfigResources (KIP-1142)."""
GONE = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.GROUP_ID_NOT_FOUND}
)


class ConfigRow(NamedTuple):
    """A setting of a resource."""

    resource: ConfigResource
    entry: ConfigEntry


async def ask_configs(asking: Asking) -> list[ConfigRow]:
    """Every setting of every resource that is wanted."""
    with_docs = asking.settings.with_docs and asking.reads("documentation")
    with_synonyms = asking.reads("synonyms")
    resources = await _resources(asking)
    configs = asking.admin.configs
    brokers = [one for one in resources if one.type is ResourceType.BROKER and one.name != ALL_BROKERS]
    outcomes = await asking.each(
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


async def _resources(asking: Asking) -> list[ConfigResource]:
    """What has settings and is wanted, by type and name."""
    types, names = asking.bounds.values("resource_type"), asking.bounds.values("resource")
    wanted = [kind for kind in TYPES if types is None or kind.name in types]
    found: list[ConfigResource] = []
    if ResourceType.TOPIC in wanted:
        found += await _topics(asking, names)
    if ResourceType.BROKER in wanted:
        brokers = [ALL_BROKERS, *map(str, await asking.live_brokers())]
        found += [ConfigResource(ResourceType.BROKER, name) for name in brokers]
    others = [kind for kind in wanted if kind in (ResourceType.GROUP, ResourceType.CLIENT_METRICS)]
    if others and asking.answers(ApiKey.LIST_CONFIG_RESOURCES, VERSION_WITH_ALL_TYPES):
        found += await asking.admin.configs.resources(others)
    return [one for one in found if names is None or one.name in names]


async def _topics(asking: Asking, names: Iterable[str] | None) -> list[ConfigResource]:
    topics = asking.admin.topics
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
            ask_configs,
        ),
    }
)
