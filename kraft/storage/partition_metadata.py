"""`partition.metadata`: which topic id a partition's folder belongs to.

It is durable before the first append, and a folder whose id is not the image's is stray (B41).
Source: KIP-516, Kafka's PartitionMetadataFile.
"""

from __future__ import annotations

from uuid import UUID

from kraft.seam import Disk, StorageCorrupt
from kraft.seam.ids import decode_uuid as decode_uuid
from kraft.seam.ids import encode_uuid as encode_uuid
from kraft.storage.log_names import PARTITION_METADATA


def encode_partition_metadata(topic_id: UUID) -> bytes:
    return f"version: 0\ntopic_id: {encode_uuid(topic_id)}\n".encode()


def read_partition_metadata(disk: Disk, directory: str) -> UUID | None:
    """The topic id that a partition's folder belongs to, or None if it does not say. *Blocking.*

    StorageCorrupt if the file is not what it should be.
    """
    path = f"{directory}/{PARTITION_METADATA}"
    if not disk.exists(path):
        return None
    lines = disk.read_file(path).decode("ascii", "replace").splitlines()
    fields = dict(line.split(": ", 1) for line in lines if ": " in line)
    if fields.get("version") != "0":
        raise StorageCorrupt(f"{path}: version is {fields.get('version')!r}, expected 0")
    topic_id = decode_uuid(fields.get("topic_id", ""))
    if topic_id is None:
        raise StorageCorrupt(f"{path}: topic_id is {fields.get('topic_id')!r}, expected 22 characters of base64")
    return topic_id


def write_partition_metadata(disk: Disk, directory: str, topic_id: UUID) -> None:
    """Durable on return. *Blocking.*"""
    disk.write_file_atomic(f"{directory}/{PARTITION_METADATA}", encode_partition_metadata(topic_id))
