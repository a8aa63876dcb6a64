"""Find where the records of decompressed batches begin. A record gives only its own length, so the start of each record
follows from the previous one (a chain).

A Python loop (`_loop`) is the reference implementation: 0.15 µs per record. Two fast paths replace it for suitable
blocks: `_runs` compares the lengths of many records of equal size at once (large batches); `_lockstep` follows the
chains of many small batches in parallel. If a fast path does not arrive exactly at the end of a block, the loop reads
that block.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from kraft.client.spark.topics.decoding.varint_columns import RECORD_SIZES, Ints, NumpyBuffer
from kraft.seam import Buffer, WireError
from kraft.wire.varints import read_unsigned

RUN_RECORDS_MIN = 400
"""Minimum records of a block in which runs of records of equal size are searched."""
_RUN_SAMPLE = 8
_RUN_MIN = 32
"""Minimum records of a run. A shorter run shows that record sizes vary, so that the loop is faster."""
_RUN_STEP = 64
CHAINS_MIN = 48
"""Minimum number of chains that are followed in parallel. For fewer, numpy's cost per step is too high."""
_LOCKSTEP_BYTES_MAX = 4096
"""Maximum mean record size for following chains in parallel. RECORD_SIZES has only lengths below 8 KiB."""


class BrokenBlock(Exception):
    """The records in the block of batch `index` do not fill the block exactly."""

    def __init__(self, index: int, text: str) -> None:
        super().__init__(text)
        self.index = index


class Blocks:
    """The decompressed blocks of some batches in one buffer. `begins` and `ends` are byte positions. `counts` are
    numbers of records, at least 1."""

    __slots__ = ("begins", "counts", "data", "ends", "source")

    def __init__(self, data: Buffer, begins: Sequence[int], ends: Sequence[int], counts: Sequence[int]) -> None:
        self.data = data
        self.source = NumpyBuffer(data)
        self.begins = begins
        self.ends = ends
        self.counts = counts


def record_starts(blocks: Blocks) -> Ints:
    """Return the position of each record in all blocks, in order. Raises BrokenBlock if a block's records do not fill
    it exactly."""
    begins, counts = blocks.begins, blocks.counts
    firsts = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=firsts[1:])
    starts = np.empty(int(firsts[-1]), np.int64)
    outs = [starts[first:stop] for first, stop in pairwise(firsts.tolist())]
    small, rest = [], []
    for index, count in enumerate(counts):
        block_bytes = blocks.ends[index] - begins[index]
        if count < RUN_RECORDS_MIN and block_bytes < _LOCKSTEP_BYTES_MAX * count:
            small.append(index)
        elif count < RUN_RECORDS_MIN or not _runs(blocks, index, outs[index]):
            rest.append((index, 0, begins[index]))
    if len(small) >= CHAINS_MIN:
        rest += _lockstep(blocks, small, outs)
    else:
        rest += [(index, 0, begins[index]) for index in small]
    for index, done, at in sorted(rest):
        _loop(blocks, index, outs[index], done, at)
    return starts


def _loop(blocks: Blocks, index: int, out: Ints, done: int, at: int) -> None:
    """Find the remaining record starts of a block one by one: from record `done`, which begins at byte `at`, to the
    last. Write them to `out`."""
    data, end = blocks.data, blocks.ends[index]
    starts: list[int] = []
    add = starts.append
    try:
        for _ in range(done, len(out)):
            add(at)
            length = data[at]
            if length < 128:
                at += 1 + (length >> 1)
            elif (second := data[at + 1]) < 128:
                at += 2 + (length - 128 >> 1) + (second << 6)
            else:
                # a negative length is detected later, because the record's fields then do not end where the record ends
                length, at = read_unsigned(data, at)
                at += length >> 1
    except (IndexError, WireError):
        raise BrokenBlock(index, f"record {done + len(starts) - 1} of the batch runs past its end") from None
    if at != end:
        where = f"{abs(end - at)} bytes {'before' if at < end else 'behind'} its end"
        raise BrokenBlock(index, f"the {len(out)} records that the batch announces end {where}")
    out[done:] = starts


def _runs(blocks: Blocks, index: int, out: Ints) -> bool:
    """Find the record starts of a block by runs of records of equal size, and write them to `out`. Return False if runs
    are too short, or do not arrive at the block's end."""
    bytes_, at, end = blocks.source.bytes, blocks.begins[index], blocks.ends[index]
    done, count, reach = 0, len(out), _RUN_SAMPLE
    try:
        while done < count:
            length, body = read_unsigned(blocks.data, at)
            total = body - at + (length >> 1)
            limit = min(count - done, reach, (end - at) // total)
            run = limit
            for byte in range(at, body):
                same = bytes_[byte : byte + run * total : total] == bytes_[byte]
                if not same.all():
                    run = int(same.argmin())
            if run < min(_RUN_MIN, limit) or run == 0:
                return False
            out[done : done + run] = np.arange(at, at + run * total, total)
            done += run
            at += run * total
            reach = max(_RUN_STEP, 4 * run)
    except WireError:
        return False
    return at == end


def _lockstep(blocks: Blocks, chosen: Sequence[int], outs: Sequence[Ints]) -> list[tuple[int, int, int]]:
    """Find the record starts of these blocks in parallel, one record of each block at a time, and write them to `outs`.

    Return what the loop must still read, as (block, number of records done, position)."""
    counts, begins, ends = blocks.counts, blocks.begins, blocks.ends
    chains = sorted(chosen, key=lambda index: -counts[index])
    left = [counts[index] for index in chains]
    at = np.array([begins[index] for index in chains], np.int64)
    pairs, width, done = blocks.source.pairs, len(chains), 0
    table = np.empty((left[0], width), np.int64)
    try:
        while True:
            while width and left[width - 1] == done:
                width -= 1
            if width < CHAINS_MIN:
                break
            step = at[:width]
            table[done, :width] = step
            step += RECORD_SIZES[pairs[step]]
            done += 1
    except IndexError:
        return [(index, 0, begins[index]) for index in chosen]
    rest = []
    for chain, (index, position) in enumerate(zip(chains, at.tolist(), strict=True)):
        # if RECORD_SIZES does not have a record's length, the chain's position has not moved
        if chain < width and position != table[done - 1, chain]:
            outs[index][:done] = table[:done, chain]
            rest.append((index, done, position))
        elif chain >= width and position == ends[index]:
            outs[index][:] = table[: counts[index], chain]
        else:
            rest.append((index, 0, begins[index]))
    return rest
