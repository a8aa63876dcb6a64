"""What a follower checks before it writes what its leader sent. Source: broker-spec 3.2."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kraft.seam import Buffer, WireError
from kraft.storage.append import AppendRefused
from kraft.wire.error_codes import ErrorCode
from kraft.wire.records import BatchHeader, check_crc, iter_headers

Placed = tuple[int, BatchHeader]
"""A batch's position in the fetched bytes, and its header."""


@dataclass(frozen=True, slots=True, eq=False)
class FollowerBatches:
    """Verified whole batches, in order, of `view`."""

    view: memoryview
    headers: list[Placed]

    @staticmethod
    def verify(
        data: Buffer, *, leader_epoch: int | None, log_end_offset: int, latest_epoch: int, unaligned_start: bool
    ) -> FollowerBatches:
        """Check CRC, shape, rising offsets and epochs. Batches from an epoch above `leader_epoch` end it (the leader
        was elected again in between). `unaligned_start`: the log is empty, so the first batch may begin below its end.
        AppendRefused names what is wrong."""
        headers: list[Placed] = []
        expected, epoch = log_end_offset, latest_epoch
        try:
            for position, header in iter_headers(data):
                if leader_epoch is not None and header.partition_leader_epoch > leader_epoch:
                    break
                if not check_crc(data, position, header):
                    why = f"the batch at offset {header.base_offset} fails its CRC"
                    raise AppendRefused(ErrorCode.CORRUPT_MESSAGE, why)
                inside = unaligned_start and not headers and header.last_offset >= expected
                if header.last_offset_delta < 0 or (header.base_offset < expected and not inside):
                    raise AppendRefused(
                        ErrorCode.OFFSET_OUT_OF_RANGE,
                        f"a batch spans {header.base_offset} to {header.last_offset}, expected {expected} or above",
                    )
                if header.partition_leader_epoch < max(epoch, 0):
                    raise AppendRefused(
                        ErrorCode.CORRUPT_MESSAGE,
                        f"the batch at offset {header.base_offset} has leader epoch {header.partition_leader_epoch}, "
                        f"the one before it {epoch}",
                    )
                headers.append((position, header))
                expected, epoch = header.next_offset, header.partition_leader_epoch
        except WireError as error:
            raise AppendRefused(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        return FollowerBatches(memoryview(data), headers)

    def groups(self, fits: Callable[[int, BatchHeader], bool]) -> Iterator[list[Placed]]:
        """Runs of batches that go into one segment with one write; `fits(bytes before it in the run, header)`."""
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
