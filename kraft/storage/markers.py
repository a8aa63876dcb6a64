"""Transaction markers, as stored in the log. Source: KIP-98, Kafka's EndTransactionMarker."""

from __future__ import annotations

from typing import NamedTuple

from kraft.seam import Buffer
from kraft.wire.records import ATTRIBUTE_CONTROL, BatchHeader
from kraft.wire.records.control_records import ControlRecordType, decode_control


class Marker(NamedTuple):
    aborted: bool
    coordinator_epoch: int


def read_marker(buffer: Buffer, position: int, header: BatchHeader) -> Marker | None:
    """Return the marker in the control batch at `position`; None if the batch is not a marker, or empty. Raises
    WireError if it does not parse."""
    if header.producer_id < 0 or not header.attributes & ATTRIBUTE_CONTROL or not header.record_count:
        return None
    control = decode_control(buffer, position)
    if control.type is ControlRecordType.ABORT:
        return Marker(True, control.coordinator_epoch)
    if control.type is ControlRecordType.COMMIT:
        return Marker(False, control.coordinator_epoch)
    return None
