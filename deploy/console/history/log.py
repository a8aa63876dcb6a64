"""Async: keeps the committed metadata log. It is read from the cluster or, if the cluster does not allow that, from a
node's folder.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import trio

from kraft.client.admin import EARLIEST, LATEST
from kraft.client.core.records import KafkaError
from kraft.client.metadata_log.entries import Entry
from kraft.client.metadata_log.errors import MetadataLogError
from kraft.client.metadata_log.folder import find_folder, load_folder
from kraft.deploy.console.history.timeline import Timeline
from kraft.deploy.console.settings import ConsoleSettings
from kraft.image import MetadataImage
from kraft.storage.log_names import METADATA_TOPIC

METADATA_PARTITION = (METADATA_TOPIC, 0)
IDLE_MS = 500
LOAD_S_MAX = 60.0


class NotGiven(MetadataLogError):
    """The cluster does not let clients read its metadata log."""


class TookTooLong(MetadataLogError):
    """The log could not be read within the time limit."""


class MetadataLogReader:
    """The part of the metadata log that was read so far. `read` fetches only the new records, for at most
    `load_seconds`."""

    def __init__(self, settings: ConsoleSettings, *, load_seconds: float = LOAD_S_MAX) -> None:
        self._settings = settings
        self._load_seconds = load_seconds
        self._timeline: Timeline | None = None
        self._lock = trio.Lock()
        self.source = ""

    async def read(self) -> Timeline:
        """Read the log up to its current end. Raise NotGiven if clients may not read it. Raise TookTooLong, or
        KafkaError and similar exceptions, if the cluster does not respond."""
        async with self._lock:
            first, end = await self._bounds()
            if self._timeline is None or self._timeline.end_offset > end:
                self._timeline = await self._begin(first)
            timeline = self._timeline
            if timeline.end_offset < end:
                timeline.extend(await self._fetch(timeline.end_offset, end), end)
            return timeline

    async def images(self, timeline: Timeline, *offsets: int) -> list[MetadataImage]:
        """Return the metadata image at each of these offsets, replayed in a thread. Raise NotInLog for an offset
        outside of the log."""
        async with self._lock:  # no other replay or extension may change the timeline at the same time
            return await trio.to_thread.run_sync(lambda: [timeline.image_at(offset) for offset in offsets])

    async def _bounds(self) -> tuple[int, int]:
        async with self._settings.admin() as admin:
            try:
                found = await admin.partitions.offsets_of_each({METADATA_PARTITION: EARLIEST})
                first = found[METADATA_PARTITION]
                if isinstance(first, KafkaError):
                    raise first
                end = (await admin.partitions.offsets({METADATA_PARTITION: LATEST}))[METADATA_PARTITION]
            except KafkaError as problem:
                raise NotGiven(
                    f"This cluster does not give its metadata log to clients ({problem.code.name}). Brokers of pykraft "
                    "do. Apache Kafka keeps it between its own nodes: kafka-metadata-shell.sh shows it on a "
                    "controller's machine."
                ) from None
        return first.offset, end.offset

    async def _begin(self, first: int) -> Timeline:
        """Return a new timeline that begins at offset 0. If the first part of the log exists only as a snapshot, the
        timeline begins at that snapshot, which is loaded from the folder of a local node."""
        if first == 0:
            self.source = "the cluster"
            return Timeline(MetadataImage())
        if self._settings.data is None:
            raise NotGiven(
                f"The log begins at offset {first}, and what was before is in a snapshot that only nodes can fetch: "
                "start the console with --data and the cluster's folder."
            )
        return await trio.to_thread.run_sync(partial(self._load, self._settings.data))

    def _load(self, data: Path) -> Timeline:
        folder = find_folder(data)
        history = load_folder(folder)
        self.source = str(folder)
        timeline = Timeline(history.base)
        timeline.extend(history.entries, history.end_offset)
        return timeline

    async def _fetch(self, start: int, end: int) -> list[Entry]:
        entries: list[Entry] = []
        with trio.move_on_after(self._load_seconds) as in_time:
            async with self._settings.consumer() as consumer:
                await consumer.assign([METADATA_PARTITION], at=start)
                while consumer.position(METADATA_PARTITION) < end:
                    entries += [
                        Entry(record.offset, record.leader_epoch, record.timestamp_ms, record.value)
                        for record in await consumer.poll(records_max=5_000, timeout_ms=IDLE_MS)
                        if record.value is not None and record.offset < end
                    ]
        if in_time.cancelled_caught:
            raise TookTooLong(
                f"the cluster gave {len(entries)} events of its metadata log in {self._load_seconds:g} s, and not all "
                f"up to offset {end}: try again when it is less busy, or see kraft metadata --folder"
            )
        return entries
