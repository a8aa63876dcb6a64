"""Checks of a leader's batches before a follower writes them. Source: Kafka's ReplicaFetcherThread, KAFKA-18723."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from crc32c import crc32c

from kraft.seam import Buffer, WireError
from kraft.storage.append import AppendRefused
from kraft.storage.markers import read_marker
from kraft.storage.segment import RELATIVE_OFFSET_MAX
from kraft.wire.error_codes import ErrorCode
from kraft.wire.records import ATTRIBUTE_CONTROL, BATCH_PREFIX_BYTES, CRC_START, BatchHeader, iter_headers

Placed = tuple[int, BatchHeader]
"""A batch's position in the fetched bytes, and its header."""


@dataclass(frozen=True, slots=True, eq=False)
class FollowerBatches:
    """The verified whole batches of `view`, in order."""

    view: memoryview
    headers: list[Placed]

    @staticmethod
    def verify(
        data: Buffer, *, leader_epoch: int | None, log_end_offset: int, latest_epoch: int, unaligned_start: bool
    ) -> FollowerBatches:
        """Check CRC, format, increasing offsets and epochs, and that markers parse. AppendRefused names the error.

        Stop before a batch with an epoch above `leader_epoch`: the leader was elected again after the fetch was sent.
        `unaligned_start`: the log is empty, so the first batch may begin below the log's end. All batches must fit into
        one segment that begins at the log's end, as a leader sends only batches of one segment at once."""
        headers: list[Placed] = []
        view = memoryview(data)
        expected, epoch = log_end_offset, max(latest_epoch, 0)
        last_max = log_end_offset + RELATIVE_OFFSET_MAX
        try:
            for placed in iter_headers(view):
                position, header = placed
                base, length, batch_epoch, _, crc, attributes, delta, *_ = header
                if leader_epoch is not None and batch_epoch > leader_epoch:
                    break
                if crc32c(view[position + CRC_START : position + length + BATCH_PREFIX_BYTES]) != crc:
                    raise AppendRefused(ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {base} fails its CRC")
                last = base + delta
                inside = unaligned_start and not headers and last >= expected
                if delta < 0 or (base < expected and not inside) or last > last_max:
                    raise AppendRefused(
                        ErrorCode.OFFSET_OUT_OF_RANGE,
                        f"a batch spans {base} to {last}, expected {expected} or above, up to {last_max}",
                    )
                if batch_epoch < epoch:
                    raise AppendRefused(
                        ErrorCode.CORRUPT_MESSAGE,
                        f"the batch at offset {base} has leader epoch {batch_epoch}, the one before it {epoch}",
                    )
                if attributes & ATTRIBUTE_CONTROL:
                    read_marker(view, position, header)
                headers.append(placed)
                expected, epoch = last + 1, batch_epoch
        except WireError as error:
            raise AppendRefused(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        return FollowerBatches(view, headers)

    def groups(self, room: int, fits: Callable[[int, BatchHeader], bool]) -> Iterator[list[Placed]]:
        """Yield groups of batches that go into one segment with one write. If all of them fit into `room` bytes, they
        are one group; otherwise `fits(bytes before the batch in the group, header)` decides about each batch."""
        position, header = self.headers[-1]
        if position + header.batch_length + BATCH_PREFIX_BYTES <= room:
            yield self.headers
            return
        yield from self._runs(fits)

    def _runs(self, fits: Callable[[int, BatchHeader], bool]) -> Iterator[list[Placed]]:
        run: list[Placed] = []
        room = 0
        for placed in self.headers:
            if run and not fits(room, placed[1]):
                yield run
                run, room = [], 0
            run.append(placed)
            room += placed[1].size_bytes
        if run:
            yield run
