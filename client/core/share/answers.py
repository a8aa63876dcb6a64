"""Errors of share sessions: what they mean for acknowledgements, and their texts.

A write of the new state that the share coordinator cannot do now is retried. When the leader has changed, or the
session or its connection is lost, there is nothing to retry: the broker has released the records.
Source: ShareFetchResponse, ShareAcknowledgeResponse, Kafka's ShareConsumeRequestManager.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kraft.client.core.records import KafkaError, TopicPartition
from kraft.wire.error_codes import ErrorCode

RETRIED = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Errors of an acknowledgement after which it is sent again in the same session."""

SESSION_LOST = frozenset({ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH})
"""Errors of a whole response after which the next request opens a new session at once."""

MEANINGS: Mapping[ErrorCode, str] = MappingProxyType(
    {
        ErrorCode.INVALID_RECORD_STATE: "the lock of a record has run out, or it was acknowledged before",
        ErrorCode.NETWORK_EXCEPTION: "the connection to the broker was lost, which has released the records",
        ErrorCode.NOT_LEADER_OR_FOLLOWER: "the partition has a new leader, which delivers the records again",
        ErrorCode.FENCED_LEADER_EPOCH: "the partition has a new leader, which delivers the records again",
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "the topic was deleted",
        ErrorCode.UNKNOWN_TOPIC_ID: "the topic was deleted",
        ErrorCode.GROUP_AUTHORIZATION_FAILED: "this client needs the right READ on the group",
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: "this client needs the right READ on the topic",
        ErrorCode.REQUEST_TIMED_OUT: "the broker did not answer in time; they may have been carried out",
    }
)
"""What each error of acknowledgements means, as far as the broker's own text does not say it."""


def acknowledgement_error(partition: TopicPartition, code: ErrorCode, message: str = "") -> KafkaError:
    """Return the result of failed acknowledgements of a partition."""
    meaning = MEANINGS.get(code) or message.rstrip(". ") or "the broker has rejected them"
    return KafkaError(code, f"acknowledgements of {partition[0]}-{partition[1]} failed: {meaning}")
