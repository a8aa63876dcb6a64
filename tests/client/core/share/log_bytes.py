"""Bytes of a log, for tests of what a share consumer decodes."""

from __future__ import annotations

from collections.abc import Iterable

from kraft.wire.records import Record, encode_batch, read_header
from kraft.wire.records.rewriting import rewrite_batch, scan_batch


def log_of(batches: Iterable[Iterable[int]]) -> bytes:
    """Return batches with a record at each of these offsets, whose value is the offset. Offsets between them are
    missing, as after a compaction."""
    encoded: list[bytes] = []
    for one in batches:
        offsets = set(one)
        base, end = min(offsets), max(offsets) + 1
        records = [Record(0, 1_000, None, b"%d" % offset) for offset in range(base, end)]
        whole = encode_batch(records, base_offset=base, leader_epoch=0)
        encoded.append(bytes(_keep(whole, {offset - base for offset in offsets})))
    return b"".join(encoded)


def _keep(batch: bytearray, deltas: set[int]) -> bytearray:
    header = read_header(batch)
    pieces = ((block, [place for place in places if place[4] in deltas]) for block, places in scan_batch(header, batch))
    steps = rewrite_batch(header, pieces, horizon_ms=None)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return bytearray(done.value)
