"""`docs/spark-tables.md`: each table of the cluster's state that Spark reads, with its columns."""

from __future__ import annotations

from collections.abc import Iterator

from kraft.client.spark.tables import AS_OF, TABLES, Column, Source, Table
from kraft.wire.api_keys import BROKER_APIS
from kraft.wire.reply_policy import api_name

_HEAD = """# Tables for Spark

```python
spark.read.format("kraft").option("bootstrap", "localhost:9092").option("table", "partitions").load()
```

Every column may be NULL. What the marks behind a type mean:

- *live*: the column costs requests of its own, mostly to every broker. They are made only if the column is read. Name
  the columns that you need, by `.option("columns", "topic,partition,leader")` or by a schema: Spark does not tell a
  source which ones a query uses. In a table of the past the column is NULL.
- *log*: the column comes from pykraft's metadata log. For other clusters, such as those of Apache Kafka, it is NULL.

Tables with *time travel* can be read as they were: `.option("asOfOffset", …)` or `.option("asOfTimestamp", …)`. Filters
on the columns that are *pushed down* limit what the brokers are asked for, if the session has
`spark.sql.python.filterPushdown.enabled=true`; without it, each query gives the same rows.

A table is asked for once in each evaluation of a query. Two uses of it in one query may see two moments: `.cache()` it,
or read it as of one offset.

A cluster with a dead broker still has all its tables. Live columns of a partition without a leader are NULL, and so are
those of a broker that does not answer. It is waited for no longer than a third of `kafka.request.timeout.ms`, for
offsets no longer than the whole. Where rows would be missing without it (groups, configs, apis, features, producers), a
broker that is not fenced and does not answer is an error that names it. A table whose requests the brokers do not know
is an error, before any row, that names them.

Every table ends with:

{as_of}

This page is generated: `make docs`.
"""


def render_spark_tables() -> str:
    """The page."""
    head = _HEAD.format(as_of="\n".join(_columns(AS_OF)))
    return "\n".join([head, *(_chapter(table) for table in TABLES.values())])


def _chapter(table: Table) -> str:
    columns = [column for column in table.columns if column not in AS_OF]
    return "\n".join([f"## {table.name}\n", table.meaning, "", *_facts(table), "", *_columns(columns), ""])


def _facts(table: Table) -> Iterator[str]:
    if table.apis:
        asked = ", ".join(f"{api_name(key)} v{least}" for key, least in table.apis)
        lacking = [api_name(key) for key, _ in table.apis if key not in BROKER_APIS]
        without = f"; brokers of pykraft do not serve {', '.join(lacking)} yet" if lacking else ""
        yield f"- Requests, with the least version: {asked}{without}."
    if table.pushable:
        yield f"- Filters that are pushed down: {', '.join(f'`{name}`' for name in table.pushable)}."
    if table.has_time_travel:
        yield "- Time travel."
    if table.is_streamable:
        yield "- Can be read as a stream, too."


def _columns(columns: tuple[Column, ...] | list[Column]) -> Iterator[str]:
    yield "| column | type | meaning |"
    yield "|---|---|---|"
    for column in columns:
        marks = (" *live*" if column.is_live else "") + (" *log*" if column.source is Source.LOG else "")
        yield f"| `{column.name}` | {column.type}{marks} | {column.meaning} |"
