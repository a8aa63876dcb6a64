"""Errors with which a coordinator rejects a member of a consumer group (KIP-848) or a share group (KIP-932)
permanently, and what to do about each.

Source: ConsumerGroupHeartbeatResponse, Kafka's ConsumerHeartbeatRequestManager.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kraft.client.core.heartbeats import MemberSettings
from kraft.client.core.records import KafkaError
from kraft.wire.error_codes import ErrorCode

ADVICE: Mapping[ErrorCode, str] = MappingProxyType(
    {
        ErrorCode.UNRELEASED_INSTANCE_ID: (
            "another running member has the group.instance.id {instance}: stop that member or give this one another id"
        ),
        ErrorCode.FENCED_INSTANCE_ID: (
            "another member has joined with the group.instance.id {instance}: give each member an id of its own"
        ),
        ErrorCode.UNSUPPORTED_ASSIGNOR: (
            "the brokers do not have the assignor {assignor}: set group.remote.assignor to one of their "
            "group.consumer.assignors, or leave it out"
        ),
        ErrorCode.GROUP_MAX_SIZE_REACHED: (
            "the group is full: stop a member, or raise the brokers' group.consumer.max.size"
        ),
        ErrorCode.INVALID_REGULAR_EXPRESSION: (
            "the brokers use the syntax of RE2: change the pattern, or subscribe to a compiled pattern, which the "
            "client resolves"
        ),
        ErrorCode.GROUP_AUTHORIZATION_FAILED: "this client needs the right READ on the group",
        ErrorCode.UNSUPPORTED_VERSION: (
            "set group.protocol=classic, or upgrade the brokers and then the feature group.version to 1"
        ),
    }
)
"""What to do after each error, as far as it is not obvious from the coordinator's own text."""

SHARE_ADVICE: Mapping[ErrorCode, str] = MappingProxyType(
    {
        ErrorCode.GROUP_MAX_SIZE_REACHED: (
            "the group is full: stop a member, or raise the brokers' group.share.max.size"
        ),
        ErrorCode.GROUP_AUTHORIZATION_FAILED: "this client needs the right READ on the group",
        ErrorCode.UNSUPPORTED_VERSION: "upgrade the brokers, and then the feature share.version to 1",
    }
)
"""The same for a member of a share group."""


def membership_error(code: ErrorCode, message: str, settings: MemberSettings) -> KafkaError:
    """Return the error that `poll` raises. Its text has the coordinator's message and the advice for this error."""
    every = SHARE_ADVICE if settings.is_share_group else ADVICE
    advice = every.get(code, "").format(instance=settings.instance_id, assignor=settings.assignor)
    text = "; ".join(part for part in (message.rstrip(". "), advice) if part) or "the member was rejected"
    return KafkaError(code, f"group {settings.group_id}: {text}")
