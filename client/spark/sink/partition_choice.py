"""Pure: choose partitions for whole columns of rows, as Kafka's default partitioner does.

A row with a key goes to partition murmur2(key) modulo the number of partitions. Rows without a key go to one partition
for `batch.size` bytes (a run), then to another one, as in the Java producer. An Arrow column of keys is hashed at once:
each step of the hash is one operation on all keys that are long enough for that step. The choices follow
`kraft.client.core.partitioner`. Source: KIP-480, KIP-794.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kraft.client.core.partitioner import StickyPartitioner, murmur2
from kraft.client.core.records import KafkaError
from kraft.client.spark.sink.column_encoder import Longs, data_of, lengths
from kraft.client.spark.sink.rows import NO_PARTITION, Ints, RowError, SinkRows

RUN_BYTES = 16 * 1024
"""Bytes of a run, that is, of rows without a key that go to the same partition: Kafka's `batch.size`. This sink's
batches are larger, because batches of several runs are filled in parallel."""
RUNS_MAX = 16
"""Maximum number of runs in one column of rows, because the start of each run checks all partitions. In a large column,
runs are longer than RUN_BYTES."""
VECTOR_KEY_BYTES_MAX = 256
"""Maximum size of keys that are hashed together; longer keys are hashed one by one."""
_SEED = 0x9747B28C
_M = np.uint32(0x5BD1E995)

UInts = npt.NDArray[np.uint32]


def murmur2_of(keys: Any) -> UInts:
    """Return Kafka's murmur2 hash of each key of a pa.BinaryArray; a null key is hashed as an empty one."""
    sizes = np.maximum(lengths(keys), 0)
    hashes = np.uint32(_SEED) ^ sizes.astype(np.uint32)
    data = np.frombuffer(data_of(keys), np.uint8)
    starts = np.zeros(len(sizes), np.int64)
    np.cumsum(sizes[:-1], out=starts[1:])
    long = np.flatnonzero(sizes > VECTOR_KEY_BYTES_MAX)
    words = np.where(sizes > VECTOR_KEY_BYTES_MAX, 0, sizes >> 2)
    for word in range(int(words.max(initial=0))):
        rows = np.flatnonzero(words > word)
        _mix(hashes, rows, data, starts[rows] + 4 * word)
    _finish(hashes, sizes, data, starts + 4 * words)
    for row in long:
        hashes[row] = murmur2(bytes(data[starts[row] : starts[row] + sizes[row]]))
    return hashes


def _mix(hashes: UInts, rows: Longs, data: npt.NDArray[np.uint8], at: Longs) -> None:
    word = data[at].astype(np.uint32)
    for byte in range(1, 4):
        word |= data[at + byte].astype(np.uint32) << np.uint32(8 * byte)
    word *= _M
    word ^= word >> np.uint32(24)
    word *= _M
    hashes[rows] = hashes[rows] * _M ^ word


def _finish(hashes: UInts, sizes: Longs, data: npt.NDArray[np.uint8], at: Longs) -> None:
    tails = sizes & 3
    for byte in (2, 1, 0):
        rows = np.flatnonzero((tails > byte) & (sizes <= VECTOR_KEY_BYTES_MAX))
        hashes[rows] ^= data[at[rows] + byte].astype(np.uint32) << np.uint32(8 * byte)
    rows = np.flatnonzero(tails > 0)
    hashes[rows] *= _M
    hashes ^= hashes >> np.uint32(13)
    hashes *= _M
    hashes ^= hashes >> np.uint32(15)


class PartitionChoice:
    """Chooses partitions for the rows of one task. `partition_count(topic)` raises for a topic that does not exist.
    `available(topic)` returns the partitions that have a leader. `draw` and `waiting_bytes` are those of
    `StickyPartitioner`."""

    def __init__(
        self,
        partition_count: Callable[[str], int],
        available: Callable[[str], Sequence[int]],
        draw: Callable[[int], int],
        waiting_bytes: Callable[[str, int], int],
    ) -> None:
        self._partition_count = partition_count
        self._available = available
        self._sticky = StickyPartitioner(draw, waiting_bytes, RUN_BYTES)
        self._run_left: dict[str, tuple[int, int]] = {}

    def choose(self, rows: SinkRows, sizes: Longs, first_row: int) -> Ints:
        """Return the partition of each row. `sizes` are the records' sizes. Raises RowError, with the row's number, for
        a row that names a partition that does not exist."""
        chosen = rows.partition_of.copy()
        hashes: UInts | None = None
        for index, topic in enumerate(rows.topics):
            mine = rows.topic_of == index
            try:
                count = self._partition_count(topic)
            except KafkaError as error:
                raise RowError(f"row {first_row + int(np.argmax(mine))}: {error}") from error
            self._check(topic, count, mine, rows, first_row)
            free = mine & (chosen == NO_PARTITION)
            if not free.any():
                continue
            keyless = free
            if rows.columns.keys is not None:
                has_key = rows.columns.keys.is_valid().to_numpy(zero_copy_only=False)
                hashes = murmur2_of(rows.columns.keys) if hashes is None else hashes
                keyed = free & has_key
                chosen[keyed] = (hashes[keyed] & np.uint32(0x7FFFFFFF)) % np.uint32(count)
                keyless = free & ~has_key
            places = np.flatnonzero(keyless)
            if len(places):
                self._stick(topic, count, chosen, places, sizes[places])
        return chosen

    @staticmethod
    def _check(topic: str, count: int, mine: npt.NDArray[np.bool_], rows: SinkRows, first_row: int) -> None:
        wrong = np.flatnonzero(mine & (rows.partition_of >= count))
        if len(wrong):
            row = int(wrong[0])
            raise RowError(
                f"row {first_row + row} names partition {rows.partition_of[row]} of topic {topic}, "
                f"which has partitions 0 to {count - 1}"
            )

    def _stick(self, topic: str, count: int, chosen: Ints, places: Longs, sizes: Longs) -> None:
        """Assign rows without a key in runs of at least RUN_BYTES, each to one partition. The last run continues in the
        next call."""
        partition, left = self._run_left.get(topic, (NO_PARTITION, 0))
        ends = np.cumsum(sizes)
        run_bytes = max(RUN_BYTES, int(ends[-1]) // RUNS_MAX)
        at = done = 0
        while at < len(places):
            if left <= 0:
                partition, left = self._sticky.draw(topic, self._available(topic) or range(count)), run_bytes
            until = int(np.searchsorted(ends, done + left, side="left")) + 1
            chosen[places[at:until]] = partition
            until = min(until, len(places))
            left -= int(ends[until - 1]) - done
            at, done = until, int(ends[until - 1])
        self._run_left[topic] = (partition, left)
