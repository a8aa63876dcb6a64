"""Configurations of topics, brokers and groups: what is set, from where, and incremental changes."""

from __future__ import annotations

from collections.abc import Iterable

from kraft.client.admin.routing import Router, require_success
from kraft.client.admin.values import ConfigChange, ConfigEntry, ConfigResource, ConfigSource, ResourceType
from kraft.wire.api_keys import ApiKey


class Configs:
    """What an admin client can do with configurations."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def describe(self, resource: ConfigResource, *, documentation: bool = False) -> tuple[ConfigEntry, ...]:
        """All settings of a resource, by name. A broker is asked itself."""
        row = {"resource_type": int(resource.type), "resource_name": resource.name, "configuration_keys": None}
        fields = {"resources": (row,), "include_synonyms": False, "include_documentation": documentation}
        if resource.name and resource.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
            answer = await self._router.ask_node(
                int(resource.name), ApiKey.DESCRIBE_CONFIGS, lambda told: told.results[0].error_code, **fields
            )
        else:
            answer = await self._router.ask_any(ApiKey.DESCRIBE_CONFIGS, **fields)
        require_success(answer.results[0], str(resource))
        return tuple(
            ConfigEntry(
                str(entry.name),
                entry.value,
                ConfigSource(max(int(entry.config_source), 0)),
                bool(entry.read_only),
                bool(entry.is_sensitive),
                entry.documentation,
            )
            for entry in sorted(answer.results[0].configs, key=lambda entry: str(entry.name))
        )

    async def alter(
        self, resource: ConfigResource, changes: Iterable[ConfigChange], *, validate_only: bool = False
    ) -> None:
        """Change settings, all or none. A broker sets the levels of its loggers itself."""
        configs = [
            {"name": change.name, "config_operation": int(change.operation), "value": change.value}
            for change in changes
        ]
        row = {"resource_type": int(resource.type), "resource_name": resource.name, "configs": configs}
        fields = {"resources": (row,), "validate_only": validate_only}
        key = ApiKey.INCREMENTAL_ALTER_CONFIGS
        if resource.type is ResourceType.BROKER_LOGGER:
            answer = await self._router.ask_node(
                int(resource.name), key, lambda told: told.responses[0].error_code, **fields
            )
        else:
            answer = await self._router.change(key, lambda told: told.responses[0].error_code, **fields)
        require_success(answer.responses[0], str(resource))

    async def resources(self, types: Iterable[ResourceType] = ()) -> tuple[ConfigResource, ...]:
        """Everything that has a configuration, of these types (none: of all)."""
        wanted = [int(one) for one in types]
        answer = await self._router.ask_any(ApiKey.LIST_CONFIG_RESOURCES, resource_types=wanted)
        require_success(answer, "the list of configurations")
        found = [
            ConfigResource(ResourceType(int(row.resource_type)), str(row.resource_name))
            for row in answer.config_resources
        ]
        return tuple(sorted(found, key=lambda resource: (resource.type, resource.name)))
