"""Replace old segments with a rewritten one, so that a crash at any moment leaves either.

Each step is durable before the next: the `.cleaned` files are synced and renamed to `.swap`; the log in memory takes
the new segment; the old files become `.deleted`; `.swap` becomes the final name. `leftovers.clear` finishes or undoes
it after a crash. Files are renamed in a thread while readers on the loop may be about to open them: a reader that
misses the file tries again (`Handle.gone`).
Source: Kafka's LocalLog, docs/storage.md#what-reaches-the-device-and-in-which-order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft.seam import require
from kraft.storage.handles import Handle
from kraft.storage.log_names import CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX
from kraft.storage.producers.state_loading import snapshot_path
from kraft.storage.segment import Segment

if TYPE_CHECKING:
    from kraft.storage.log import Log


class Replacement:
    """`cleaned`, whose files are named `.cleaned`, for `old`, which are neighbours. Call in this order: `sync`; then,
    with no other blocking call of the log in between, `stage`, `publish`, `finish`; or `discard` before `publish`."""

    def __init__(self, log: Log, old: list[Segment], cleaned: Segment) -> None:
        self._log = log
        self._old = old
        self._cleaned = cleaned

    def sync(self) -> None:
        """Put the new files on the device. *Blocking*, and may take long; the log is not touched."""
        for handle in self._cleaned.handles:
            if handle.exists:
                handle.open_blocking().sync_blocking()

    def stage(self) -> None:
        """From here on a crash ends with the new segment. *Blocking.*"""
        for handle in self._last_first(self._cleaned):
            handle.close()
            _rename(handle, handle.path.removesuffix(CLEANED_SUFFIX) + SWAP_SUFFIX)
        self._log.disk.sync_directory(self._log.directory)

    def publish(self) -> bool:
        """The log is read through the new segment now. On the loop. False, and nothing is done, if the old ones are not
        the log's any more (retention has taken one away)."""
        log, old, cleaned = self._log, self._old, self._cleaned
        first = next((number for number, segment in enumerate(log.segments) if segment is old[0]), len(log.segments))
        last = first + len(old)
        if log.segments[first:last] != old:
            return False
        require(last < len(log.segments), "the active segment cannot be replaced")
        require(
            log.segments[last].base_offset <= log.recovery_point, "only segments that are on the device can be replaced"
        )
        require(cleaned.base_offset == old[0].base_offset, "the new segment begins where the first old one does")
        cleaned.attach(log.file_cache)
        log.put_segments([*log.segments[:first], cleaned, *log.segments[last:]])
        for segment in old:
            segment.leave()
        return True

    def finish(self) -> list[str]:
        """Give the files their last names. *Blocking.* The paths to unlink after `file.delete.delay.ms`."""
        log = self._log
        paths: list[str] = []
        for segment in self._old:
            for handle in self._last_first(segment):
                _rename(handle, handle.path + DELETED_SUFFIX)
                paths.append(handle.path)
            if segment.base_offset != self._cleaned.base_offset:
                log.disk.unlink(snapshot_path(log.directory, segment.base_offset))
        log.disk.sync_directory(log.directory)
        for handle in self._last_first(self._cleaned):
            handle.gone = True
            _rename(handle, handle.path.removesuffix(SWAP_SUFFIX))
            handle.gone = False
        log.disk.sync_directory(log.directory)
        return paths

    def discard(self) -> None:
        """The old segments stay: take the new one's files away, durably. *Blocking.*"""
        for handle in self._last_first(self._cleaned):
            handle.remove()
        self._log.disk.sync_directory(self._log.directory)

    @staticmethod
    def _last_first(segment: Segment) -> list[Handle]:
        """A segment's files that are there, the log file last: its name is the one that counts."""
        return [handle for handle in reversed(segment.handles) if handle.exists]


def _rename(handle: Handle, path: str) -> None:
    """Give a file another name; whoever has it open keeps it."""
    handle.disk.rename(handle.path, path)
    handle.path = path
