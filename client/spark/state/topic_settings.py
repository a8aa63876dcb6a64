"""Async: request the topic settings from which columns are computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from kraft.client.admin import ConfigResource, ResourceType
from kraft.client.core.records import KafkaError
from kraft.client.spark.state.table_query import TableQuery

NO_SETTINGS: Mapping[str, str | None] = MappingProxyType({})


async def request_topic_settings(
    query: TableQuery, topics: Iterable[str], setting_of: Mapping[str, str]
) -> dict[str, Mapping[str, str | None]]:
    """Return, by topic, the settings that the columns being read need. `setting_of`: column → setting. A topic has no
    settings in the result if it was deleted, or if this client may not describe them."""
    names = sorted({setting for column, setting in setting_of.items() if query.reads(column)})
    if not names:
        return {}
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    found = await query.admin.configs.describe_each(resources, names=names)
    return {
        resource.name: {entry.name: entry.value for entry in entries}
        for resource, entries in found.items()
        if not isinstance(entries, KafkaError)
    }
