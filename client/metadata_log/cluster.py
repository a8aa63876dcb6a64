"""Async: the committed metadata log of a running cluster, read as the topic `__cluster_metadata`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import trio

from kraft.client import Consumer, KafkaError
from kraft.client.admin import EARLIEST, LATEST, Admin
from kraft.client.metadata_log.entries import Entry
from kraft.client.metadata_log.errors import BeginsInSnapshot, LogRefused
from kraft.client.metadata_log.folder import read_entries
from kraft.client.metadata_log.history import History
from kraft.image import MetadataImage
from kraft.storage.log_names import METADATA_TOPIC

METADATA_PARTITION = (METADATA_TOPIC, 0)
IDLE_MS = 500


async def load_cluster(admin: Admin, consumer_settings: Mapping[str, Any]) -> History:
    """Read the committed history from a cluster. `admin` is an admin client that is not open yet; `consumer_settings`
    are keyword arguments of a consumer. Raise LogRefused if the cluster rejects the request, and BeginsInSnapshot if
    the log no longer contains its first events."""
    async with admin:
        try:
            first = (await admin.partitions.offsets({METADATA_PARTITION: EARLIEST}))[METADATA_PARTITION].offset
            end = (await admin.partitions.offsets({METADATA_PARTITION: LATEST}))[METADATA_PARTITION].offset
        except KafkaError as problem:
            raise LogRefused(f"the cluster does not allow reading {METADATA_TOPIC} ({problem.code.name})") from None
    if first > 0:
        raise BeginsInSnapshot(f"the log begins at offset {first}, what was before is in a snapshot")
    entries: list[Entry] = []
    await follow_cluster(consumer_settings, 0, end, entries.append)
    return History(MetadataImage(), tuple(entries), end)


async def follow_cluster(
    consumer_settings: Mapping[str, Any], start: int, end: int | None, tell: Callable[[Entry], None]
) -> None:
    """Call `tell` with the events from the offset `start` up to, but not including, the offset `end`. If `end` is None,
    continue endlessly with new events as they are committed."""
    async with Consumer(**consumer_settings) as consumer:
        await consumer.assign([METADATA_PARTITION], at=start)
        while end is None or consumer.position(METADATA_PARTITION) < end:
            for record in await consumer.poll(timeout_ms=IDLE_MS):
                if record.value is not None and (end is None or record.offset < end):
                    tell(Entry(record.offset, record.leader_epoch, record.timestamp_ms, record.value))


async def follow_folder(folder: Path, start: int, tell: Callable[[Entry], None]) -> None:
    """Call `tell` with the events from the offset `start` on, endlessly, as they are written. The last of these events
    may not be committed."""
    while True:
        for entry in read_entries(folder, start):
            tell(entry)
            start = entry.offset + 1
        await trio.sleep(IDLE_MS / 1000)
