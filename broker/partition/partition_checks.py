"""Checks that several handlers make of a hosted partition, in Kafka's order. Source: Kafka's Partition, KIP-320."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kraft.broker.partition.partition import Partition


def leader_epoch_error(partition: Partition, asked_epoch: int) -> ErrorCode:
    """The asker's leader epoch against ours: 74 if it is older, 75 if it is newer; -1 asks for no check (KIP-320)."""
    if asked_epoch < 0:
        return ErrorCode.NONE
    epoch = partition.leader_epoch
    if asked_epoch < epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH if asked_epoch > epoch else ErrorCode.NONE
