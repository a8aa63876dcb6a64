"""Reads the settings that an IncrementalAlterConfigs request changes, one by one, when a broker forwards the
request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kraft.client.admin import ConfigOperation
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.rpc.controller_messages import ForwardRequest


class SettingKey(NamedTuple):
    """Identifies one setting. `resource_type` is a ResourceType. `resource` is a topic, or a broker ("": all
    brokers)."""

    resource_type: int
    resource: str
    name: str


SettingChange = tuple[SettingKey, str | None]
"""A setting and its requested value; None removes the value."""


def changes_in(request: ForwardRequest) -> Iterator[SettingChange]:
    """Return the changes of settings in a request; empty if it is not an IncrementalAlterConfigs request."""
    if request.forwarded_key != ApiKey.INCREMENTAL_ALTER_CONFIGS:
        return
    asked = messages.decode_request(ApiKey.INCREMENTAL_ALTER_CONFIGS, request.forwarded_version, request.body)
    for one in asked.resources:
        for config in one.configs:
            is_removal = config.config_operation == ConfigOperation.DELETE
            yield (
                SettingKey(int(one.resource_type), one.resource_name, config.name),
                None if is_removal else config.value,
            )
