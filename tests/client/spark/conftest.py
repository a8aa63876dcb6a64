"""One Spark session for the whole test run, and clusters to read from and write to.

Tests that take `spark` are marked interop: a session costs some ten CPU seconds and 500 MB. It has filters pushed down
and Spark's own Kafka connector; change settings for a while with `with_settings`. What needs another master, or a
session that may break, runs in a process of its own (`own_process`).
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
    """Skip the test, with the reason, where Spark cannot run; in continuous integration (CI=true) that is a failure."""
    try:
        check_packages()
        find_java()
    except SparkNotReady as reason:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"{type(reason).__name__}: {reason}")


@pytest.fixture(scope="session")
def spark(spark_ready: None) -> Iterator[SparkSession]:
    """The session that all tests share. Temporary views and streaming queries are the test's to remove."""
    from tests.client.spark.sessions import connector_jars, session_running

    with session_running("local[2]", {"spark.jars": connector_jars()}) as session:
        yield session


WithSettings = Callable[[dict[str, str]], AbstractContextManager[None]]


@pytest.fixture
def with_settings(spark: SparkSession) -> WithSettings:
    """`with with_settings({name: value}): …`: these settings of the session hold in the block alone."""

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
    """Three controllers and three brokers of ours, as processes, for the tests of one module."""
    with running(settings=["group.initial.rebalance.delay.ms=0"]) as started:
        yield started


@pytest.fixture(scope="session")
def apache_kafka(spark_ready: None) -> Iterator[str]:
    """One node of Apache Kafka for the whole run; gives where it listens. Leave no broker settings changed."""
    with kafka_running() as bootstrap:
        yield bootstrap


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name for a topic that no other test uses; the topic does not exist yet."""
    return f"{re.sub('[^a-z0-9]+', '-', request.node.name)[:60]}-{secrets.token_hex(4)}"
