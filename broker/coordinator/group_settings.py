"""The settings of each group: those of its GROUP resource, and the broker's for all others.

Source: Kafka's GroupConfigManager, GroupCoordinatorConfig.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

from kraft.broker.consumer_group.settings import ConsumerGroupSettings, MigrationPolicy
from kraft.config import NodeConfig, group_integer
from kraft.config.validators import GROUP_ASSIGNORS
from kraft.image import ConfigResourceType

if TYPE_CHECKING:
    from kraft.broker.serving.dynamic_configs import DynamicConfigs
    from kraft.image import MetadataImage


SettingsT = TypeVar("SettingsT")
KNOWN_MAX = 1_000
"""Maximum number of groups whose settings are kept. They are computed again when they are needed."""


class GroupSettingsLookup(Generic[SettingsT]):
    """Returns the newest settings of a group. Groups without settings of their own share one value."""

    def __init__(
        self,
        dynamic_configs: DynamicConfigs,
        newest_image: Callable[[], MetadataImage],
        compute: Callable[[Mapping[str, str], NodeConfig], SettingsT],
    ) -> None:
        """`compute(overrides, node)` returns the settings of a group with these overrides."""
        self._dynamic_configs = dynamic_configs
        self._newest_image = newest_image
        self._compute = compute
        self._node = dynamic_configs.node
        """The settings of the broker from which the following two were computed."""
        self._default = compute({}, self._node)
        self._by_group: dict[str, tuple[Mapping[str, str], SettingsT]] = {}
        """Group → its overrides, and its settings with these overrides. Only groups that have overrides."""

    def __len__(self) -> int:
        """Return the number of groups whose settings are kept."""
        return len(self._by_group)

    def of(self, group: str) -> SettingsT:
        """Return the settings of a group, existing or not."""
        node = self._dynamic_configs.node
        if node is not self._node:
            self._node = node
            self._default = self._compute({}, node)
            self._by_group.clear()
        overrides = self._newest_image().configs_of(ConfigResourceType.GROUP, group)
        if not overrides:
            self._by_group.pop(group, None)
            return self._default
        known = self._by_group.get(group)
        if known is None or known[0] is not overrides:
            if len(self._by_group) >= KNOWN_MAX:
                self._by_group.clear()
            known = self._by_group[group] = (overrides, self._compute(overrides, node))
        return known[1]


def consumer_group_settings(overrides: Mapping[str, str], node: NodeConfig) -> ConsumerGroupSettings:
    """Return the settings of a consumer group with these overrides. `node` includes the dynamic broker settings."""
    return ConsumerGroupSettings(
        session_timeout_ms=group_integer("consumer.session.timeout.ms", overrides, node),
        heartbeat_interval_ms=group_integer("consumer.heartbeat.interval.ms", overrides, node),
        assignment_interval_ms=group_integer("consumer.assignment.interval.ms", overrides, node),
        members_max=node.integer("group.consumer.max.size"),
        assignors=tuple(GROUP_ASSIGNORS.get(name, name) for name in node.list("group.consumer.assignors")),
        migration_policy=MigrationPolicy(node.string("group.consumer.migration.policy").lower()),
        regex_refresh_interval_ms=node.integer("group.consumer.regex.refresh.interval.ms"),
    )
