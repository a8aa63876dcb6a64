"""Temporary views of a cluster for SQL: each state table under its own name, each topic as `topic_NAME`.

Creating a view costs Spark some work, so a view is created only if a query names it. Views of topics give `key` and
`value` as text; `spark.read.format("kraft")` gives them as bytes. If a topic's name has other characters than letters,
digits and `_`, write it in backticks: SELECT * FROM `topic_web.clicks`.
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
"""Prefix of the names of tables that are read only from the metadata log."""
_WORDS = re.compile(
    r"""\b[rR](?:'[^']*'|"[^"]*")|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|--[^\n]*|/\*.*?\*/|`([^`]+)`|\b([A-Za-z_]\w*)\b""",
    re.DOTALL,
)
"""Regular expression for the words of a query: SQL strings and comments, a name in backticks (group 1), or a name
without backticks (group 2), whichever begins first."""
_TOPIC = re.compile(r"[A-Za-z0-9._-]+")
"""Regular expression for a topic's name."""
_OPTIONS_OF_DIFF = ("fromOffset", "fromTimestamp", "toOffset", "toTimestamp")
_OPTIONS_OF_TIME = ("asOfOffset", "asOfTimestamp")


def views_in(query: str) -> list[str]:
    """Return the views that a query may need, in order of appearance. These are all names in the query that are a state
    table's, in upper or lower case, or that begin with `topic_`. If such a name is only a column's, its view is created
    but not used."""
    found = (quoted or plain for quoted, plain in _WORDS.findall(query))
    names = (name.lower() if name.lower() in TABLES else name for name in found)
    return list(dict.fromkeys(name for name in names if name in TABLES or _topic_of(name)))


def create_views(spark: SparkSession, cluster: Mapping[str, str], names: Iterable[str]) -> None:
    """Create or replace these views. `cluster` holds options of `format("kraft")`: those that reach the cluster or name
    a `folder`, and options such as `asOfTimestamp`, which are passed only to tables that support time travel. Raises
    ValueError for two topics whose names differ only in case, because Spark has one view for both."""
    wanted = list(names)
    by_lower: dict[str, str] = {}
    for name in wanted:
        other = by_lower.setdefault(name.lower(), name)
        if other != name:
            raise ValueError(
                f"the views {other} and {name} differ only in upper and lower case, which Spark does not distinguish: "
                'read one of the topics with spark.read.format("kraft").option("subscribe", …)'
            )
    for name in wanted:
        view_of(spark, cluster, name).createOrReplaceTempView(f"`{name}`")


def view_of(spark: SparkSession, cluster: Mapping[str, str], name: str) -> DataFrame:
    """Return the DataFrame that the view of this name shows."""
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
    """Return the options with which a view is read: those options of `cluster` that the view's table or topic supports.
    With a `folder`, a table of the metadata log is read from the folder without a request to a broker."""
    topic = _topic_of(name)
    if topic is not None:
        return {"subscribe": topic, **network_options(cluster)}
    has_time_travel, is_log = TABLES[name].has_time_travel, name.startswith(_METADATA)
    options = {"table": name}
    if "folder" in cluster and (has_time_travel or is_log):
        options["folder"] = cluster["folder"]
    else:
        options |= network_options(cluster)
    wanted = _OPTIONS_OF_TIME if has_time_travel else _OPTIONS_OF_DIFF if name == "metadata_diff" else ()
    return {**options, **{option: cluster[option] for option in wanted if option in cluster}}


def network_options(cluster: Mapping[str, str]) -> dict[str, str]:
    """Return only the options with which every read reaches the cluster, such as the addresses of brokers."""
    unused = {"folder", *_OPTIONS_OF_TIME, *_OPTIONS_OF_DIFF}
    return {option: value for option, value in cluster.items() if option not in unused}


def _topic_of(name: str) -> str | None:
    prefix, topic = name[: len(TOPIC_PREFIX)], name[len(TOPIC_PREFIX) :]
    return topic if prefix.lower() == TOPIC_PREFIX and _TOPIC.fullmatch(topic) else None
