"""Pure: marks, which a sink with `markRecords=true` adds to its records so that readers can drop duplicates.

A mark is the header `spark` with the value QUERY/BATCH/PARTITION/ROW. A task or micro-batch that Spark repeats writes
the same rows with the same marks, so records with equal marks are copies of one row. This requires that the query
produces the same rows, in the same order, in the same Spark partitions each time. Reading Kafka or files does so,
`rand()` does not.

In SQL, over a topic that was read with `includeHeaders=true` and has a mark in every record:

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
    """A parsed mark: the row from which a record was made, and the write that wrote it. For a batch write, `batch_id`
    is 0 and the query id is unique to that write."""

    query_id: str
    batch_id: int
    partition: int
    row: int


def parse_mark(value: bytes) -> Mark:
    """Parse the value of the header `spark`. Raises ValueError if it is not a mark."""
    parts = value.decode(errors="replace").rsplit("/", 3)
    if len(parts) != 4:
        raise ValueError(f"{value!r} is not a mark: expected QUERY/BATCH/PARTITION/ROW")
    return Mark(parts[0], int(parts[1]), int(parts[2]), int(parts[3]))


def without_duplicates(frame: DataFrame, *, watermark: str | None = None) -> DataFrame:
    """Return the rows of a topic without duplicates: the first row with each mark, and all rows without a mark.

    Read the topic with `includeHeaders=true`. `frame` has the columns `headers`, `topic`, `partition` and `offset`. For
    a stream give `watermark`, such as "10 minutes": the maximum delay between two copies of a record by the column
    `timestamp`. Spark keeps marks in memory for that long."""
    from pyspark.sql import functions as f

    marks = f.filter("headers", lambda header: header["key"] == MARK_HEADER)
    mark = f.get(marks, f.lit(0))["value"].cast("string")
    place = f.concat_ws("/", "topic", f.col("partition").cast("string"), f.col("offset").cast("string"))
    marked = frame.withColumn("_mark", f.coalesce(mark, place))
    if watermark is None:
        return marked.dropDuplicates(["_mark"]).drop("_mark")
    return marked.withWatermark("timestamp", watermark).dropDuplicatesWithinWatermark(["_mark"]).drop("_mark")
