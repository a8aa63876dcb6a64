"""Blocks of producer ids. Invariant: an id is allocated once, also across failovers, because the end of the block is
committed before the block is handed out (M17).
"""

from __future__ import annotations

from kraft.control.commands import AllocateProducerIds
from kraft.control.decision import Context, Decision
from kraft.control.replies import AllocateProducerIdsReply
from kraft.image import MetadataImage
from kraft.image.events import ProducerIds
from kraft.wire.error_codes import ErrorCode

BLOCK_IDS = 1_000
PRODUCER_ID_MAX = (1 << 63) - 1


def decide_allocate_producer_ids(image: MetadataImage, _context: Context, command: AllocateProducerIds) -> Decision:
    """Allocate the next block for this broker."""
    broker = image.brokers.get(command.broker_id)
    if broker is None or broker.broker_epoch != command.broker_epoch:
        reply = AllocateProducerIdsReply(error_code=ErrorCode.STALE_BROKER_EPOCH)
        return Decision(reply=reply, depends_on=image.offset)
    first = image.next_producer_id
    if first > PRODUCER_ID_MAX - BLOCK_IDS:
        reply = AllocateProducerIdsReply(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
        return Decision(reply=reply, depends_on=image.offset)
    return Decision(
        events=(ProducerIds(command.broker_id, command.broker_epoch, first + BLOCK_IDS),),
        reply=AllocateProducerIdsReply(first_producer_id=first, count=BLOCK_IDS),
        depends_on=image.offset,
    )
