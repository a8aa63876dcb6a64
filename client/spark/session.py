"""Synchronous: start a Spark session in which `format("kraft")` works, after checking everything that it needs."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kraft.client.spark.java import find_java
from kraft.client.spark.packages import check_packages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILTER_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""Spark setting that turns on filter pushdown. It is off by default; without pushdown every table and topic is read
completely (SPARK-51271)."""


def start_session(
    master: str = "local[*]", app_name: str = "pykraft", conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Start a Spark session with all of `kraft.client.spark` registered and filters pushed down.

    `conf` are Spark settings; they override those made here. If a session already runs, it is returned, and settings of
    its JVM have no effect. Python workers run this Python unless PYSPARK_PYTHON names another. A session with a local
    master listens on 127.0.0.1 unless SPARK_LOCAL_IP is set. Raises SparkNotReady with what is missing."""
    check_packages()
    if not _has_jvm():
        find_java()
        _set_environment(master)
    from pyspark.sql import SparkSession

    from kraft.client.spark import register

    spark = SparkSession.builder.master(master).appName(app_name).config(map=dict(conf or {})).getOrCreate()
    register(spark)
    if conf and FILTER_PUSHDOWN in conf:
        spark.conf.set(FILTER_PUSHDOWN, conf[FILTER_PUSHDOWN])
    return spark


def _has_jvm() -> bool:
    """Whether this process already has a JVM: one that it started, or the one of the spark-submit that started this
    process."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return True
    from pyspark import SparkContext

    return SparkContext._gateway is not None


def _set_environment(master: str) -> None:
    """Set the environment variables that the JVM inherits at its start."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
