"""Write the file partition.metadata of a log, as a broker does when it creates one."""

from __future__ import annotations

from uuid import UUID

from kraft.seam import Disk
from kraft.storage.partition_metadata import PARTITION_METADATA, encode_partition_metadata


def write_partition_metadata(disk: Disk, directory: str, topic_id: UUID) -> None:
    """Write the topic id; it is durable when this returns. *Blocking.*"""
    disk.write_file_atomic(f"{directory}/{PARTITION_METADATA}", encode_partition_metadata(topic_id))
