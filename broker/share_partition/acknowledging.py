"""The checks of acknowledgements, before the records that they name are looked up.

Source: KIP-932, KIP-1222, Kafka's KafkaApis and SharePartition.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from kraft.broker.share_partition.states import AcknowledgementBatch, AcknowledgeType
from kraft.wire.error_codes import ErrorCode


class Acknowledgement(NamedTuple):
    """A member's report about the offsets in [first, end)."""

    first: int
    end: int
    type: AcknowledgeType


def are_well_formed(batches: Sequence[AcknowledgementBatch], *, may_renew: bool) -> bool:
    """Return whether each batch has known types, one or as many as offsets, and the batches ascend without overlap."""
    previous = -1
    for batch in batches:
        count = batch.last_offset - batch.first_offset + 1
        last_type = AcknowledgeType.RENEW if may_renew else AcknowledgeType.REJECT
        if batch.first_offset <= previous or count < 1 or len(batch.types) not in (1, count):
            return False
        if not all(AcknowledgeType.GAP <= one <= last_type for one in batch.types):
            return False
        previous = batch.last_offset
    return True


def check_acknowledgements(
    batches: Sequence[AcknowledgementBatch], start_offset: int, end_offset: int
) -> list[Acknowledgement] | ErrorCode:
    """Return the acknowledgements of the offsets at or after `start_offset`, in ascending order. Return INVALID_REQUEST
    if the batches are malformed or name an offset at or after `end_offset`."""
    if not are_well_formed(batches, may_renew=True) or any(batch.last_offset >= end_offset for batch in batches):
        return ErrorCode.INVALID_REQUEST
    found: list[Acknowledgement] = []
    for batch in batches:
        first, end = batch.first_offset, batch.last_offset + 1
        if len(batch.types) == 1:
            found.append(Acknowledgement(max(first, start_offset), end, AcknowledgeType(batch.types[0])))
            continue
        for one, group in groupby(batch.types):
            end = first + len(list(group))
            found.append(Acknowledgement(max(first, start_offset), end, AcknowledgeType(one)))
            first = end
    return [one for one in found if one.first < one.end]
