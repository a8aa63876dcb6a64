"""Put the batches of walked answers into groups that become one Arrow batch each, and open their blocks.

A group of uncompressed batches of one answer is read in place; any other is joined, so that all its positions are
positions in one buffer. Blocks are opened only when their group's turn comes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kraft.client.spark.topics.decoding.starts import Blocks
from kraft.client.spark.topics.decoding.walking import Walked, check_count, damaged
from kraft.seam import Buffer, WireError
from kraft.wire.records import BATCH_HEADER_BYTES, OUTPUT_BYTES_MAX, BatchHeader, Compression, open_records

POSITION_MAX = (1 << 31) - 1
"""Arrow's positions in binary columns are 32 bits."""


class Batch(NamedTuple):
    walked: Walked
    position: int
    header: BatchHeader


@dataclass(frozen=True, slots=True)
class Group:
    """Batches of one partition, in order. `blocks` None: they were not opened."""

    batches: Sequence[Batch]
    blocks: Blocks | None


@dataclass(frozen=True, slots=True)
class Limits:
    """Of a group. It has more than `rows` records only if one batch has; it ends as soon as it has `bytes`."""

    rows: int
    bytes: int


def grouped(walked: Sequence[Walked], limits: Limits, *, opened: bool) -> Iterator[Group]:
    """The batches of all answers, in groups of about equal size. WireError if a block does not decompress."""
    rows_left = sum(one.record_count for one in walked)
    groups_left = -(-rows_left // limits.rows)
    building = _Building()
    for one in walked:
        for position, header in one.batches:
            if building.batches and (
                building.rows + header.record_count > limits.rows
                or building.rows * groups_left >= rows_left
                or building.bytes >= limits.bytes
            ):
                rows_left -= building.rows
                groups_left = max(1, -(-rows_left // limits.rows))
                yield building.finish(opened=opened)
                building = _Building()
            building.add(Batch(one, position, header), opened=opened)
    if building.batches:
        yield building.finish(opened=opened)


class _Building:
    __slots__ = ("batches", "bytes", "pieces", "rows")

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.pieces: list[Buffer] = []
        self.rows = 0
        self.bytes = 0

    def add(self, batch: Batch, *, opened: bool) -> None:
        self.batches.append(batch)
        self.rows += batch.header.record_count
        if opened:
            piece = _opened(batch)
            self.pieces.append(piece)
            self.bytes += len(piece)

    def finish(self, *, opened: bool) -> Group:
        return Group(self.batches, self._blocks() if opened else None)

    def _blocks(self) -> Blocks:
        records = self.batches[0].walked.records
        in_place = all(one.walked.records is records and one.header.codec == 0 for one in self.batches)
        begins, ends, at = [], [], 0
        for batch, piece in zip(self.batches, self.pieces, strict=True):
            if in_place:
                at = batch.position + BATCH_HEADER_BYTES
            begins.append(at)
            at += len(piece)
            ends.append(at)
        if at > POSITION_MAX:
            walked, _, header = self.batches[0]
            raise damaged(walked.topic, walked.partition, header.base_offset, f"{at} bytes at once are too many")
        counts = [batch.header.record_count for batch in self.batches]
        return Blocks(records if in_place else b"".join(self.pieces), begins, ends, counts)


def _opened(batch: Batch) -> Buffer:
    walked, position, header = batch
    if header.codec == Compression.NONE:
        return walked.records[position + BATCH_HEADER_BYTES : position + header.size_bytes]
    try:
        block = open_records(walked.records, position, header, output_bytes_max=OUTPUT_BYTES_MAX)
        check_count(header, len(block))
        return block
    except WireError as error:
        raise damaged(walked.topic, walked.partition, header.base_offset, str(error)) from None
