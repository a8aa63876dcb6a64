"""Tests of Spark sessions as `start_session` makes them, and as the tests run them."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import TYPE_CHECKING

import psutil
import pytest

from kraft.client.spark.session import FILTER_PUSHDOWN, start_session
from kraft.sim.chaos.hosts.leash import leashed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.client.spark.conftest import WithSettings

pytestmark = pytest.mark.interop

ROOT = Path(__file__).parents[3]
END_SECONDS_MAX = 30
HELD = """
import json, os, psutil, sys
from tests.client.spark.sessions import session_running
with session_running("local[1]") as spark:
    spark.range(10).mapInArrow(lambda batches: batches, "id BIGINT").collect()
    processes = [one.pid for one in psutil.Process().children(recursive=True)]
    print(json.dumps([processes, spark.conf.get("spark.local.dir")]), flush=True)
    os.read(int(sys.argv[1]), 1)
"""


def test_spark_session_uses_this_python_and_only_the_loopback_interface(spark: SparkSession) -> None:
    assert spark.sparkContext.pythonExec == os.environ["PYSPARK_PYTHON"] == sys.executable
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    sockets = psutil.Process(gateway.proc.pid).net_connections()
    listening = {one.laddr.ip.removeprefix("::ffff:") for one in sockets if one.status == psutil.CONN_LISTEN}
    assert listening == {"127.0.0.1"}


def test_start_session_returns_a_running_session_with_format_and_filter_pushdown(
    spark: SparkSession, with_settings: WithSettings
) -> None:
    with with_settings({FILTER_PUSHDOWN: "false"}):
        assert start_session() is spark
        assert spark.conf.get(FILTER_PUSHDOWN) == "true"
        start_session(conf={FILTER_PUSHDOWN: "false"})
        assert spark.conf.get(FILTER_PUSHDOWN) == "false"
    formats = spark.sparkContext._jvm.org.apache.spark.sql.classic.SparkSession.active()  # type: ignore[union-attr]
    assert formats.sessionState().dataSourceManager().dataSourceExists("kraft")


def test_spark_session_of_a_killed_process_leaves_no_process_and_no_file(spark_ready: None) -> None:
    reads, writes = os.pipe()
    try:
        command = [sys.executable, "-c", HELD, str(reads)]
        with leashed(command, cwd=ROOT, stdout=PIPE, stderr=DEVNULL, text=True, pass_fds=[reads]) as driver:
            assert driver.stdout is not None
            pids, local = json.loads(driver.stdout.readline())
            held = [psutil.Process(pid) for pid in pids]
            assert {"java"} < {one.name() for one in held}
            folder = Path(local).parent
            assert folder.is_dir()
            driver.kill()
            driver.wait()
            _, alive = psutil.wait_procs(held, END_SECONDS_MAX)
            assert alive == []
            deadline = time.monotonic() + END_SECONDS_MAX
            while folder.exists():
                assert time.monotonic() < deadline, f"{folder} is still there"
                time.sleep(0.05)
    finally:
        os.close(reads)
        os.close(writes)
