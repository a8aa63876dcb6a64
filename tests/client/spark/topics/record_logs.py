"""Logs of record batches for tests of the Arrow decoder, and the reference: the rows as the general record codec
decodes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import pyarrow as pa
from hypothesis import strategies as st

from kraft.client.spark.topics.arrow_records import Walked, walk
from kraft.seam import Buffer
from kraft.wire.records import Compression, Record, decode_batch, encode_batch, iter_headers, read_header
from kraft.wire.records.control_records import ControlRecord, ControlRecordType, encode_control

TOPIC, PARTITION = "orders", 3
FAR = 1 << 62

Row = tuple[bytes | None, bytes | None, str, int, int, int | None, int, tuple[tuple[str, bytes | None], ...] | None]
"""Type: a row's columns in order; the timestamp is in µs."""

BYTES = (
    st.none()
    | st.binary(max_size=20)
    | st.sampled_from([b"", b"a" * 12, b"b" * 13, b"c" * 63, b"d" * 64, b"e" * 8191, b"f" * 8192, b"g" * 70_000])
)
HEADERS = st.just(()) | st.lists(st.tuples(st.text(max_size=12), BYTES), max_size=4).map(tuple)
TIMES = st.just(-1) | st.integers(0, 200) | st.integers(0, 2**45)
STEPS = st.just(1) | st.integers(1, 70) | st.sampled_from([9000, 2**20, 2**28])
"""Differences between consecutive offsets, chosen so that offset deltas have one to five bytes."""


@dataclass
class Log:
    """A log of one partition. `aborted`: aborted transactions as a Fetch response lists them. `committed`: the rows
    that a read_committed consumer receives."""

    data: bytearray = field(default_factory=bytearray)
    next_offset: int = 100
    aborted: list[tuple[int, int]] = field(default_factory=list)
    committed: list[Row] = field(default_factory=list)


@st.composite
def record_batches(draw: st.DrawFn, *, base_offset: int, producer_id: int = -1) -> bytearray:
    """Strategy for one batch with any valid content."""
    items = draw(st.lists(st.tuples(STEPS, TIMES, BYTES, BYTES, HEADERS), min_size=1, max_size=8))
    offsets = list(accumulate((item[0] for item in items[1:]), initial=base_offset))
    return encode_batch(
        [Record(0, *item[1:]) for item in items],
        base_offset=base_offset,
        offsets=offsets,
        compression=draw(st.sampled_from(Compression)),
        log_append_time_ms=draw(st.none() | st.integers(0, 2**45)),
        producer_id=producer_id,
        transactional=producer_id >= 0,
    )


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """Strategy for a log of up to eight batches with gaps between them. Some batches belong to transactions, which end
    with a marker or remain open."""
    log = Log()
    open_rows: dict[int, list[Row]] = {}
    first_offsets: dict[int, int] = {}
    for _ in range(draw(st.integers(0, 8))):
        base_offset = log.next_offset + draw(st.just(0) | st.integers(0, 1000))
        producer_id = draw(st.sampled_from([-1, -1, 7, 8]))
        if producer_id in open_rows and draw(st.booleans()):
            rows = open_rows.pop(producer_id)
            is_abort = draw(st.booleans())
            kind = ControlRecordType.ABORT if is_abort else ControlRecordType.COMMIT
            batch = encode_control(ControlRecord(type=kind), base_offset=base_offset, producer_id=producer_id)
            if is_abort:
                log.aborted.append((producer_id, first_offsets[producer_id]))
            else:
                log.committed += rows
        else:
            batch = draw(record_batches(base_offset=base_offset, producer_id=producer_id))
            rows = rows_of_batch(batch, 0)
            if producer_id >= 0:
                first_offsets[producer_id] = base_offset if producer_id not in open_rows else first_offsets[producer_id]
                open_rows.setdefault(producer_id, []).extend(rows)
            else:
                log.committed += rows
        log.data += batch
        log.next_offset = read_header(batch).next_offset
    for rows in open_rows.values():
        log.committed += rows
    log.committed.sort(key=lambda row: row[4])
    return log


def plain_batch(
    values: Iterable[bytes | None], *, base_offset: int = 100, compression: Compression = Compression.NONE
) -> bytes:
    """Return a batch of records with these values, a key in every second record, and timestamps 3 ms apart."""
    records = [
        Record(0, 1000 + 3 * index, b"key %d" % index if index % 2 else None, value)
        for index, value in enumerate(values)
    ]
    return bytes(encode_batch(records, base_offset=base_offset, compression=compression))


def rows_of_log(data: Buffer, start: int = 0, end: int = FAR) -> list[Row]:
    """Return the rows of a range that a read_uncommitted consumer receives."""
    rows: list[Row] = []
    for position, header in iter_headers(data):
        if not header.is_control:
            rows += rows_of_batch(data, position)
    return [row for row in rows if start <= row[4] < end]


def rows_of_batch(data: Buffer, position: int) -> list[Row]:
    header = read_header(data, position)
    return [_row(record, is_log_append_time=header.is_log_append_time) for record in decode_batch(data, position)]


def _row(record: Record, *, is_log_append_time: bool) -> Row:
    timestamp = None if record.timestamp == -1 else record.timestamp * 1000
    kind = 1 if is_log_append_time else 0
    return (
        record.key, record.value, TOPIC, PARTITION, record.offset, timestamp, kind, record.headers or None
    )  # fmt: skip


def walked(
    data: Buffer,
    start: int = 0,
    end: int = FAR,
    *,
    aborted: Sequence[tuple[int, int]] | None = None,
    check_crcs: bool = True,
) -> Walked:
    return walk(
        data, topic=TOPIC, partition=PARTITION, start=start, end=end, aborted=aborted, check_crcs=check_crcs
    )  # fmt: skip


def rows_of_arrow(batch: pa.RecordBatch) -> list[Row]:
    """Return the rows of an Arrow batch with all columns."""
    batch.validate(full=True)
    columns = {name: batch.column(name) for name in batch.schema.names}
    headers = [
        None if pairs is None else tuple((pair["key"], pair["value"]) for pair in pairs)
        for pairs in columns.pop("headers").to_pylist()
    ]
    columns["timestamp"] = columns["timestamp"].cast(pa.int64())
    return list(zip(*(column.to_pylist() for column in columns.values()), headers, strict=True))
