"""The settings of one consumer group, from the GROUP resource of its id and, for all others, from the broker.

The driver passes a function from group id to settings. The coordinator calls it whenever it needs a setting, so a
change takes effect with the next heartbeat.
Source: Kafka's GroupCoordinatorConfig, GroupConfig, ConsumerGroupMigrationPolicy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


class MigrationPolicy(Enum):
    """Which groups may change their protocol online (`group.consumer.migration.policy`)."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def upgrades(self) -> bool:
        """Whether a classic group becomes a consumer group when the first consumer heartbeat comes."""
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def downgrades(self) -> bool:
        """Whether a consumer group becomes a classic group when its last member of the new protocol leaves."""
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


@dataclass(frozen=True, slots=True)
class ConsumerGroupSettings:
    """The settings of one consumer group. Times in ms."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 0
    """Shortest time between two target assignments of the group."""
    members_max: int = 2**31 - 1
    assignors: tuple[str, ...] = ("uniform", "range")
    """Names of the assignors that members may choose; the first is the default."""
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    regex_refresh_interval_ms: int = 600_000


DEFAULT_SETTINGS = ConsumerGroupSettings()
SettingsOf = Callable[[str], ConsumerGroupSettings]
"""Group id → settings of that group."""


def default_settings(group: str) -> ConsumerGroupSettings:
    """Return Kafka's defaults, for every group."""
    return DEFAULT_SETTINGS
