"""Commits of consumer groups from the user's process: each micro-batch as soon as it is done, the last one too.

Spark commits a batch to its source when it builds the next one, so that a stream with `commitGroup` is one batch
behind, and under AvailableNow its last batch is committed by the next run. A listener sees each batch at once.
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
"""How long `close` waits for what Spark has to report."""


class GroupCommitter(StreamingQueryListener):
    """Commits the ends of all streams of a session that have option `commitGroup`, until it is closed.

        with kraft.client.spark.GroupCommitter(spark):
            query = stream.writeStream.trigger(availableNow=True).start()
            query.awaitTermination()

    Commits are best effort: one that fails is logged."""

    def __init__(self, spark: SparkSession, options: Mapping[str, str] | None = None) -> None:
        """`options`: how to connect where brokers speak TLS, by the names of a stream's options; else the addresses
        that a stream was given are used. OptionError for options that cannot be."""
        self._spark = spark
        self._connection = None if options is None else parse_connection(options)
        self._clusters: dict[str, SyncCluster] = {}
        self._commits: dict[tuple[str, str], GroupCommits] = {}
        self._changed = threading.Condition()  # Spark calls a listener from a thread of its own
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
        """Listen no more, and close all sockets, as soon as the last batches of queries that have ended are committed:
        Spark notifies it of these a little later."""
        with self._changed:
            self._changed.wait_for(self._was_notified, NOTIFIED_SECONDS_MAX)
            self._is_closed = True
            for commits in self._commits.values():
                commits.flush()
        self._spark.streams.removeListener(self)
        for cluster in self._clusters.values():
            cluster.close()

    def _was_notified(self) -> bool:
        """Whether each query that has ended was reported to have."""
        return self._running <= {str(query.runId) for query in self._spark.streams.active}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Remember the query until its end is reported."""
        with self._changed:
            self._running.add(str(event.runId))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Commit the ends of the batch that is done."""
        progress = event.progress
        for source in progress.sources:
            self.commit(source.endOffset, f"spark {progress.id} {progress.batchId}")

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """The last batch was reported, and so committed, before."""
        with self._changed:
            self._running.discard(str(event.runId))
            self._changed.notify_all()

    def commit(self, end_offset: str | None, note: str) -> None:
        """Commit the end of a source, if it is a stream of ours with `commitGroup`; others are passed over."""
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
