"""Replacement of old segments by a rewritten one, so that a crash at any time leaves either of the two complete.

Each step is durable before the next. The `.cleaned` files are synced and renamed to `.swap`. The log in memory gets the
new segment. The old files become `.deleted`, and `.swap` becomes the final name. After a crash, `leftovers.clear`
finishes or undoes the replacement. Files are renamed in a thread while readers on the loop may be about to open them; a
reader that does not find a file retries (`Handle.gone`).
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
    """Replace the adjacent segments `old` by `cleaned`, whose files are named `.cleaned`.

    First call `sync`. Then call `stage`, `publish` and `finish`, with no other blocking call of the log in between. Or
    call `discard` before `publish`."""

    def __init__(self, log: Log, old: list[Segment], cleaned: Segment) -> None:
        self._log = log
        self._old = old
        self._cleaned = cleaned

    def sync(self) -> None:
        """Put the new files on the device, without changing the log. *Blocking*, possibly for long."""
        for handle in self._cleaned.handles:
            if handle.exists:
                handle.open_blocking().sync_blocking()

    def stage(self) -> None:
        """Rename the new files. A crash after this call ends with the new segment. *Blocking.*"""
        for handle in self._last_first(self._cleaned):
            handle.close()
            _rename(handle, handle.path.removesuffix(CLEANED_SUFFIX) + SWAP_SUFFIX)
        self._log.disk.sync_directory(self._log.directory)

    def publish(self) -> bool:
        """Make the log read the new segment from now on. Called on the loop. Do nothing and return False if retention
        has removed one of the old segments from the log."""
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
        """Give the files their final names. Return the paths to unlink after `file.delete.delay.ms`. *Blocking.*"""
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
        """Keep the old segments and remove the new one's files, durably. *Blocking.*"""
        for handle in self._last_first(self._cleaned):
            handle.remove()
        self._log.disk.sync_directory(self._log.directory)

    @staticmethod
    def _last_first(segment: Segment) -> list[Handle]:
        """Return a segment's existing files with the log file last, as its name is the decisive one."""
        return [handle for handle in reversed(segment.handles) if handle.exists]


def _rename(handle: Handle, path: str) -> None:
    """Rename a file; open descriptors stay valid."""
    handle.disk.rename(handle.path, path)
    handle.path = path
