"""Heartbeats of a member of a share group. The member acts as one of a consumer group (KIP-848), but it reports no
owned partitions, because members may share them.

Source: ShareGroupHeartbeatRequest, Kafka's ShareHeartbeatRequestManager.
"""

from __future__ import annotations

from typing import Any

from kraft.client.core.heartbeats import ConsumerHeartbeat
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey


def share_heartbeat_message(heartbeat: ConsumerHeartbeat, _version: int) -> Any:
    """Return the request of a heartbeat."""
    return messages.build(
        messages.request_class(ApiKey.SHARE_GROUP_HEARTBEAT),
        group_id=heartbeat.settings.group_id,
        member_id=heartbeat.member_id,
        member_epoch=heartbeat.epoch,
        rack_id=heartbeat.settings.rack if heartbeat.is_full else None,
        subscribed_topic_names=heartbeat.names,
    )
