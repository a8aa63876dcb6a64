"""Progress of Spark on standard error: tasks of a query, or rows and lag of a stream."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kraft.deploy.cli.output import is_terminal, plural

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REDRAW_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """Number of tasks, and of finished tasks, in the stages that are running."""

    done: int
    total: int


@contextmanager
def draw_progress(spark: SparkSession, label: str) -> Iterator[None]:
    """Draw a bar of tasks while a query runs, or a line of progress while a stream runs. Draw nothing if standard error
    is not a terminal."""
    if not is_terminal(sys.stderr):
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"), TimeElapsedColumn())
    over = threading.Event()
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as bar:
        line = bar.add_task(label, total=None, note="")

        def redraw() -> None:
            while not over.wait(REDRAW_SECONDS):
                tasks, note = tasks_of(spark), stream_note(_last_progress(spark))
                text = note or (f"{tasks.done} of {plural(tasks.total, 'task')}" if tasks.total else "")
                bar.update(line, completed=tasks.done, total=tasks.total or None, note=text)

        watcher = threading.Thread(target=redraw, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()


def tasks_of(spark: SparkSession) -> TaskCounts:
    """Return the sums of the tasks in all stages that are running."""
    tracker = spark.sparkContext.statusTracker()
    stages = [info for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage)) is not None]
    return TaskCounts(sum(one.numCompletedTasks for one in stages), sum(one.numTasks for one in stages))


def _last_progress(spark: SparkSession) -> Mapping[str, Any] | None:
    """Return the latest progress report of the running stream; None if there is none."""
    for query in spark.streams.active:
        return query.lastProgress
    return None


def stream_note(progress: Any) -> str:
    """Return `batch 12: 1,200 rows, 310 rows/s, 5,000 behind`; "" before the first batch. The last part is left out if
    the source does not report the end offsets of its topics."""
    if not progress:
        return ""
    rows, rate = int(progress["numInputRows"]), float(progress["processedRowsPerSecond"] or 0)
    behind = sum(filter(None, map(_behind, progress["sources"])))
    tail = f", {behind:,} behind" if behind else ""
    return f"batch {progress['batchId']}: {plural(rows, 'row')}, {rate:,.0f} rows/s{tail}"


def _behind(source: Any) -> int | None:
    """Return the number of records between a source's position and its end; None if the source's offsets are not topic
    offsets."""
    end, latest = _offsets(source["endOffset"]), _offsets(source["latestOffset"])
    if end is None or latest is None:
        return None
    return sum(max(0, offset - end.get(place, offset)) for place, offset in latest.items())


def _offsets(value: Any) -> dict[tuple[str, str], int] | None:
    """Turn nested offsets such as {"orders": {"0": 17}} into {("orders", "0"): 17}."""
    import json

    found = json.loads(value) if isinstance(value, str) else value
    if not isinstance(found, Mapping):
        return None
    return {
        (topic, index): offset
        for topic, partitions in found.items()
        if isinstance(partitions, Mapping) and not topic.startswith("@")
        for index, offset in partitions.items()
        if isinstance(offset, int)
    }
