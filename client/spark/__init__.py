"""Synchronous: the cluster's state, its history and its topics as tables of Apache Spark.

    spark = kraft.client.spark.start_session()      # or register(spark) for an existing session
    spark.read.format("kraft").option("bootstrap", "localhost:9092").option("table", "partitions").load()

Importing this package loads neither pyspark nor trio. Its modules may import everything below kraft.client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kraft.client.spark.session import start_session
    from kraft.client.spark.topics.group_committer import GroupCommitter

__all__ = ["GroupCommitter", "register", "start_session"]


def register(spark: SparkSession) -> None:
    """Register `format("kraft")` with a session, and let Spark push filters down to it.

    A session finds the format without this call if the package is installed for the driver's Python (for clusters, see
    the page on executors). With pushed filters, a query reads only a part of a table or topic."""
    from kraft.client.spark.session import FILTER_PUSHDOWN
    from kraft.client.spark.source import KraftDataSource

    spark.dataSource.register(KraftDataSource)
    spark.conf.set(FILTER_PUSHDOWN, "true")


def __getattr__(name: str) -> Any:
    if name == "GroupCommitter":
        from kraft.client.spark.topics.group_committer import GroupCommitter

        return GroupCommitter
    if name == "start_session":
        from kraft.client.spark.session import start_session

        return start_session
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
