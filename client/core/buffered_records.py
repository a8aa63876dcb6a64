"""Taking records from buffered batches, which are decoded one at a time. Consumers and share consumers do it alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from kraft.client.core.records import KafkaError, TopicPartition
from kraft.seam import WireError
from kraft.wire.error_codes import ErrorCode

Record = TypeVar("Record")


class RecordBuffer(Protocol[Record]):
    """The records of one partition. `records` has the decoded ones of the current batch that were not taken yet, in
    reverse order."""

    records: list[Record]


def take_records(buffer: RecordBuffer[Record], open_next: Callable[[], bool], count: int) -> list[Record]:
    """Take at most `count` records, in order, and only those before a damaged batch. `open_next()` decodes the next
    batch into the buffer, and returns False if there is none. Raise WireError if the damaged batch comes first."""
    taken: list[Record] = []
    while len(taken) < count:
        try:
            if not buffer.records and not open_next():
                break
        except WireError:
            if not taken:
                raise
            break
        records = buffer.records
        room = count - len(taken)
        if room >= len(records):
            taken += reversed(records)
            records.clear()
        else:
            taken += reversed(records[-room:])
            del records[-room:]
    return taken


def damaged_batch(partition: TopicPartition, damage: WireError, outcome: str) -> KafkaError:
    """Return the error that `poll` raises for a damaged batch. `outcome` is a sentence that says what becomes of the
    batch."""
    place = f"{partition[0]}-{partition[1]}: "
    error = KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{place}{str(damage).removeprefix(place)}. {outcome}")
    error.__cause__ = damage
    return error
