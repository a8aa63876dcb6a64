"""Helpers that write metadata logs into folders, record by record."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from kraft.image import Event, MetadataImage, dump, encode_event, events, replay
from kraft.wire.records import Record, encode_batch
from kraft.wire.records.control_records import ControlRecord, ControlRecordType, LeaderChange, encode_control

NAMES = ("a", "b", "c", "d")
TOPICS: list[Event] = [events.Topic(name=name, topic_id=UUID(int=1_000 + at)) for at, name in enumerate(NAMES)]


def batch(applied: Sequence[Event], base_offset: int, epoch: int = 1, time_ms: int = 0) -> bytes:
    records = [Record(0, time_ms, None, encode_event(event)) for event in applied]
    return bytes(encode_batch(records, base_offset=base_offset, leader_epoch=epoch))


def leader_change(base_offset: int) -> bytes:
    record = ControlRecord(type=ControlRecordType.LEADER_CHANGE, leader_change=LeaderChange(1, (), ()))
    return bytes(encode_control(record, base_offset=base_offset, leader_epoch=1, timestamp_ms=0))


def write_log(home: Path) -> Path:
    """Write a log in two segments. Offset 0 is a leader change message, offsets 1 to 4 create the topics a to d, and
    offset 5 is a leader change message again."""
    path = home / "1" / "data" / "__cluster_metadata-0"
    path.mkdir(parents=True)
    first = leader_change(0) + batch(TOPICS[:2], 1, time_ms=100)
    (path / f"{0:020}.log").write_bytes(first)
    (path / f"{3:020}.log").write_bytes(batch(TOPICS[2:], 3, epoch=2, time_ms=200) + leader_change(5))
    return path


def write_snapshot(folder: Path, offset: int) -> None:
    """Write a snapshot at this offset of the log that `write_log` writes."""
    applied = replay(MetadataImage(), TOPICS[: offset - 1], offset, 1)
    (folder / f"{offset:020}-{1:010}.checkpoint").write_bytes(batch(list(dump(applied)), 0))
