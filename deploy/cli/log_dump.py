"""Contents of the files of a data folder as dictionaries: segments, indexes, snapshots, checkpoints, metadata events.

Each function yields one dictionary per batch, record, entry or line. They never contain credentials: see
`kraft.client.metadata_log.event_fields`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kraft.client.metadata_log.event_fields import event_fields, plain_fields
from kraft.image.events import UnknownEvent, decode_event
from kraft.seam import WireError
from kraft.storage.indexes import offset_index, time_index, txn_index
from kraft.storage.log_names import METADATA_TOPIC, parse_partition_directory
from kraft.storage.producers.snapshot_file import decode as decode_producer_snapshot
from kraft.wire.records.batch_codec import Record, iter_batch
from kraft.wire.records.compression import Compression
from kraft.wire.records.control_records import decode_controls
from kraft.wire.records.header import BatchHeader, check_crc, iter_headers

Row = dict[str, Any]

OFFSET_DIGITS = 20
"""Number of digits of the offset that begins the name of a log file."""
_LOGS = (".log", ".checkpoint", ".log.cleaned", ".log.swap", ".log.deleted")


def dump_file(path: Path, *, with_records: bool) -> Iterator[Row]:
    """Yield the contents of one file; `with_records` includes the records of batches. Raise ValueError at once for a
    file of an unknown kind."""
    name = path.name
    if name.endswith(_LOGS):
        return _batches(path, with_records)
    if name.endswith(".timeindex"):
        return _entries(path, time_index.ENTRY, ("timestamp", "offset"))
    if name.endswith(".txnindex"):
        fields = ("version", "producer_id", "first_offset", "last_offset", "last_stable_offset")
        return _entries(path, txn_index.ENTRY, fields)
    if name.endswith(".index"):
        return _entries(path, offset_index.ENTRY, ("offset", "position"))
    if name.endswith(".snapshot"):
        return _producers(path)
    if _is_text(name):
        return _lines(path)
    raise ValueError(
        f"{path}: not a file that kraft writes; expected .log, .index, .timeindex, .txnindex, "
        ".snapshot, .checkpoint or a checkpoint file"
    )


def dump_files(path: Path) -> list[Path]:
    """Return the file itself, or the files of a folder that can be dumped, in order. Raise ValueError if there are
    none."""
    if not path.is_dir():
        return [path]
    files = [entry for entry in sorted(path.iterdir()) if entry.is_file() and _is_known(entry.name)]
    if not files:
        raise ValueError(f"{path} holds no files of a log; name the folder of a partition, as DIR/1/data/TOPIC-0")
    return files


def is_metadata_log(path: Path) -> bool:
    """Whether the file is in the folder of the metadata log, so that its records are metadata events."""
    parsed = parse_partition_directory(path.resolve().parent.name)
    return path.name.endswith(".checkpoint") or (parsed is not None and parsed[0] == METADATA_TOPIC)


def _batches(path: Path, with_records: bool) -> Iterator[Row]:
    data = path.read_bytes()
    as_events = is_metadata_log(path)
    end = 0
    try:
        for position, header in iter_headers(data):
            good = check_crc(data, position, header)
            yield _batch_row(position, header, good)
            end = position + header.size_bytes
            if with_records and good:
                yield from _records_or_damage(data, position, header, as_events)
    except WireError as problem:
        yield {"kind": "damage", "position": end, "reason": str(problem)}
        return
    if end < len(data):
        yield {"kind": "damage", "position": end, "reason": f"{len(data) - end} bytes of an unfinished batch"}


def _batch_row(position: int, header: BatchHeader, good: bool) -> Row:
    return {
        "kind": "batch",
        "position": position,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "bytes": header.size_bytes,
        "leader_epoch": header.partition_leader_epoch,
        "compression": _codec_name(header.codec),
        "timestamp": header.max_timestamp,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "crc_ok": good,
    }


def _codec_name(codec: int) -> str:
    try:
        return Compression.of(codec).name.lower()
    except WireError:
        return f"unknown ({codec})"


def _records_or_damage(data: bytes, position: int, header: BatchHeader, as_events: bool) -> Iterator[Row]:
    """Return the records of a batch, or a description of the damage if the records do not match the header. A damaged
    batch must not keep the batches after it from being dumped."""
    try:
        yield from _records(data, position, header, as_events)
    except WireError as problem:
        reason = f"the records of the batch at offset {header.base_offset} do not parse: {problem}"
        yield {"kind": "damage", "position": position, "reason": reason}


def _records(data: bytes, position: int, header: BatchHeader, as_events: bool) -> Iterator[Row]:
    if header.is_control:
        for control in decode_controls(data, position):
            yield {"kind": "control", **plain_fields(control)}
        return
    for record in iter_batch(data, position):
        yield _event_row(record) if as_events else _record_row(record)


def _record_row(record: Record) -> Row:
    headers = [[name, _text(value)] for name, value in record.headers]
    row: Row = {"kind": "record", "offset": record.offset, "timestamp": record.timestamp}
    return {**row, "key": _text(record.key), "value": _text(record.value), "headers": headers}


def _event_row(record: Record) -> Row:
    row: Row = {"kind": "event", "offset": record.offset, "timestamp": record.timestamp}
    try:
        event = decode_event(record.value or b"")
    except (UnknownEvent, WireError) as problem:
        return {**row, "type": "unknown", "reason": str(problem)}
    return {**row, **event_fields(event)}


def _producers(path: Path) -> Iterator[Row]:
    entries = decode_producer_snapshot(path.read_bytes())
    if entries is None:
        yield {"kind": "damage", "position": 0, "reason": "not a producer snapshot, or its CRC is wrong"}
        return
    for entry in entries:
        yield {"kind": "producer", **entry._asdict()}


def _lines(path: Path) -> Iterator[Row]:
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        yield {"kind": "line", "number": number, "text": line}


def _entries(path: Path, layout: Any, fields: tuple[str, ...]) -> Iterator[Row]:
    data = path.read_bytes()
    base = int(path.name.split(".", 1)[0]) if path.name[:20].isdigit() else 0
    for position in range(0, len(data) - layout.size + 1, layout.size):
        entry = dict(zip(fields, layout.unpack_from(data, position), strict=True))
        if "version" not in entry:
            entry["offset"] += base
        yield {"kind": "entry", "position": position, **entry}


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "backslashreplace")


def _is_text(name: str) -> bool:
    return (
        name.endswith("-checkpoint")
        or name in ("meta.properties", "partition.metadata", "quorum-state")
        or (name == ".kafka_cleanshutdown")
    )


def _is_known(name: str) -> bool:
    of_a_log = name.endswith((*_LOGS, ".index", ".timeindex", ".txnindex", ".snapshot"))
    return (of_a_log and name[:OFFSET_DIGITS].isdigit()) or _is_text(name)
