"""What the verbs of `kraft spark` share: the session, the options that reach the cluster, and failures as sentences."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from types import MappingProxyType
from typing import TYPE_CHECKING

from kraft.deploy.cli.connection import Connection, pair
from kraft.deploy.cli.output import EXIT_FAILED, EXIT_UNREACHABLE, EXIT_USAGE, CommandFailed
from kraft.deploy.cli.times import parse_time_ms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUIET_CONF = MappingProxyType(
    {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.numRecentProgressUpdates": "1000000",
    }
)
"""Nothing between the rows: progress is drawn by `reading`. All batches of a stream are counted when it ends."""
_ERROR_LOGGER = "SQLQueryContextLogger"
"""pyspark prints each error of a query by it, before the exception that says the same."""
_RAISED = re.compile(
    r"^(?:kraft\.[\w.]+\.(\w+)|([A-Z]\w*(?:Error|Exception))): (.+?)(?=\s*SQLSTATE: |\n\n|\n\tat |\Z)",
    re.MULTILINE | re.DOTALL,
)
"""The last line of a Python traceback, in the text that Spark makes of a failure in one of our workers."""
_SPARK_WORDS = re.compile(r"\s*SQLSTATE: \w+.*", re.DOTALL)
_UNREACHABLE = ("ClusterUnreachable", "ConnectionRefusedError", "LinkFailed")
SILENCE = "no broker answered"
"""In errors that say of a table or topic why it cannot be read."""
_USAGE = ("OptionError", "TableError", "RowError", "AnalysisException", "ParseException")


def cluster_options(connection: Connection, folder: Path | None) -> dict[str, str]:
    """Options of `format("kraft")` that reach the cluster: what the shared options of verbs say."""
    settings = {f"kafka.{name}": value for name, value in connection.settings.items()}
    if connection.given_timeout_ms is not None:
        settings["kafka.request.timeout.ms"] = str(connection.given_timeout_ms)
    found = {**settings, "bootstrap": connection.bootstrap_servers}
    return found if folder is None else {**found, "folder": str(folder.absolute())}


def time_options(prefix: str, when: str | None) -> dict[str, str]:
    """`asOf` and "17" as asOfOffset=17, `asOf` and "-1h" as asOfTimestamp in ms. CommandFailed for anything else."""
    if when is None:
        return {}
    if when.isdecimal():
        return {f"{prefix}Offset": when}
    return {f"{prefix}Timestamp": str(parse_time_ms(when, int(time.time() * 1000)))}


@contextmanager
def session(master: str, conf: Sequence[str] | None) -> Iterator[SparkSession]:
    """A Spark session that ends with the block; one that runs already is taken, and stays. Failures of Spark become
    CommandFailed."""
    from kraft.client.spark.java import SparkNotReady

    settings = QUIET_CONF | dict(pair(entry, "--conf") for entry in conf or ())
    try:
        spark, is_own = _started(master, settings)
    except SparkNotReady as problem:
        raise CommandFailed(str(problem)) from None
    try:
        with explaining():
            yield spark
    finally:
        if is_own:
            spark.stop()


def _started(master: str, settings: Mapping[str, str]) -> tuple[SparkSession, bool]:
    """A session, and whether it was started here."""
    from kraft.client.spark.packages import check_packages
    from kraft.client.spark.session import start_session

    check_packages()
    from pyspark.sql import SparkSession

    logging.getLogger(_ERROR_LOGGER).disabled = True
    if (running := SparkSession.getActiveSession()) is not None:
        return running, False
    with _logs_aside():
        return start_session(master, "kraft spark", settings), True


@contextmanager
def _logs_aside() -> Iterator[None]:
    """Processes that are started within write their logs into a file that nobody sees, unless the start fails: what
    Spark logs is for those who run Spark, and failures of queries come as exceptions."""
    with TemporaryFile() as log:
        errors = os.dup(2)
        os.dup2(log.fileno(), 2)
        try:
            yield
        except BaseException:
            log.seek(0)
            os.write(errors, log.read())
            raise
        finally:
            os.dup2(errors, 2)
            os.close(errors)


@contextmanager
def explaining() -> Iterator[None]:
    """Make CommandFailed of what Spark, our workers in it, or a pipeline refuses."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from kraft.client.spark.jobs.report_page import MissingLibrary

    try:
        yield
    except (PySparkException, Py4JError) as problem:
        raise explained(str(problem), type(problem).__name__) from None
    except (MissingLibrary, OSError) as problem:
        raise CommandFailed(str(problem)) from None


def explained(text: str, kind: str = "") -> CommandFailed:
    """The failure of a query as a sentence: the last error of a Python worker if the text has one, else Spark's."""
    raised = _RAISED.findall(text) if "Traceback" in text else []
    if raised:
        own, builtin, said = raised[-1]
        is_silent = SILENCE in said
        return CommandFailed(said.strip(), code=EXIT_UNREACHABLE if is_silent else _code_of(own or builtin))
    first = text.split("\n\nJVM stacktrace")[0].split("== SQL")[0].split("\n\tat ")[0]
    return CommandFailed(_SPARK_WORDS.sub("", first).strip() or kind, code=_code_of(kind))


def _code_of(name: str) -> int:
    return EXIT_UNREACHABLE if name in _UNREACHABLE else EXIT_USAGE if name in _USAGE else EXIT_FAILED


def forget_query(connection: Connection, query_id: str, progress_topic: str) -> int:
    """Delete the progress of a query; gives how many Spark partitions had some. CommandFailed."""
    from kraft.client.spark.options import OptionError, parse_write
    from kraft.client.spark.sink.transactions import forget
    from kraft.deploy.cli.admin import explained as explained_refusal

    options = {**cluster_options(connection, None), "topic": progress_topic}
    try:
        return forget(parse_write(options).connection, query_id, progress_topic=progress_topic)
    except OptionError as problem:
        raise CommandFailed(str(problem), code=EXIT_USAGE) from None
    except Exception as problem:
        failure = explained_refusal(problem, if_silent=connection.if_silent)
        if failure is None:
            raise
        raise failure from None


@contextmanager
def reading(spark: SparkSession, label: str) -> Iterator[None]:
    """Draw how far Spark is, on standard error, if that is a terminal."""
    from kraft.deploy.cli.spark.progress_bar import drawn

    with drawn(spark, label):
        yield
