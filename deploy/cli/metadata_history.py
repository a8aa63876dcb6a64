"""The metadata log as history: events in order, and the image at any offset that is still there.

A history comes from a node's folder (segments and snapshots, whether the node runs or not) or from the cluster, where
`__cluster_metadata` is read as a topic. Credentials never leave here: see `log_dump`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kraft.deploy.cli.output import EXIT_FAILED, EXIT_NOT_FOUND, CommandFailed
from kraft.image import Event, MetadataImage, UnknownEvent, decode_event, replay
from kraft.seam import StorageCorrupt, WireError
from kraft.storage.log_names import METADATA_TOPIC
from kraft.storage.snapshots import SnapshotId
from kraft.wire.records import check_crc, decode_batch, iter_headers

if TYPE_CHECKING:
    from kraft.deploy.cli.connection import Connection

METADATA_PARTITION = (METADATA_TOPIC, 0)
IDLE_MS = 500


@dataclass(frozen=True, slots=True)
class Entry:
    """One event at its offset; `epoch` is the leader epoch it was written in."""

    offset: int
    epoch: int
    timestamp_ms: int
    event: Event


@dataclass(frozen=True, slots=True)
class History:
    """Events in order on top of a base image. `end_offset` is exclusive."""

    base: MetadataImage
    entries: tuple[Entry, ...]
    end_offset: int

    def image_at(self, offset: int | None) -> MetadataImage:
        """The image in which everything below `offset` is replayed (None: everything). CommandFailed if it is not
        within this history."""
        wanted = self.end_offset if offset is None else offset
        if not self.base.offset <= wanted <= self.end_offset:
            raise self.no_offset(wanted)
        applied = [entry for entry in self.entries if entry.offset < wanted]
        epoch = applied[-1].epoch if applied else self.base.epoch
        return replay(self.base, [entry.event for entry in applied], wanted, epoch)

    def no_offset(self, offset: int) -> CommandFailed:
        """To raise for an offset that is not within this history."""
        return CommandFailed(
            f"there is no offset {offset}: the log holds {self.base.offset} to {self.end_offset}", code=EXIT_NOT_FOUND
        )

    def offset_at(self, time_ms: int) -> int:
        """The offset of the first event that is not older; the end if there is none."""
        return next((entry.offset for entry in self.entries if entry.timestamp_ms >= time_ms), self.end_offset)


def load_folder(folder: Path) -> History:
    """The history in a `__cluster_metadata-0` folder: from its begin, or, where that is gone, from the oldest snapshot
    that the log goes on from."""
    snapshots = sorted(
        snapshot for path in folder.glob("*.checkpoint") if (snapshot := SnapshotId.parse(path.name)) is not None
    )
    first = min((int(path.stem) for path in folder.glob("*.log")), default=None)
    base = MetadataImage()
    if first != 0 and snapshots:
        chosen = next((one for one in snapshots if first is not None and one.end_offset >= first), snapshots[-1])
        base = _read_snapshot(folder / chosen.file_name, chosen)
    entries = tuple(entry for entry in read_entries(folder) if entry.offset >= base.offset)
    return History(base, entries, _end_offset(folder, entries, base))


def read_entries(folder: Path, start: int = 0) -> Iterator[Entry]:
    """The events at or above `start` in the segments of a folder, as far as they are whole."""
    segments = sorted(folder.glob("*.log"))
    for number, path in enumerate(segments):
        following = segments[number + 1 : number + 2]
        if following and int(following[0].stem) <= start:
            continue
        yield from (entry for entry in _read_segment(path.read_bytes()) if entry.offset >= start)


async def load_cluster(connection: Connection) -> History:
    """The committed history, read from the cluster. CommandFailed if its begin is in a snapshot."""
    from kraft.client import KafkaError
    from kraft.client.admin import EARLIEST, LATEST

    async with connection.admin() as admin:
        try:
            first = (await admin.partitions.offsets({METADATA_PARTITION: EARLIEST}))[METADATA_PARTITION].offset
            end = (await admin.partitions.offsets({METADATA_PARTITION: LATEST}))[METADATA_PARTITION].offset
        except KafkaError as problem:
            raise CommandFailed(
                f"the cluster does not let us read {METADATA_TOPIC} ({problem.code.name}); give --folder with the data "
                "folder of a node or of the whole cluster",
            ) from None
    if first > 0:
        raise CommandFailed(
            f"the log begins at offset {first}, what was before is in a snapshot; give --folder with the "
            f"{METADATA_TOPIC}-0 folder of a node",
            code=EXIT_FAILED,
        )
    entries: list[Entry] = []
    await follow_cluster(connection, 0, end, entries.append)
    return History(MetadataImage(), tuple(entries), end)


async def follow_cluster(connection: Connection, start: int, end: int | None, tell: Callable[[Entry], None]) -> None:
    """Tell events from `start` to before `end` (None: without end, as they are committed)."""
    from kraft.client import Consumer

    async with Consumer(**connection.consumer_settings()) as consumer:
        await consumer.assign([METADATA_PARTITION], at=start)
        while end is None or consumer.position(METADATA_PARTITION) < end:
            for record in await consumer.poll(timeout_ms=IDLE_MS):
                if record.value is not None and (end is None or record.offset < end):
                    tell(Entry(record.offset, record.leader_epoch, record.timestamp_ms, _decode(record.value)))


async def follow_folder(folder: Path, start: int, tell: Callable[[Entry], None]) -> None:
    """Tell events from `start` on, as they are written. What is not committed may be among the last of them."""
    import trio

    while True:
        for entry in read_entries(folder, start):
            tell(entry)
            start = entry.offset + 1
        await trio.sleep(IDLE_MS / 1000)


def find_folder(path: Path) -> Path:
    """The metadata log below a path: the folder itself, a node's folder, or a cluster's, whichever node has most."""
    if not path.exists():
        raise CommandFailed(f"there is no {path}", code=EXIT_NOT_FOUND)
    name = f"{METADATA_TOPIC}-0"
    found = [path] if path.name == name else sorted(path.glob(f"**/{name}"))
    if not found:
        raise CommandFailed(f"there is no {name} in {path}", code=EXIT_NOT_FOUND)
    return max(found, key=lambda folder: _end_offset(folder, (), MetadataImage()))


def _read_snapshot(path: Path, snapshot: SnapshotId) -> MetadataImage:
    events = [entry.event for entry in _read_segment(path.read_bytes())]
    try:
        return replay(MetadataImage(), events, snapshot.end_offset, snapshot.epoch)
    except StorageCorrupt as problem:
        raise CommandFailed(f"{path}: {problem}") from None


def _read_segment(data: bytes) -> Iterator[Entry]:
    try:
        for position, header in iter_headers(data):
            if not check_crc(data, position, header):
                return
            if header.is_control:
                continue
            for record in decode_batch(data, position):
                event = _decode(record.value or b"")
                yield Entry(record.offset, header.partition_leader_epoch, record.timestamp, event)
    except WireError:  # a torn tail: the node cuts it when it starts
        return


def _decode(value: bytes) -> Event:
    try:
        return decode_event(value)
    except UnknownEvent as problem:
        raise CommandFailed(str(problem)) from None


def _end_offset(folder: Path, entries: Iterable[Entry], base: MetadataImage) -> int:
    """Behind the last whole batch, which may be a control batch and no event."""
    end = base.offset
    for path in sorted(folder.glob("*.log"))[-1:]:
        data = path.read_bytes()
        try:
            for position, header in iter_headers(data):
                if not check_crc(data, position, header):
                    break
                end = header.next_offset
        except WireError:
            break
    return max(end, *(entry.offset + 1 for entry in entries), 0)
