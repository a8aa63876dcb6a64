"""AlterConfigs, the older request: it replaces the whole configuration. It is decided as the incremental change with
the same result.

The cluster's min.insync.replicas stays even if it is not named, because eligible leader replicas depend on it.
Source: AlterConfigsRequest 0 to 2, KIP-133.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kraft.control.commands import AdminRequest
from kraft.control.configs.incremental import DELETE, MIN_INSYNC_REPLICAS, SET, decide_incremental_alter_configs
from kraft.control.decision import Context, Decision
from kraft.image import ConfigResourceType, MetadataImage
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey


def decide_alter_configs(image: MetadataImage, context: Context, command: AdminRequest) -> Decision:
    """Decide an AlterConfigs request of the newest version."""
    incremental = messages.build(
        messages.request_class(ApiKey.INCREMENTAL_ALTER_CONFIGS),
        resources=[_incremental(image, resource) for resource in command.request.resources],
        validate_only=command.request.validate_only,
    )
    decision = decide_incremental_alter_configs(image, context, replace(command, request=incremental))
    reply = messages.build(
        messages.response_class(ApiKey.ALTER_CONFIGS),
        responses=[
            {
                "error_code": one.error_code,
                "error_message": one.error_message,
                "resource_type": one.resource_type,
                "resource_name": one.resource_name,
            }
            for one in decision.reply.responses
        ],
    )
    return replace(decision, reply=reply)


def _incremental(image: MetadataImage, resource: Any) -> dict[str, Any]:
    """Return the operations that set the named keys and delete all others."""
    changes = [{"name": one.name, "config_operation": SET, "value": one.value} for one in resource.configs]
    named = {one.name for one in resource.configs}
    if resource.resource_type in ConfigResourceType._value2member_map_:
        type_ = ConfigResourceType(resource.resource_type)
        if type_ is ConfigResourceType.BROKER and resource.resource_name == "":
            named.add(MIN_INSYNC_REPLICAS)
        current = image.configs_of(type_, resource.resource_name)
        changes += [
            {"name": name, "config_operation": DELETE, "value": None} for name in sorted(current) if name not in named
        ]
    return {"resource_type": resource.resource_type, "resource_name": resource.resource_name, "configs": changes}
