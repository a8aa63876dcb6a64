"""Configurations of topics, brokers and groups: values, their sources, and incremental changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kraft.client.admin.nodes import Nodes
from kraft.client.admin.routing import Router, explain, require_success
from kraft.client.admin.values import (
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    ResourceType,
)
from kraft.client.core.records import KafkaError
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

RESOURCES_PER_REQUEST = 500
"""Maximum number of resources in one request. It limits the size of a response: the full description of a topic has
about 10 kB."""


class Configs:
    """Describe and change configurations."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def describe(
        self, resource: ConfigResource, *, documentation: bool = False, synonyms: bool = False
    ) -> tuple[ConfigEntry, ...]:
        """Return all settings of a resource, by name. The request for a broker's settings goes to that broker, and for
        a controller's loggers to that controller."""
        row = {"resource_type": int(resource.type), "resource_name": resource.name, "configuration_keys": None}
        fields = {"resources": (row,), "include_synonyms": synonyms, "include_documentation": documentation}
        if _has_own_answer(resource):
            answer = await self._ask_itself(
                resource, ApiKey.DESCRIBE_CONFIGS, lambda told: told.results[0].error_code, fields
            )
        else:
            answer = await self._router.ask_any(ApiKey.DESCRIBE_CONFIGS, **fields)
        require_success(answer.results[0], str(resource))
        return _read_entries(answer.results[0])

    async def describe_each(
        self,
        resources: Iterable[ConfigResource],
        *,
        names: Sequence[str] | None = None,
        documentation: bool = False,
        synonyms: bool = False,
    ) -> dict[ConfigResource, tuple[ConfigEntry, ...] | KafkaError]:
        """Return the settings of each of these resources or, for a resource that cannot be described, the error. If
        `names` is given, only these settings are returned. Resources must be ones that any broker can describe: topics,
        groups, or the defaults of all brokers. As few requests as possible are sent."""
        wanted = list(dict.fromkeys(resources))
        keys = None if names is None else list(names)
        found: dict[ConfigResource, tuple[ConfigEntry, ...] | KafkaError] = {}
        for first in range(0, len(wanted), RESOURCES_PER_REQUEST):
            rows = [
                {"resource_type": int(one.type), "resource_name": one.name, "configuration_keys": keys}
                for one in wanted[first : first + RESOURCES_PER_REQUEST]
            ]
            answer = await self._router.ask_any(
                ApiKey.DESCRIBE_CONFIGS,
                resources=rows,
                include_synonyms=synonyms,
                include_documentation=documentation,
            )
            for told in answer.results:
                resource = ConfigResource(ResourceType(int(told.resource_type)), str(told.resource_name))
                code = ErrorCode.of(int(told.error_code))
                why = f"{resource}: {told.error_message or explain(code)}"
                found[resource] = _read_entries(told) if code is ErrorCode.NONE else KafkaError(code, why)
        return found

    async def alter(
        self, resource: ConfigResource, changes: Iterable[ConfigChange], *, validate_only: bool = False
    ) -> None:
        """Change settings: all of them, or none if one is rejected. Log levels of a broker or controller are set by
        that node itself."""
        configs = [
            {"name": change.name, "config_operation": int(change.operation), "value": change.value}
            for change in changes
        ]
        row = {"resource_type": int(resource.type), "resource_name": resource.name, "configs": configs}
        fields = {"resources": (row,), "validate_only": validate_only}
        key = ApiKey.INCREMENTAL_ALTER_CONFIGS
        if resource.type is ResourceType.BROKER_LOGGER:
            answer = await self._ask_itself(resource, key, lambda told: told.responses[0].error_code, fields)
        else:
            answer = await self._router.change(key, lambda told: told.responses[0].error_code, **fields)
        require_success(answer.responses[0], str(resource))

    async def _ask_itself(
        self, resource: ConfigResource, key: ApiKey, error_of: Callable[[Any], Any], fields: Mapping[str, Any]
    ) -> Any:
        """Send the request to the node that is named as resource. The address of a broker comes from the metadata. The
        address of a controller, for requests about its loggers, comes from the description of the quorum."""
        node_id = int(resource.name)
        if resource.type is ResourceType.BROKER_LOGGER and not await self._router.is_broker(node_id):
            listeners = (await Nodes(self._router).quorum()).endpoints.get(node_id)
            if listeners:
                return await self._router.ask_at(listeners[0].address, key, error_of, **fields)
        return await self._router.ask_node(node_id, key, error_of, **fields)

    async def resources(self, types: Iterable[ResourceType] = ()) -> tuple[ConfigResource, ...]:
        """Return all resources that have a configuration. If `types` are given, return only resources of these
        types."""
        wanted = [int(one) for one in types]
        answer = await self._router.ask_any(ApiKey.LIST_CONFIG_RESOURCES, resource_types=wanted)
        require_success(answer, "the list of configurations")
        found = [
            ConfigResource(ResourceType(int(row.resource_type)), str(row.resource_name))
            for row in answer.config_resources
        ]
        return tuple(sorted(found, key=lambda resource: (resource.type, resource.name)))


def _has_own_answer(resource: ConfigResource) -> bool:
    """Whether this resource is a broker or a node's loggers, which only that node itself can describe."""
    return bool(resource.name) and resource.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER)


def _read_entries(told: Any) -> tuple[ConfigEntry, ...]:
    return tuple(
        ConfigEntry(
            str(entry.name),
            entry.value,
            _source(entry.config_source),
            bool(entry.read_only),
            bool(entry.is_sensitive),
            entry.documentation,
            ConfigType(int(entry.config_type)),
            tuple(ConfigSynonym(str(one.name), one.value, _source(one.source)) for one in entry.synonyms),
        )
        for entry in sorted(told.configs, key=lambda entry: str(entry.name))
    )


def _source(number: int) -> ConfigSource:
    return ConfigSource(max(int(number), 0))
