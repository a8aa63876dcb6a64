"""Synchronous: the metadata log (segments and snapshots) in a node's folder, whether or not the node is running.

The last events of a running node may not be committed. A torn tail is left out, because the node truncates it when it
starts. Source: KIP-630 (snapshots).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

from kraft.client.metadata_log.entries import Entry, LogBatch, entries_between, values_of
from kraft.client.metadata_log.errors import MetadataLogError, NotInLog
from kraft.client.metadata_log.history import History
from kraft.image import ImageBuilder, MetadataImage, ReplayFailed, UnknownEvent
from kraft.image.encoded import apply_encoded
from kraft.seam import WireError
from kraft.storage.indexes.offset_index import ENTRY as INDEX_ENTRY
from kraft.storage.log_names import METADATA_TOPIC
from kraft.storage.snapshots import SnapshotId
from kraft.wire.records import BATCH_HEADER_BYTES, BatchHeader, check_crc, iter_headers, read_header

PIECE_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FolderLog:
    """The segments and snapshots in a folder `__cluster_metadata-0`."""

    folder: Path

    @property
    def start_offset(self) -> int:
        """First offset of the first segment; 0 if there is no segment."""
        return min((int(path.stem) for path in self._segments()), default=0)

    def end_offset(self) -> int:
        """Return the offset after the last complete batch, which may be a control batch without events. It is never
        less than the start of the history."""
        begin = self.oldest_snapshot()
        return max(log_end_offset(self.folder), 0 if begin is None else begin.end_offset)

    def oldest_snapshot(self) -> SnapshotId | None:
        """Return the snapshot with which the history starts: the oldest one whose end is not below the start of the
        log, so that there is no gap. None if the log still begins at offset 0, or if there is no snapshot."""
        snapshots = self._snapshots()
        first = min((int(path.stem) for path in self._segments()), default=None)
        if first == 0 or not snapshots:
            return None
        return next((one for one in snapshots if first is not None and one.end_offset >= first), snapshots[-1])

    def base(self) -> MetadataImage:
        """Return the metadata with which the history starts. Raise MetadataLogError if the snapshot cannot be read."""
        chosen = self.oldest_snapshot()
        return MetadataImage() if chosen is None else _read_snapshot(self.folder / chosen.file_name, chosen)

    def batches(self, start: int, end: int | None = None) -> Iterator[LogBatch]:
        """Yield the complete batches, from the one that contains `start` up to the one that contains `end` - 1. If
        `end` is None, continue up to the last batch. Raise MetadataLogError for damage before the last segment."""
        segments = self._segments()
        for number, path in enumerate(segments):
            following = segments[number + 1 : number + 2]
            if following and int(following[0].stem) <= start:
                continue
            for batch in _read_segment(path, start, is_last=not following):
                if end is not None and batch.header.base_offset >= end:
                    return
                yield batch

    def _segments(self) -> list[Path]:
        return sorted(self.folder.glob("*.log"))

    def _snapshots(self) -> list[SnapshotId]:
        found = (SnapshotId.parse(path.name) for path in self.folder.glob("*.checkpoint"))
        return sorted(snapshot for snapshot in found if snapshot is not None)


def load_folder(folder: Path) -> History:
    """Read the history in a folder `__cluster_metadata-0`. It starts with the first event. If the first event is
    deleted, it starts with the oldest snapshot that reaches up to the log."""
    log = FolderLog(folder)
    base = log.base()
    entries = tuple(read_entries(folder, base.offset))
    last = entries[-1].offset + 1 if entries else 0
    return History(base, entries, max(log_end_offset(folder), base.offset, last))


def read_entries(folder: Path, start: int = 0) -> Iterator[Entry]:
    """Return the events at or after the offset `start` in the segments of a folder, up to an incomplete or damaged
    end."""
    return entries_between(FolderLog(folder).batches(start), start)


def find_folder(path: Path) -> Path:
    """Find the metadata log at a path: the log's own folder, a node's folder, or a cluster's folder. If there are
    several nodes, choose the log with the highest log end offset. Raise NotInLog if there is none."""
    if not path.exists():
        raise NotInLog(f"there is no {path}")
    name = f"{METADATA_TOPIC}-0"
    found = [path] if path.name == name else sorted(path.glob(f"**/{name}"))
    if not found:
        raise NotInLog(f"there is no {name} in {path}")
    return max(found, key=log_end_offset) if len(found) > 1 else found[0]


def log_end_offset(folder: Path) -> int:
    """Return the offset after the last complete batch of the last segment. Return the base offset if that segment is
    empty, and 0 if there is no segment."""
    segments = sorted(folder.glob("*.log"))
    if not segments:
        return 0
    end = int(segments[-1].stem)
    for batch in _read_segment(segments[-1], None, is_last=True):
        end = batch.header.next_offset
    return end


def _read_snapshot(path: Path, snapshot: SnapshotId) -> MetadataImage:
    builder = ImageBuilder(MetadataImage())
    try:
        for batch in _read_segment(path, 0, is_last=False):
            apply_encoded(builder, values_of(batch))
    except (ReplayFailed, UnknownEvent, WireError) as problem:
        raise MetadataLogError(f"{path}: {problem}") from None
    return builder.build(snapshot.end_offset, snapshot.epoch)


def _read_segment(path: Path, start: int | None, *, is_last: bool) -> Iterator[LogBatch]:
    """Yield the complete batches of a file, from the one that contains `start` on. If `start` is None, begin with a
    batch near the end of the file. The last file may have an incomplete end."""
    place = _place_of(path, start)
    first = 0 if start is None else start + 1
    with path.open("rb") as file:
        file.seek(place)
        rest = b""
        while piece := file.read(PIECE_BYTES):
            data = rest + piece if rest else piece
            at = 0
            try:
                for position, header in iter_headers(data):
                    if first <= header.next_offset:
                        if not check_crc(data, position, header):
                            raise WireError(f"the batch at offset {header.base_offset} has a wrong checksum")
                        yield LogBatch(data, position, header)
                    at = position + header.size_bytes
            except WireError as problem:
                if is_last:
                    return
                raise MetadataLogError(f"{path} is damaged after byte {place + at}: {problem}") from None
            rest = data[at:]
            place += at
    if rest and not is_last:
        raise MetadataLogError(f"{path} is damaged: it ends within the batch at byte {place}")


def _place_of(path: Path, start: int | None) -> int:
    """Return the byte at which reading must begin to find `start`, from the segment's index; 0 if the index does not
    help."""
    try:
        index = path.with_suffix(".index").read_bytes()
    except OSError:
        return 0
    base_offset = int(path.stem)
    entries = list(INDEX_ENTRY.iter_unpack(index[: len(index) - len(index) % INDEX_ENTRY.size]))
    count = len(entries) if start is None else bisect_right(entries, start - base_offset, key=itemgetter(0))
    if not count:
        return 0
    offset, place = entries[count - 1]
    header = _header_at(path, place)
    return int(place) if header is not None and header.last_offset == base_offset + offset else 0


def _header_at(path: Path, place: int) -> BatchHeader | None:
    with path.open("rb") as file:
        file.seek(place)
        try:
            return read_header(file.read(BATCH_HEADER_BYTES))
        except WireError:
            return None
