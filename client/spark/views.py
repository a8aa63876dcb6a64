"""Temporary views of a cluster for SQL: each state table by its name, each topic as `topic_NAME`.

A view is made only if a query names it, for each costs Spark some work. Views of topics give `key` and `value` as
text; `spark.read.format("kraft")` gives them as bytes. A topic whose name has other characters than letters, digits and
`_` is written in backticks: SELECT * FROM `topic_web.clicks`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kraft.client.spark.tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC_PREFIX = "topic_"
_METADATA = "metadata_"
"""Tables that are read from the metadata log alone."""
_NOT_NAMES = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|--[^\n]*|/\*.*?\*/""", re.DOTALL)
"""Strings and comments of SQL."""
_NAMES = re.compile(r"`([^`]+)`|\b([A-Za-z_]\w*)\b")
_OPTIONS_OF_DIFF = ("fromOffset", "fromTimestamp", "toOffset", "toTimestamp")
_OPTIONS_OF_TIME = ("asOfOffset", "asOfTimestamp")


def views_in(query: str) -> list[str]:
    """The views that a query may need, in its order: each name in it that is a state table's, whatever the case of its
    letters, or begins with `topic_`. A column of such a name costs a view that is not used."""
    found = (quoted or plain for quoted, plain in _NAMES.findall(_NOT_NAMES.sub(" ", query)))
    names = (name.lower() if name.lower() in TABLES else name for name in found)
    return list(dict.fromkeys(name for name in names if name in TABLES or _topic_of(name)))


def create_views(spark: SparkSession, cluster: Mapping[str, str], names: Iterable[str]) -> None:
    """Make or replace these views. `cluster` holds options of `format("kraft")`: those that reach the cluster or name a
    `folder`, and such as `asOfTimestamp`, which is given to the tables that have time travel."""
    for name in names:
        view_of(spark, cluster, name).createOrReplaceTempView(f"`{name}`")


def view_of(spark: SparkSession, cluster: Mapping[str, str], name: str) -> DataFrame:
    """What the view of this name shows."""
    topic = _topic_of(name)
    reader = spark.read.format("kraft").options(**options_of(name, cluster))
    if topic is None:
        return reader.load()
    records = reader.load()
    return records.selectExpr(
        *(
            f"CAST({column} AS STRING) AS {column}" if column in ("key", "value") else column
            for column in records.columns
        )
    )


def options_of(name: str, cluster: Mapping[str, str]) -> dict[str, str]:
    """The options of a view: those of `cluster` that its table or topic has a use for. With a `folder`, a table that is
    in the metadata log is read from there, and no broker is asked for it."""
    topic = _topic_of(name)
    if topic is not None:
        return {"subscribe": topic, **_of_network(cluster)}
    has_time_travel, is_log = TABLES[name].has_time_travel, name.startswith(_METADATA)
    options = {"table": name}
    if "folder" in cluster and (has_time_travel or is_log):
        options["folder"] = cluster["folder"]
    else:
        options |= _of_network(cluster)
    wanted = _OPTIONS_OF_TIME if has_time_travel else _OPTIONS_OF_DIFF if name == "metadata_diff" else ()
    return {**options, **{option: cluster[option] for option in wanted if option in cluster}}


def _of_network(cluster: Mapping[str, str]) -> dict[str, str]:
    unused = {"folder", *_OPTIONS_OF_TIME, *_OPTIONS_OF_DIFF}
    return {option: value for option, value in cluster.items() if option not in unused}


def _topic_of(name: str) -> str | None:
    return name.removeprefix(TOPIC_PREFIX) or None if name.startswith(TOPIC_PREFIX) else None
