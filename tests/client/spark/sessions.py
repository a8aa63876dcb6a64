"""Real Spark sessions for tests: small, on the loopback interface, and ended together with their process, however that
ends.
"""

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
"""JVM options that use only the first-tier compiler, with which a session and its first queries take 40 % less CPU. Not
for benchmarks."""
END_SECONDS_MAX = 60


def connector_jars() -> str:
    """Return the files of Spark's own Kafka connector, as a value of the setting `spark.jars`. Download
    missing files."""
    try:
        found = subprocess.run([JARS_SCRIPT], check=True, stdout=subprocess.PIPE, text=True, timeout=600)
    except subprocess.CalledProcessError as failure:
        raise RuntimeError(
            f"{JARS_SCRIPT} failed: tests/interop/tools.sh installs the Maven that it needs"
        ) from failure
    return ",".join(map(str, sorted(Path(found.stdout.strip()).glob("*.jar"))))


def small_session_settings(folder: Path) -> dict[str, str]:
    """Return settings with which a session uses little memory and CPU, and keeps all files below `folder`."""
    return {
        "spark.driver.memory": "1g",
        # cached consumers of the connector; the next cluster may listen on the same ports
        "spark.kafka.producer.cache.timeout": "5s",
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
    """Start a session and its JVM, which end with the block, or with this process if it is killed. Only one session can
    run at a time."""
    assert SparkContext._gateway is None, "this process has a session already"
    interrupt = signal.getsignal(signal.SIGINT)  # pyspark installs a signal handler of its own, which needs the session
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
    """End the JVM, and with it its Python workers and all its other children."""
    children = psutil.Process(jvm.pid).children(recursive=True)
    for query in spark.streams.active:
        query.stop()
    spark.stop()
    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    assert gateway is not None
    gateway.shutdown()
    assert jvm.stdin is not None
    jvm.stdin.close()  # the JVM ends when this pipe is closed
    try:
        jvm.wait(END_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait()
    _, alive = psutil.wait_procs(children, END_SECONDS_MAX)
    assert not alive, f"processes of Spark's JVM still run: {alive}"
