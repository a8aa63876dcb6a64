"""The records of an offsets partition are decoded in short steps, however many records one batch has."""

from __future__ import annotations

import tracemalloc

import pytest

from kraft.broker.coordinator.shard_loading import ENTRIES_PER_STEP, decode_steps
from kraft.broker.group.records import GroupKey, GroupLogEntry, decode_entry, encode_entry
from kraft.storage.log import LogConfig
from kraft.storage.unreadable import UnreadableBatch
from kraft.wire.records import Record, encode_batch
from kraft.wire.records.compression import Compression
from tests.stages.batches import NOW_MS, lead, open_log, read
from tests.stages.machine import Machine

COUNT = 20_000


def test_a_batch_of_very_many_records_is_decoded_in_short_steps_and_in_little_memory() -> None:
    key = encode_entry(GroupLogEntry(GroupKey("g"), None)).key
    log = open_log(Machine(), LogConfig(segment_ms=1 << 60))
    unknown_version = b"\x7f" * 500
    for value in (unknown_version, None):
        lead(log, encode_batch([Record(0, NOW_MS, key, value)] * COUNT, compression=Compression.ZSTD))
    tracemalloc.start()
    try:
        steps = [(len(entries), offset) for entries, offset in decode_steps(read(log, 0), log, decode_entry)]
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(steps) >= 2 * COUNT // ENTRIES_PER_STEP
    assert max(count for count, _ in steps) <= ENTRIES_PER_STEP
    assert sum(count for count, _ in steps) == COUNT
    assert steps[-1][1] == log.log_end_offset
    assert peak_bytes < 3 << 20


def test_the_error_for_an_unreadable_group_record_names_its_batch() -> None:
    log = open_log(Machine())
    lead(log, encode_batch([Record(0, NOW_MS, b"\0\2\0\x09g", None)]))
    with pytest.raises(UnreadableBatch, match="the batch at offset 0 do not parse"):
        list(decode_steps(read(log, 0), log, decode_entry))
