"""`partition.metadata`: the topic id of a partition's folder.

The file is durable before the first append. A folder whose topic id is not that of the metadata image is stray: it
belongs to no present partition (B41).
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
    """Return the topic id of a partition's folder, or None if there is no such file. *Blocking.*

    Raises StorageCorrupt if the file does not parse."""
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
