"""Time travel in a long metadata log: CPU seconds from the files to the rows of a table, without Spark.

    python -m tests.bench.spark.history_cost [EVENTS] [EVENTS-A-BATCH]

A tenth of the log's events create topics and partitions; the others change leaders and ISRs.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from kraft.client.spark.history import rows_as_of
from kraft.client.spark.predicates import Bounds
from kraft.client.spark.settings import TableSettings, When
from kraft.client.spark.state import StateRequest
from kraft.image import Event, encode_event, events
from kraft.storage.indexes.offset_index import ENTRY
from kraft.wire.records import encode_values

PARTITIONS_A_TOPIC = 100
INDEX_INTERVAL_BYTES = 4096
SEGMENT_BYTES = 64 * 1024 * 1024
FIRST_MS = 1_700_000_000_000


def topic_id(number: int) -> UUID:
    return UUID(int=(number + 1) << 64)


def made_events(count: int, random: Random) -> Iterator[list[Event]]:
    """Return events in batches: first a batch with each topic and its partitions, then changes one by one."""
    topics = max(1, count // 10 // (PARTITIONS_A_TOPIC + 1))
    made = 0
    for number in range(topics):
        partitions = [
            events.Partition(topic_id(number), index, (1, 2, 3), (1, 2, 3), leader=1)
            for index in range(PARTITIONS_A_TOPIC)
        ]
        yield [events.Topic(f"topic-{number}", topic_id(number)), *partitions]
        made += 1 + PARTITIONS_A_TOPIC
    while made < count:
        leader = random.randrange(1, 4)
        place = topic_id(random.randrange(topics)), random.randrange(PARTITIONS_A_TOPIC)
        isr = (1, 2, 3) if random.random() < 0.5 else (leader,)
        yield [events.PartitionChange(*place, isr=isr, leader=leader)]
        made += 1


class Writer:
    """Writes segments with their offset indexes, in the same way as a node."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._segment = folder / "nothing"
        self._size = SEGMENT_BYTES
        self._indexed = 0
        self._base_offset = 0
        self.end_offset = 0

    def append(self, batch: list[Event]) -> None:
        values = [encode_event(event) for event in batch]
        data = encode_values(
            values, timestamp_ms=FIRST_MS + self.end_offset, base_offset=self.end_offset, leader_epoch=1
        )
        if self._size >= SEGMENT_BYTES:
            self._segment = self._folder / f"{self.end_offset:020}.log"
            self._base_offset, self._size, self._indexed = self.end_offset, 0, 0
        self.end_offset += len(values)
        if self._size - self._indexed >= INDEX_INTERVAL_BYTES:
            with self._segment.with_suffix(".index").open("ab") as index:
                index.write(ENTRY.pack(self.end_offset - 1 - self._base_offset, self._size))
            self._indexed = self._size
        with self._segment.open("ab") as file:
            self._size += file.write(data)


def write_log(folder: Path, count: int, changes_a_batch: int) -> int:
    """Write the log to a folder, and return its end offset."""
    log = folder / "__cluster_metadata-0"
    log.mkdir(parents=True)
    writer = Writer(log)
    pending: list[Event] = []
    for made in made_events(count, Random(1)):
        pending.extend(made)
        if len(pending) >= changes_a_batch:
            writer.append(pending)
            pending = []
    if pending:
        writer.append(pending)
    return writer.end_offset


def cpu_seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """Run the work. Return its user and system time in this process, and its result."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    result = work()
    after = resource.getrusage(resource.RUSAGE_SELF)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, result


def count_rows(folder: Path, table: str, columns: tuple[str, ...], when: When | None, **options: Any) -> int:
    settings = TableSettings(table=table, connection=None, folder=str(folder), as_of=when, **options)
    return sum(1 for _ in rows_as_of(StateRequest(table, columns, Bounds(), settings)))


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    changes_a_batch = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        end = write_log(folder, count, changes_a_batch)
        started = time.time()
        middle, later = When(offset=end // 2), When(offset=end // 2 + 1000)
        columns = ("topic", "partition", "leader", "isr")
        questions: list[tuple[str, Callable[[], int]]] = [
            ("topics at the middle", lambda: count_rows(folder, "topics", ("topic", "created"), middle)),
            ("the same again", lambda: count_rows(folder, "topics", ("topic", "created"), middle)),
            ("partitions at the middle", lambda: count_rows(folder, "partitions", columns, middle)),
            ("partitions 1,000 events later", lambda: count_rows(folder, "partitions", columns, later)),
            ("by a time in the middle", lambda: count_rows(
                folder, "topics", ("topic",), When(timestamp_ms=FIRST_MS + end // 2)
            )),
            ("partitions at the end", lambda: count_rows(folder, "partitions", columns, None)),
            ("diff from the middle", lambda: count_rows(
                folder, "metadata_diff", ("key", "before", "after"), None, from_=middle, to=later
            )),
            ("all events, three columns", lambda: count_rows(
                folder, "metadata_events", ("offset", "type", "topic"), None
            )),
            ("all events, all fields as JSON", lambda: count_rows(folder, "metadata_events", ("fields",), None)),
        ]  # fmt: skip
        print(f"{end:,} events, {changes_a_batch} changes a batch")
        for title, ask in questions:
            cpu_s, rows = cpu_seconds(ask)
            print(f"{cpu_s:8.2f} cpu-s  {rows:>9,} rows  {title}", flush=True)
        print(f"{time.time() - started:.0f} s in all")


if __name__ == "__main__":
    main()
