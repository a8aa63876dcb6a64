"""Commit offsets to consumer groups from the user's process, as soon as each micro-batch is done, including the last
one.

Spark commits a micro-batch to its source only when it plans the next one. So the commits of a stream with `commitGroup`
are one micro-batch behind, and under AvailableNow the last one is committed by the next run. The listener in this
module is notified of each finished micro-batch at once.
Source: Spark's StreamingQueryListener, SourceProgress.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from kraft.client.spark.blocking.cluster import SyncCluster
from kraft.client.spark.options import parse_connection
from kraft.client.spark.settings import ConnectionSettings
from kraft.client.spark.topics.group_commits import GroupCommits
from kraft.client.spark.topics.stream_offsets import COMMIT, CommitTarget, OffsetError, parse_offset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTIFIED_SECONDS_MAX = 10.0
"""Maximum seconds that `close` waits for pending notifications from Spark."""


class GroupCommitter(StreamingQueryListener):
    """Commits the ends of all streams of a session that have option `commitGroup`, until it is closed.

        with kraft.client.spark.GroupCommitter(spark):
            query = stream.writeStream.trigger(availableNow=True).start()
            query.awaitTermination()

    Commits are best effort: one that fails is logged."""

    def __init__(self, spark: SparkSession, options: Mapping[str, str] | None = None) -> None:
        """`options`: options for the connection if brokers use TLS, with the names of a stream's options. Without them,
        the addresses that a stream was given are used. Raises OptionError for invalid options."""
        self._spark = spark
        self._connection = None if options is None else parse_connection(options)
        self._clusters: dict[str, SyncCluster] = {}
        self._commits: dict[tuple[str, str], GroupCommits] = {}
        self._changed = threading.Condition()  # Spark calls a listener from another thread
        self._running: set[str] = set()
        self._is_closed = False
        spark.streams.addListener(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Wait until Spark has reported the last micro-batches of ended queries and they are committed, then stop
        listening and close all sockets. Spark reports these shortly after a query's end."""
        with self._changed:
            self._changed.wait_for(self._was_notified, NOTIFIED_SECONDS_MAX)
            self._is_closed = True
            for commits in self._commits.values():
                commits.flush()
        self._spark.streams.removeListener(self)
        for cluster in self._clusters.values():
            cluster.close()

    def _was_notified(self) -> bool:
        """Whether Spark has reported the end of each query that is no longer active."""
        return self._running <= {str(query.runId) for query in self._spark.streams.active}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Remember the query until its end is reported."""
        with self._changed:
            self._running.add(str(event.runId))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Commit the end offsets of the finished micro-batch."""
        progress = event.progress
        for source in progress.sources:
            self.commit(source.endOffset, f"spark {progress.id} {progress.batchId}")

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Drop the query. Its last micro-batch was reported, and so committed, before this call."""
        with self._changed:
            self._running.discard(str(event.runId))
            self._changed.notify_all()

    def commit(self, end_offset: str | None, note: str) -> None:
        """Commit the end offsets of a source if it is a `kraft` stream with `commitGroup`; ignore other sources."""
        try:
            value: Any = json.loads(end_offset or "null")
            if not isinstance(value, dict) or COMMIT not in value:
                return
            offset = parse_offset(value)
        except (ValueError, OffsetError):
            return
        with self._changed:
            if offset.commit is not None and not self._is_closed:
                self._commits_of(offset.commit).offer(offset, note)

    def _commits_of(self, target: CommitTarget) -> GroupCommits:
        key = (target.bootstrap, target.group_id)
        if key not in self._commits:
            self._commits[key] = GroupCommits(self._cluster(target.bootstrap), target.group_id, interval_seconds=0)
        return self._commits[key]

    def _cluster(self, bootstrap: str) -> SyncCluster:
        if bootstrap not in self._clusters:
            addressed = parse_connection({"bootstrap": bootstrap})
            self._clusters[bootstrap] = SyncCluster(self._with_tls(addressed))
        return self._clusters[bootstrap]

    def _with_tls(self, addressed: ConnectionSettings) -> ConnectionSettings:
        return addressed if self._connection is None else replace(self._connection, bootstrap=addressed.bootstrap)
