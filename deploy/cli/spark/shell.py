"""The Python shell of `kraft spark shell`."""

from __future__ import annotations

import code
import importlib
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kraft.client.spark.tables import TABLES
from kraft.client.spark.views import create_views, network_options, view_of, views_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BANNER = """Spark {version} on the cluster at {where}
  sql("select * from partitions").show()     tables: {tables}
  sql("select value from topic_orders")      a topic is the view topic_NAME
  table("brokers")                           the same as a DataFrame
  read().option("subscribe", "orders")       spark.read, with the options that reach the cluster
  spark, cluster                             the session and these options; ctrl-D ends the shell"""


def run_shell(spark: SparkSession, cluster: Mapping[str, str]) -> None:
    """Read and run Python until ctrl-D. Lines can be edited and completed if readline is available."""
    names = shell_names(spark, cluster)
    with suppress(ImportError):
        readline: Any = importlib.import_module("readline")
        readline.set_completer(importlib.import_module("rlcompleter").Completer(names).complete)
        readline.parse_and_bind("tab: complete")
    where = cluster.get("folder") or cluster.get("bootstrap", "")
    banner = BANNER.format(version=spark.version, where=where, tables=", ".join(TABLES))
    code.interact(banner, local=names, exitmsg="")


def shell_names(spark: SparkSession, cluster: Mapping[str, str]) -> dict[str, Any]:
    """Return the names that the shell defines besides Python's own."""

    def sql(query: str) -> DataFrame:
        """Return the result of a query, which may use state tables and topics (topic_NAME)."""
        create_views(spark, cluster, views_in(query))
        return spark.sql(query)

    def table(name: str) -> DataFrame:
        """Return a state table, or a topic as `topic_NAME`."""
        return view_of(spark, cluster, name)

    def read() -> Any:
        """Return `spark.read.format("kraft")` with the options for the connection to the cluster."""
        return spark.read.format("kraft").options(**network_options(cluster))

    return {"spark": spark, "cluster": dict(cluster), "sql": sql, "table": table, "read": read}
