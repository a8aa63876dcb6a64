"""The settings of each share group: those of its GROUP resource, and the broker's for all others.

Source: KIP-932, Kafka's GroupConfig, ShareGroupConfig.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from kraft.broker.share_group.requests import ShareMembershipSettings
from kraft.broker.share_partition.states import ShareLimits
from kraft.config import NodeConfig, group_integer, group_value
from kraft.image import ConfigResourceType

if TYPE_CHECKING:
    from kraft.image import MetadataImage


class ShareGroupSettings(NamedTuple):
    """The settings of a share group that the leaders of its partitions use. `offset_reset` is the value of
    share.auto.offset.reset."""

    limits: ShareLimits
    offset_reset: str
    is_read_committed: bool
    may_renew: bool


def share_membership_settings(group: str, node: NodeConfig, image: MetadataImage) -> ShareMembershipSettings:
    """Return the settings of a share group's members. `node` includes the dynamic broker settings."""
    overrides = image.configs_of(ConfigResourceType.GROUP, group)
    return ShareMembershipSettings(
        session_timeout_ms=group_integer("share.session.timeout.ms", overrides, node),
        heartbeat_interval_ms=group_integer("share.heartbeat.interval.ms", overrides, node),
        assignment_interval_ms=group_integer("share.assignment.interval.ms", overrides, node),
        members_max=node.integer("group.share.max.size"),
        initialize_retry_ms=node.integer("group.share.initialize.retry.interval.ms"),
    )


def share_group_settings(overrides: Mapping[str, str], node: NodeConfig) -> ShareGroupSettings:
    """Return the settings of a share group with these overrides. `node` includes the dynamic broker settings."""
    return ShareGroupSettings(
        ShareLimits(
            delivery_count_max=group_integer("share.delivery.count.limit", overrides, node),
            record_locks_max=group_integer("share.partition.max.record.locks", overrides, node),
            lock_duration_ms=group_integer("share.record.lock.duration.ms", overrides, node),
        ),
        offset_reset=str(group_value("share.auto.offset.reset", overrides, node)),
        is_read_committed=group_value("share.isolation.level", overrides, node) == "read_committed",
        may_renew=bool(group_value("share.renew.acknowledge.enable", overrides, node)),
    )
