"""DynamicConfigs: the effective settings of this broker. Settings for all brokers in the metadata override the node's
file, settings for this broker override both, and a topic's own settings override all.

Changes take effect when their image is published. A setting that this release cannot parse (the controller checked it,
so it comes from another release) is logged, and the previous setting stays effective.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from kraft.config import ConfigError, NodeConfig, TopicConfig
from kraft.image import ConfigResourceType, ImageDelta, MetadataImage

log = structlog.get_logger("kraft.broker.configs")

ChangeListener = Callable[[NodeConfig], None]


class DynamicConfigs:
    """The newest settings. `node` has the settings in this node's file, overridden by the dynamic broker settings."""

    def __init__(self, config: NodeConfig) -> None:
        self.static = config
        self.node = config
        self._image: MetadataImage | None = None
        self._topics: dict[str, TopicConfig] = {}
        self._without_overrides: TopicConfig | None = None
        """The settings of a topic without its own overrides, which most topics have."""
        self._listeners: list[ChangeListener] = []

    def on_change(self, listener: ChangeListener) -> None:
        """Register a callback that gets the changed node settings whenever they change."""
        self._listeners.append(listener)

    def apply(self, new: MetadataImage, delta: ImageDelta) -> None:
        """Apply a newer image."""
        self._image = new
        for topic_name in delta.deleted_topics.values():
            self._topics.pop(topic_name, None)
        mine = (ConfigResourceType.BROKER, str(self.static.node_id))
        brokers_changed = False
        for key in delta.configs:
            if key[0] is ConfigResourceType.TOPIC:
                self._topics.pop(key[1], None)
            elif key == mine or key == (ConfigResourceType.BROKER, ""):
                brokers_changed = True
        if brokers_changed:
            self._broker_settings_changed(new)

    def topic(self, name: str) -> TopicConfig:
        """Return the resolved settings of a topic, existing or not."""
        known = self._topics.get(name)
        if known is not None:
            return known
        overrides = {} if self._image is None else self._image.topic_configs(name)
        resolved = None if overrides else self._without_overrides
        if resolved is None:
            resolved = TopicConfig.resolve(overrides, self.dynamic_broker(), self.static)
            if not overrides:
                self._without_overrides = resolved
        self._topics[name] = resolved
        return resolved

    def dynamic_broker(self) -> dict[str, str]:
        """Return the effective dynamic broker settings: the cluster's, overridden by this broker's own."""
        return {} if self._image is None else dict(self._image.broker_configs(self.static.node_id))

    def boolean(self, key: str) -> bool:
        return self.node.boolean(key)

    def integer(self, key: str) -> int:
        return self.node.integer(key)

    def _broker_settings_changed(self, image: MetadataImage) -> None:
        self._topics.clear()
        self._without_overrides = None
        try:
            self.node = self.static.overlay(self.dynamic_broker())
        except ConfigError as error:
            log.error("a dynamic broker setting is not usable here", node_id=self.static.node_id, error=str(error))
            return
        for listener in self._listeners:
            listener(self.node)
