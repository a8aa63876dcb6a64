"""Fixtures: one Spark session for the whole test run, and clusters to read from and write to.

Tests that take `spark` are marked interop, because a session costs about ten CPU seconds and 500 MB. The session has
filters pushed down and Spark's own Kafka connector. Change its settings temporarily with `with_settings`. A test that
needs another master, or may break its session, uses a separate process (`own_process`).
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

import pytest

from kraft.client.spark.java import SparkNotReady, find_java
from kraft.client.spark.packages import check_packages
from tests.interop.kafka_nodes import kafka_running
from tests.stages.started_clusters import LocalCluster, running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark_ready() -> None:
    """Skip the test, with the reason, if Spark cannot run; in continuous integration (CI=true) fail instead."""
    try:
        check_packages()
        find_java()
    except SparkNotReady as reason:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"{type(reason).__name__}: {reason}")


@pytest.fixture(scope="session")
def spark(spark_ready: None) -> Iterator[SparkSession]:
    """The session that all tests share. A test must remove the temporary views and streaming queries that
    it creates."""
    from tests.client.spark.sessions import connector_jars, session_running

    with session_running("local[2]", {"spark.jars": connector_jars()}) as session:
        yield session


WithSettings = Callable[[dict[str, str]], AbstractContextManager[None]]


@pytest.fixture
def with_settings(spark: SparkSession) -> WithSettings:
    """Return a context manager, used as `with with_settings({name: value}): …`, that changes settings of the session
    inside the block only."""

    @contextmanager
    def changed(settings: dict[str, str]) -> Iterator[None]:
        before = {name: spark.conf.get(name, None) for name in settings}
        for name, value in settings.items():
            spark.conf.set(name, value)
        try:
            yield
        finally:
            for name, old in before.items():
                if old is None:
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, old)

    return changed


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Three controllers and three brokers of pykraft, as processes, for the tests of one module."""
    with running(settings=["group.initial.rebalance.delay.ms=0"]) as started:
        yield started


@pytest.fixture(scope="session")
def apache_kafka(spark_ready: None) -> Iterator[str]:
    """Start one node of Apache Kafka for the whole test run, and return its address. Tests must restore broker settings
    that they change."""
    with kafka_running() as bootstrap:
        yield bootstrap


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """Name for a topic that does not exist yet, unique per test."""
    return f"{re.sub('[^a-z0-9]+', '-', request.node.name)[:60]}-{secrets.token_hex(4)}"
