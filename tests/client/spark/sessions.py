"""Real Spark sessions for tests: small, on the loopback interface, and gone when their process is, however it ends."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from pyspark import SparkContext
from pyspark.sql import SparkSession

from kraft.client.spark.session import start_session
from tests.stages.started_clusters import held_folder

JARS_SCRIPT = Path(__file__).parents[2] / "interop" / "spark.sh"
QUICK_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""The first compiler alone: a session and its first queries take 40 % less CPU. Not for benchmarks."""
END_SECONDS_MAX = 60


def connector_jars() -> str:
    """Spark's own Kafka connector, as the setting `spark.jars` takes it. Fetched if it is not here yet."""
    try:
        found = subprocess.run([JARS_SCRIPT], check=True, stdout=subprocess.PIPE, text=True, timeout=600)
    except subprocess.CalledProcessError as failure:
        raise RuntimeError(
            f"{JARS_SCRIPT} failed: tests/interop/tools.sh installs the Maven that it needs"
        ) from failure
    return ",".join(map(str, sorted(Path(found.stdout.strip()).glob("*.jar"))))


def small_session_settings(folder: Path) -> dict[str, str]:
    """Settings for little memory and CPU, and for files that are written below `folder` alone."""
    return {
        "spark.driver.memory": "1g",
        "spark.kafka.producer.cache.timeout": "5s",  # the connector's; the next cluster may listen on the same ports
        "spark.kafka.producer.cache.evictorThreadRunInterval": "5s",
        "spark.driver.extraJavaOptions": f"{QUICK_JVM} -Djava.io.tmpdir={folder}",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


@contextmanager
def session_running(master: str, settings: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """A session and its JVM, which end with the block, and also if this process is killed. Only one at a time."""
    assert SparkContext._gateway is None, "this process has a session already"
    interrupt = signal.getsignal(signal.SIGINT)  # pyspark sets its own, which needs the session
    with held_folder("kraft-spark-") as (folder, leash):
        spark = start_session(master, "pykraft tests", {**small_session_settings(folder), **(settings or {})})
        jvm: subprocess.Popen[Any] = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
        leash.hold([jvm.pid])
        try:
            yield spark
        finally:
            _end(spark, jvm)
            signal.signal(signal.SIGINT, interrupt)


def _end(spark: SparkSession, jvm: subprocess.Popen[Any]) -> None:
    """Python workers end with their JVM, as does everything else that it has started."""
    children = psutil.Process(jvm.pid).children(recursive=True)
    for query in spark.streams.active:
        query.stop()
    spark.stop()
    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    assert gateway is not None
    gateway.shutdown()
    assert jvm.stdin is not None
    jvm.stdin.close()  # the JVM ends when this pipe does
    try:
        jvm.wait(END_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait()
    _, alive = psutil.wait_procs(children, END_SECONDS_MAX)
    assert not alive, f"processes of Spark's JVM still run: {alive}"
