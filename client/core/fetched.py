"""From the bytes of a Fetch answer to records: skip, filter aborted transactions, move the position.

Source: broker-spec 1.3 and 1.10. Offsets taken by control records and by holes are stepped over.
"""

from __future__ import annotations

from kraft.client.core.records import ConsumerRecord, TopicPartition
from kraft.client.core.requests import FetchedPartition, FetchPosition
from kraft.seam import WireError
from kraft.wire.control_records import ControlRecordType, decode_control
from kraft.wire.records import check_crc, decode_batch, iter_headers

DECOMPRESSED_BYTES_MAX = 256 * 1024 * 1024


def decode_fetched(
    topic_partition: TopicPartition, part: FetchedPartition, asked: FetchPosition, *, read_committed: bool
) -> tuple[list[ConsumerRecord], FetchPosition]:
    """The visible records at or after `asked.offset`, and the position after the last whole batch.

    WireError if a batch's CRC does not match."""
    topic, partition = topic_partition
    aborted = sorted(part.aborted, key=lambda entry: entry[1])
    active: set[int] = set()
    records: list[ConsumerRecord] = []
    position = asked
    for at, header in iter_headers(part.records):
        if header.next_offset <= asked.offset:
            continue
        if not check_crc(part.records, at, header):
            raise WireError(f"{topic}-{partition}: the batch at offset {header.base_offset} fails its CRC-32C")
        while aborted and aborted[0][1] <= header.last_offset:
            active.add(aborted.pop(0)[0])
        position = FetchPosition(header.next_offset, header.partition_leader_epoch)
        if header.is_control:
            if decode_control(part.records, at).type is ControlRecordType.ABORT:
                active.discard(header.producer_id)
            continue
        if read_committed and header.is_transactional and header.producer_id in active:
            continue
        for record in decode_batch(part.records, at, output_bytes_max=DECOMPRESSED_BYTES_MAX):
            if record.offset >= asked.offset:
                records.append(
                    ConsumerRecord(
                        topic,
                        partition,
                        record.offset,
                        record.timestamp,
                        record.key,
                        record.value,
                        tuple(record.headers),
                        header.partition_leader_epoch,
                    )
                )
    return records, position
