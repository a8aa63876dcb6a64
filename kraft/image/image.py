"""MetadataImage: the cluster's metadata at one offset of the metadata log, as an immutable value.

Two images at the same offset are equal on every node (invariant M1). Maps are persistent (rpds): a new image shares
everything that did not change. Persistent maps iterate in an order that differs between processes; use the sorted
accessors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from rpds import HashTrieMap

from kraft.image.registrations import BrokerRegistration, ConfigResourceType, ControllerRegistration
from kraft.image.topics import TopicsImage

ConfigKey = tuple[ConfigResourceType, str]

_NO_CONFIGS: Mapping[str, str] = MappingProxyType({})

METADATA_VERSION_FEATURE = "metadata.version"
ELR_FEATURE = "eligible.leader.replicas.version"
GROUP_FEATURE = "group.version"
SHARE_FEATURE = "share.version"
TRANSACTION_FEATURE = "transaction.version"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataImage:
    """All committed metadata (on the active controller, uncommitted metadata too).

    `offset` is the exclusive end: every event below it is replayed. `epoch` is the leader epoch of the last one.
    `release` names the release that introduced the finalized metadata.version, for messages to operators."""

    offset: int = 0
    epoch: int = 0
    cluster_id: str | None = None
    release: str | None = None
    features: HashTrieMap[str, int] = field(default_factory=HashTrieMap)
    brokers: HashTrieMap[int, BrokerRegistration] = field(default_factory=HashTrieMap)
    controllers: HashTrieMap[int, ControllerRegistration] = field(default_factory=HashTrieMap)
    topics: TopicsImage = field(default_factory=TopicsImage)
    configs: HashTrieMap[ConfigKey, Mapping[str, str]] = field(default_factory=HashTrieMap)
    next_producer_id: int = 0

    def broker_ids(self) -> list[int]:
        """Return the ids of all registered brokers, sorted."""
        return sorted(self.brokers)

    def sorted_brokers(self) -> Iterator[BrokerRegistration]:
        """Return all broker registrations, by id."""
        for broker_id in sorted(self.brokers):
            yield self.brokers[broker_id]

    def sorted_controllers(self) -> Iterator[ControllerRegistration]:
        """Return all controller registrations, by id."""
        for controller_id in sorted(self.controllers):
            yield self.controllers[controller_id]

    def sorted_config_keys(self) -> list[ConfigKey]:
        """Return the keys of all resources that have configs, sorted."""
        return sorted(self.configs)

    def is_active(self, broker_id: int) -> bool:
        """Return whether the broker is registered, unfenced and not shutting down."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.is_active

    def is_alive(self, broker_id: int) -> bool:
        """Return whether the broker is registered and unfenced, so that clients see it."""
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def configs_of(self, resource_type: ConfigResourceType, name: str) -> Mapping[str, str]:
        """Return the overrides of one resource; empty if it has none."""
        return self.configs.get((resource_type, name), _NO_CONFIGS)

    def topic_configs(self, name: str) -> Mapping[str, str]:
        """Return the overrides of a topic."""
        return self.configs_of(ConfigResourceType.TOPIC, name)

    def broker_configs(self, broker_id: int) -> Mapping[str, str]:
        """Return the dynamic configs in force at this broker: the cluster-wide defaults, overridden by the broker's
        configs."""
        defaults = self.configs_of(ConfigResourceType.BROKER, "")
        own = self.configs_of(ConfigResourceType.BROKER, str(broker_id))
        return {**defaults, **own} if own else defaults

    @property
    def metadata_version(self) -> int:
        """The finalized metadata.version; 0 before the cluster is bootstrapped."""
        return self.features.get(METADATA_VERSION_FEATURE, 0)


EMPTY_IMAGE = MetadataImage()
