"""Checks of a hosted partition that several handlers share, in Kafka's order. Source: Kafka's Partition, KIP-320."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kraft.broker.partition.partition import Partition


def leader_epoch_error(partition: Partition, client_epoch: int) -> ErrorCode:
    """Compare a client's leader epoch with the partition's. Return FENCED_LEADER_EPOCH (74) if the client's is older
    and UNKNOWN_LEADER_EPOCH (75) if it is newer. An epoch of -1 is not checked (KIP-320)."""
    if client_epoch < 0:
        return ErrorCode.NONE
    epoch = partition.leader_epoch
    if client_epoch < epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH if client_epoch > epoch else ErrorCode.NONE
