"""Group the record batches of walked responses so that each group becomes one Arrow batch, and decompress their blocks.

A group of uncompressed batches from one response is read in place. The batches of any other group are joined into one
buffer, so that all positions are in that buffer. Blocks are decompressed only when their group is requested.
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
"""Maximum position in a binary column: Arrow uses 32-bit positions."""


class WalkedBatch(NamedTuple):
    walked: Walked
    position: int
    header: BatchHeader


@dataclass(frozen=True, slots=True)
class BatchGroup:
    """Record batches of one partition, in order. `blocks` None: the batches were not decompressed."""

    batches: Sequence[WalkedBatch]
    blocks: Blocks | None


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """Limits of a group of batches. A group exceeds `rows` records only if it has a single batch. It ends with the
    batch that reaches `bytes`."""

    rows: int
    bytes: int


def grouped(walked: Sequence[Walked], limits: GroupLimits, *, opened: bool) -> Iterator[BatchGroup]:
    """Yield the batches of all responses in groups of about equal size. Raises WireError if a block does not
    decompress."""
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
            building.add(WalkedBatch(one, position, header), opened=opened)
    if building.batches:
        yield building.finish(opened=opened)


class _Building:
    __slots__ = ("batches", "bytes", "pieces", "rows")

    def __init__(self) -> None:
        self.batches: list[WalkedBatch] = []
        self.pieces: list[Buffer] = []
        self.rows = 0
        self.bytes = 0

    def add(self, batch: WalkedBatch, *, opened: bool) -> None:
        self.batches.append(batch)
        self.rows += batch.header.record_count
        if opened:
            piece = _opened(batch)
            self.pieces.append(piece)
            self.bytes += len(piece)

    def finish(self, *, opened: bool) -> BatchGroup:
        return BatchGroup(self.batches, self._blocks() if opened else None)

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


def _opened(batch: WalkedBatch) -> Buffer:
    walked, position, header = batch
    if header.codec == Compression.NONE:
        return walked.records[position + BATCH_HEADER_BYTES : position + header.size_bytes]
    try:
        block = open_records(walked.records, position, header, output_bytes_max=OUTPUT_BYTES_MAX)
        check_count(header, len(block))
        return block
    except WireError as error:
        raise damaged(walked.topic, walked.partition, header.base_offset, str(error)) from None
