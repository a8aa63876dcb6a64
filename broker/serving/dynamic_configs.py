"""The settings in force at this broker: its file, under what the metadata log sets for all brokers and for this one,
under what it sets for a topic.

Changes take effect when their image is published. A setting that does not parse here (the controller checked it, so it
comes from another release) is logged and leaves the older one in force.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from kraft.config import ConfigError, NodeConfig, TopicConfig
from kraft.image import ConfigResourceType, ImageDelta, MetadataImage

log = structlog.get_logger("kraft.broker.configs")

ChangeListener = Callable[[NodeConfig], None]


class DynamicConfigs:
    """The newest settings. `node` is this node's file with the dynamic broker settings over it."""

    def __init__(self, config: NodeConfig) -> None:
        self.static = config
        self.node = config
        self._image: MetadataImage | None = None
        self._topics: dict[str, TopicConfig] = {}
        self._without_overrides: TopicConfig | None = None
        """What most topics have."""
        self._listeners: list[ChangeListener] = []

    def on_change(self, listener: ChangeListener) -> None:
        """Call back with the newest node settings whenever they change."""
        self._listeners.append(listener)

    def apply(self, new: MetadataImage, delta: ImageDelta) -> None:
        """A newer image is in force."""
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
        """The resolved settings of a topic, existing or not."""
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
        """The dynamic broker settings that hold here: the cluster's, then this broker's own."""
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
