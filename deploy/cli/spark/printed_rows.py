"""Print DataFrames and results of pipelines on standard output: as a table, CSV or JSON."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields
from datetime import date, datetime
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kraft.deploy.cli.output import print_json, print_table, warn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

ROWS_MAX = 1_000
"""Default number of rows in a printed table. All rows of a table are held in memory, because a column is as wide as its
widest value."""
SHOWN_MAX = 20
"""Number of rows printed of a DataFrame that a pipeline returns."""


def print_frame(frame: DataFrame, format: str, limit: int | None) -> None:
    """Print at most `limit` rows: as `table`, as `csv` with a header, or as `json`, a list of objects."""
    if format == "table":
        _print_as_table(frame, limit or ROWS_MAX, is_limit_wanted=limit is not None)
    elif format == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(frame.columns)
        writer.writerows([_text(value) for value in row] for row in _rows(frame, limit))
    else:
        print_json([row_values(row) for row in _rows(frame, limit)])


def _print_as_table(frame: DataFrame, limit: int, *, is_limit_wanted: bool) -> None:
    rows = list(islice(frame.toLocalIterator(), limit + 1)) if limit > ROWS_MAX else frame.limit(limit + 1).collect()
    if not frame.columns:
        return
    print_table(frame.columns, [[shown(value) for value in row] for row in rows[:limit]])
    if len(rows) > limit and not is_limit_wanted:
        warn(f"the first {limit:,} rows; --limit N shows more, --format csv all")


def _rows(frame: DataFrame, limit: int | None) -> Iterator[Row]:
    return (frame if limit is None else frame.limit(limit)).toLocalIterator()


def row_values(row: Row) -> dict[str, Any]:
    """Return a row in JSON's types. Bytes become text if they are UTF-8."""
    return {name: _plain(value) for name, value in zip(row.__fields__, row, strict=True)}


def shown(value: Any) -> object:
    """Return a value as the text of a table's cell."""
    plain = _plain(value)
    return json.dumps(plain, ensure_ascii=False) if isinstance(plain, dict) or _is_nested(plain) else plain


def _is_nested(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value)


def _text(value: Any) -> object:
    plain = _plain(value)
    return json.dumps(plain, ensure_ascii=False) if isinstance(plain, (dict, list)) else plain


def _plain(value: Any) -> Any:
    from pyspark.sql import Row

    if isinstance(value, Row):
        return row_values(value)
    if isinstance(value, dict):
        return {str(_plain(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    if isinstance(value, date):
        return value.isoformat()
    return float(value) if isinstance(value, Decimal) else value


def print_result(spark: SparkSession, result: Any, *, as_json: bool) -> None:
    """Print the result of a pipeline: its DataFrames, the files that it wrote, or the progress of its stream. For a
    stream, return when the stream ends, or at ctrl-C."""
    from pyspark.sql.streaming.query import StreamingQuery

    if isinstance(result, StreamingQuery):
        _print_stream(result, as_json=as_json)
        return
    values = {field.name: getattr(result, field.name) for field in fields(result)}
    if as_json:
        print_json({name: _as_json(value) for name, value in values.items()})
        return
    for name, value in values.items():
        _print_value(name, value)


def _print_stream(query: Any, *, as_json: bool) -> None:
    with suppress(KeyboardInterrupt):
        query.awaitTermination()
    rows = sum(int(progress["numInputRows"]) for progress in query.recentProgress)
    batches = len(query.recentProgress)
    query.stop()
    if as_json:
        print_json({"query_id": query.id, "batches": batches, "rows": rows})
    else:
        print(f"query {query.id}: {rows:,} rows in {batches} batches")


def _print_value(name: str, value: Any) -> None:
    from pyspark.sql import DataFrame

    if isinstance(value, DataFrame):
        rows = value.limit(SHOWN_MAX + 1).collect()
        print(f"\n{name.replace('_', ' ')}{'' if rows else ': none'}")
        if rows:
            print_table(value.columns, [[shown(cell) for cell in row] for row in rows[:SHOWN_MAX]])
        if len(rows) > SHOWN_MAX:
            print(f"… the first {SHOWN_MAX} rows")
    elif isinstance(value, Path):
        print(f"\nwrote {value}")
    elif isinstance(value, list):
        print("\n".join(_line(item) for item in value))
    elif value is not None:
        print(f"{name}: {value:,}" if isinstance(value, int) else f"{name}: {value}")


def _line(item: Any) -> str:
    """Return one finding of a report as a line of text."""
    return f"{item.tone:7}  {item.text} {item.advice}".rstrip()


def _as_json(value: Any) -> Any:
    from pyspark.sql import DataFrame

    if isinstance(value, DataFrame):
        return [row_values(row) for row in value.collect()]
    return str(value) if isinstance(value, Path) else value
