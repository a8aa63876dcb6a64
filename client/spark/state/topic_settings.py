"""Async: the settings of topics that columns are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from kraft.client.admin import ConfigResource, ResourceType
from kraft.client.core.records import KafkaError
from kraft.client.spark.state.asking import Asking

NO_SETTINGS: Mapping[str, str | None] = MappingProxyType({})


async def ask_topic_settings(
    asking: Asking, topics: Iterable[str], setting_of: Mapping[str, str]
) -> dict[str, Mapping[str, str | None]]:
    """By topic: the settings that columns which are read need (`setting_of`: by column). A topic that is gone, or whose
    settings may not be read, has none."""
    names = sorted({setting for column, setting in setting_of.items() if asking.reads(column)})
    if not names:
        return {}
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    found = await asking.admin.configs.describe_each(resources, names=names)
    return {
        resource.name: {entry.name: entry.value for entry in entries}
        for resource, entries in found.items()
        if not isinstance(entries, KafkaError)
    }
