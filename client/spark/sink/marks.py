"""Pure: the marks that a sink with `markRecords=true` puts on its records, and how a reader drops doubles by them.

A mark is the header `spark` with the value QUERY/BATCH/PARTITION/ROW. A task or batch that Spark runs again writes the
same rows with the same marks, so records of equal marks are copies of one row. That needs a query that gives the same
rows, in the same order, in the same Spark partitions each time: reading Kafka or files does, `rand()` does not.

In SQL, over a topic that was read with `includeHeaders=true` and all of whose records have marks:

    SELECT * FROM (
      SELECT *, row_number() OVER (
        PARTITION BY cast(get(filter(headers, h -> h.key = 'spark'), 0).value AS STRING) ORDER BY partition, offset
      ) AS copy FROM records
    ) WHERE copy = 1
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kraft.client.spark.sink.rows import MARK_HEADER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Mark(NamedTuple):
    """Of which row of which write a record is. `batch_id` is 0 for a batch write, whose query id is its own."""

    query_id: str
    batch_id: int
    partition: int
    row: int


def parse_mark(value: bytes) -> Mark:
    """The value of the header `spark`. ValueError if it is not a mark."""
    parts = value.decode(errors="replace").rsplit("/", 3)
    if len(parts) != 4:
        raise ValueError(f"{value!r} is not a mark: expected QUERY/BATCH/PARTITION/ROW")
    return Mark(parts[0], int(parts[1]), int(parts[2]), int(parts[3]))


def without_doubles(frame: DataFrame, *, watermark: str | None = None) -> DataFrame:
    """The rows of a topic that was read with `includeHeaders=true`, one of each mark; rows without a mark all stay.

    `frame` has the columns `headers`, `topic`, `partition` and `offset`. For a stream give `watermark`, such as
    "10 minutes": how late a copy may come, by the column `timestamp`; Spark keeps the marks for so long."""
    from pyspark.sql import functions as f

    marks = f.filter("headers", lambda header: header["key"] == MARK_HEADER)
    mark = f.get(marks, f.lit(0))["value"].cast("string")
    place = f.concat_ws("/", "topic", f.col("partition").cast("string"), f.col("offset").cast("string"))
    marked = frame.withColumn("_mark", f.coalesce(mark, place))
    if watermark is None:
        return marked.dropDuplicates(["_mark"]).drop("_mark")
    return marked.withWatermark("timestamp", watermark).dropDuplicatesWithinWatermark(["_mark"]).drop("_mark")
