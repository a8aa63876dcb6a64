"""The offset checkpoints of a log directory: one file each for recovery points, log start offsets, high watermarks etc.

The text format is Kafka's: `0`, the number of lines, then `topic partition offset`. A missing or damaged file counts as
empty, because every value in it has a safe default. It never prevents a start, and the reason is logged. The index
recovery points are not in Kafka: records are on the device before the indexes of their segment are. Each file is valid
by itself, so a crash between the writing of two does no harm.
Source: Kafka's OffsetCheckpointFile, docs/deviations.md.
"""

from __future__ import annotations

from collections.abc import Mapping

from kraft.seam import Disk

RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
INDEX_RECOVERY_POINT_CHECKPOINT = "index-recovery-point-offset-checkpoint"
LOG_START_CHECKPOINT = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
VERSION = 0

TopicPartition = tuple[str, int]


class BadCheckpoint(Exception):
    """The file does not parse; the text names line and reason."""


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    lines = [str(VERSION), str(len(offsets))]
    lines += [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())]
    return ("\n".join(lines) + "\n").encode()


def decode_offsets(data: bytes) -> dict[TopicPartition, int]:
    """Parse a checkpoint. Raises BadCheckpoint if it is not a complete file of version 0."""
    lines = data.decode("utf-8", "replace").split("\n")
    if lines[0] != str(VERSION):
        raise BadCheckpoint(f"line 1 is {lines[0]!r}, expected version {VERSION}")
    if len(lines) < 2 or not lines[1].isdigit():
        raise BadCheckpoint("line 2 is not a number of entries")
    count = int(lines[1])
    offsets: dict[TopicPartition, int] = {}
    for number, line in enumerate(lines[2 : 2 + count], start=3):
        words = line.split(" ")
        if len(words) != 3 or not words[1].isdigit() or not words[2].isdigit():
            raise BadCheckpoint(f"line {number} is {line!r}, expected topic, partition and offset")
        offsets[words[0], int(words[1])] = int(words[2])
    if lines[2 + count :] != [""] or len(offsets) != count:
        raise BadCheckpoint(f"it has {len(lines) - 3} lines of entries, expected {count} different ones")
    return offsets


def read_offsets(disk: Disk, path: str) -> tuple[dict[TopicPartition, int], str | None]:
    """Return the offsets, and the reason if they are empty because the file does not parse. *Blocking.*"""
    if not disk.exists(path):
        return {}, None
    try:
        return decode_offsets(disk.read_file(path)), None
    except BadCheckpoint as error:
        return {}, f"{path}: {error}; its values count as unknown"


def write_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Write a checkpoint; durable on return. *Blocking.*"""
    disk.write_file_atomic(path, encode_offsets(offsets))
