"""What an IncrementalAlterConfigs that a broker hands on asks for, setting by setting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kraft.client.admin import ConfigOperation
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.rpc.controller_messages import ForwardRequest


class Setting(NamedTuple):
    """The place of one value. `resource_type` is a ResourceType; `resource` a topic, or a broker ("": all of them)."""

    resource_type: int
    resource: str
    name: str


Change = tuple[Setting, str | None]
"""A setting, and the value that it shall have; None: none any more."""


def changes_in(request: ForwardRequest) -> Iterator[Change]:
    """None of another request."""
    if request.forwarded_key != ApiKey.INCREMENTAL_ALTER_CONFIGS:
        return
    asked = messages.decode_request(ApiKey.INCREMENTAL_ALTER_CONFIGS, request.forwarded_version, request.body)
    for one in asked.resources:
        for config in one.configs:
            is_removal = config.config_operation == ConfigOperation.DELETE
            yield (
                Setting(int(one.resource_type), one.resource_name, config.name),
                None if is_removal else config.value,
            )
