"""`docs/spark-tables.md`: each table of the cluster's state that Spark reads, with its columns."""

from __future__ import annotations

from collections.abc import Iterator

from kraft.client.spark.tables import AS_OF, TABLES, Column, ColumnSource, Table
from kraft.wire.api_keys import BROKER_APIS
from kraft.wire.reply_policy import api_name

_HEAD = """# Tables for Spark

```python
spark.read.format("kraft").option("bootstrap", "localhost:9092").option("table", "partitions").load()
```

Every column may be NULL. A type may be followed by a mark:

- *live*: the column costs extra requests, mostly to every broker. They are sent only if the column is read. Name the
  columns that you need with `.option("columns", "topic,partition,leader")` or with a schema, because Spark does not
  pass the columns of a query on to a source. In a table of the past the column is NULL.
- *log*: the column comes from pykraft's metadata log. For other clusters, such as those of Apache Kafka, it is NULL.

Tables with *time travel* can be read as of an earlier point: `.option("asOfOffset", …)` or
`.option("asOfTimestamp", …)`. Filters on the columns that are *pushed down* limit the requests to brokers, if the
session has `spark.sql.python.filterPushdown.enabled=true`. Without that setting, each query gives the same rows.

A table is requested once in each evaluation of a query. Two uses of it in one query may see two points in time:
`.cache()` it, or read it as of one offset.

If a broker is dead, all tables can still be read. Live columns of a partition without a leader are NULL, and so are
those of a broker that does not respond. Requests to it time out after a third of `kafka.request.timeout.ms`, those for
offsets after the whole time. In some tables (groups, configs, apis, features, producers) rows would be missing: there,
a broker that is not fenced and does not respond causes an error that names it. If brokers do not support the requests
of a table, the query fails before any row with an error that names them.

Every table ends with:

{as_of}

This page is generated: `make docs`.
"""


def render_spark_tables() -> str:
    """Render the page."""
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
        yield f"- Requests, with the lowest version: {asked}{without}."
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
        marks = (" *live*" if column.is_live else "") + (" *log*" if column.source is ColumnSource.LOG else "")
        yield f"| `{column.name}` | {column.type}{marks} | {column.meaning} |"
