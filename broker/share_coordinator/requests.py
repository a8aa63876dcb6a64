"""Requests to a share coordinator, and their replies, without the versions of Kafka's messages.

Each request is about one share partition. Source: KIP-932, KIP-1226.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from kraft.broker.share_coordinator.records import NO_EPOCH, ShareKey, ShareSnapshot
from kraft.broker.share_partition.states import StateBatch
from kraft.wire.error_codes import ErrorCode


class StateReply(NamedTuple):
    """Reply to every request. `state` is the state that a read found; it is None after an error, and for a summary of a
    share partition that is not initialized."""

    error: ErrorCode
    state: ShareSnapshot | None = None


Ticket = Callable[[Any], None]
"""Function that takes the reply to one request. It is called exactly once."""


class InitializeStateRequest(NamedTuple):
    """Begin the state of a share partition. `start_offset` is -1 if the leader finds the first offset."""

    key: ShareKey
    state_epoch: int
    start_offset: int

    def refused(self, error: ErrorCode) -> StateReply:
        return StateReply(error)


class ReadStateRequest(NamedTuple):
    """Read the state for a leader. Leaders of older epochs are fenced from then on."""

    key: ShareKey
    leader_epoch: int

    def refused(self, error: ErrorCode) -> StateReply:
        return StateReply(error)


class WriteStateRequest(NamedTuple):
    """Change the state. A field that is -1 does not change, and is not checked."""

    key: ShareKey
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]

    def refused(self, error: ErrorCode) -> StateReply:
        return StateReply(error)


class DeleteStateRequest(NamedTuple):
    """Delete the state if it is of an older epoch than this one; -1: whatever its epoch is."""

    key: ShareKey
    state_epoch: int = NO_EPOCH

    def refused(self, error: ErrorCode) -> StateReply:
        return StateReply(error)


class ReadSummaryRequest(NamedTuple):
    """Read the epochs and the start offset, without an effect on leaders."""

    key: ShareKey

    def refused(self, error: ErrorCode) -> StateReply:
        return StateReply(error)


Request = InitializeStateRequest | ReadStateRequest | WriteStateRequest | DeleteStateRequest | ReadSummaryRequest
