"""Code shared by the commands of `kraft spark`: the session, the connection options, and readable errors."""

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

from kraft.deploy.cli.connection import ClusterConnection, pair
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
"""Spark configuration that keeps Spark's own output apart from printed rows; `reading` draws the progress instead. It
also keeps the progress of every batch, because all batches of a stream are counted when the stream ends."""
_ERROR_LOGGER = "SQLQueryContextLogger"
"""Logger to which pyspark writes each error of a query, before it raises an exception with the same text."""
_RAISED = re.compile(
    r"^(?:kraft\.[\w.]+\.(\w+)|([A-Z]\w*(?:Error|Exception))): (.+?)(?=\s*SQLSTATE: |\n\n|\n\tat |\Z)",
    re.MULTILINE | re.DOTALL,
)
"""Pattern of the last line of a Python traceback, in the text with which Spark reports a failed Python worker."""
_SPARK_WORDS = re.compile(r"\s*SQLSTATE: \w+.*", re.DOTALL)
_UNREACHABLE = ("ClusterUnreachable", "ConnectionRefusedError", "LinkFailed")
NO_BROKER_ANSWERED = "no broker answered"
"""Part of the error text for a table or topic that cannot be read because no broker responds."""
_USAGE = ("OptionError", "TableError", "RowError", "AnalysisException", "ParseException")


def cluster_options(connection: ClusterConnection, folder: Path | None) -> dict[str, str]:
    """Return the options for `format("kraft")` that connect to the cluster, from the shared options of commands."""
    settings = {f"kafka.{name}": value for name, value in connection.settings.items()}
    if connection.given_timeout_ms is not None:
        settings["kafka.request.timeout.ms"] = str(connection.given_timeout_ms)
    found = {**settings, "bootstrap": connection.bootstrap_servers}
    return found if folder is None else {**found, "folder": str(folder.absolute())}


def time_options(prefix: str, when: str | None) -> dict[str, str]:
    """Return the options of `format("kraft")` for a point in time, such as the given `asOf`. "17" becomes
    asOfOffset=17, and "-1h" becomes asOfTimestamp in ms. Raise CommandFailed for anything else."""
    if when is None:
        return {}
    if when.isdecimal():
        return {f"{prefix}Offset": when}
    return {f"{prefix}Timestamp": str(parse_time_ms(when, int(time.time() * 1000)))}


@contextmanager
def session(master: str, conf: Sequence[str] | None) -> Iterator[SparkSession]:
    """Provide a Spark session and stop it at the end of the block; a session that runs already is used and left
    running. Turn Spark's failures into CommandFailed."""
    from kraft.client.spark.java import SparkNotReady

    settings = QUIET_CONF | dict(pair(entry, "--conf") for entry in conf or ())
    try:
        spark, is_own = _started(master, settings)
    except SparkNotReady as problem:
        raise CommandFailed(str(problem)) from None
    try:
        with as_command_failed():
            yield spark
    finally:
        if is_own:
            spark.stop()


def _started(master: str, settings: Mapping[str, str]) -> tuple[SparkSession, bool]:
    """Return a Spark session, and whether this call has started it."""
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
    """Redirect the logs of processes that are started in this block to a file. Print the file only if the start fails:
    Spark's logs are for its operators, and failures of queries arrive as exceptions."""
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
def as_command_failed() -> Iterator[None]:
    """Turn an error of Spark, of a Python worker in Spark, or of a pipeline into CommandFailed."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from kraft.client.spark.jobs.report_page import MissingLibrary

    try:
        yield
    except (PySparkException, Py4JError) as problem:
        raise spark_to_command_failed(str(problem), type(problem).__name__) from None
    except (MissingLibrary, OSError) as problem:
        raise CommandFailed(str(problem)) from None


def spark_to_command_failed(text: str, kind: str = "") -> CommandFailed:
    """Return the failure of a query in one sentence: the last error of a Python worker if the text has one, else
    Spark's."""
    raised = _RAISED.findall(text) if "Traceback" in text else []
    if raised:
        own, builtin, said = raised[-1]
        is_silent = NO_BROKER_ANSWERED in said
        return CommandFailed(said.strip(), code=EXIT_UNREACHABLE if is_silent else _code_of(own or builtin))
    first = text.split("\n\nJVM stacktrace")[0].split("== SQL")[0].split("\n\tat ")[0]
    return CommandFailed(_SPARK_WORDS.sub("", first).strip() or kind, code=_code_of(kind))


def _code_of(name: str) -> int:
    return EXIT_UNREACHABLE if name in _UNREACHABLE else EXIT_USAGE if name in _USAGE else EXIT_FAILED


def forget_query(connection: ClusterConnection, query_id: str, progress_topic: str) -> int:
    """Delete the stored progress of a query. Return the number of Spark partitions for which progress was stored. May
    raise CommandFailed."""
    from kraft.client.spark.options import OptionError, parse_write
    from kraft.client.spark.sink.transactions import delete_progress
    from kraft.deploy.cli.admin import to_command_failed

    options = {**cluster_options(connection, None), "topic": progress_topic}
    try:
        return delete_progress(parse_write(options).connection, query_id, progress_topic=progress_topic)
    except OptionError as problem:
        raise CommandFailed(str(problem), code=EXIT_USAGE) from None
    except Exception as problem:
        failure = to_command_failed(problem, if_unreachable=connection.if_unreachable)
        if failure is None:
            raise
        raise failure from None


@contextmanager
def reading(spark: SparkSession, label: str) -> Iterator[None]:
    """Draw the progress of a query on standard error while the context is open, if standard error is a terminal."""
    from kraft.deploy.cli.spark.progress_bar import draw_progress

    with draw_progress(spark, label):
        yield
