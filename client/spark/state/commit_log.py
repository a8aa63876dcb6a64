"""Synchronous: read the topic __consumer_offsets for table `offset_commits`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kraft.client.core.records import KafkaError
from kraft.client.spark.predicates import Bounds
from kraft.client.spark.settings import Position, TableSettings, TopicSelection, TopicSettings
from kraft.client.spark.state.offset_commits import RECORD_COLUMNS, Record, commit_rows
from kraft.client.spark.state.request import Moment, StateError, StateRequest
from kraft.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    import pyarrow as pa

    from kraft.client.spark.topics.ranges import OffsetRange

OFFSETS_TOPIC = "__consumer_offsets"


def topic_settings(settings: TableSettings) -> TopicSettings:
    """Return the settings with which to read __consumer_offsets: by default from its beginning. Records that compaction
    removed do not count as lost. Raises StateError if no brokers are given."""
    if settings.connection is None:
        raise StateError("table offset_commits needs a running cluster: give option kafka.bootstrap.servers")
    return TopicSettings(
        connection=settings.connection,
        topics=TopicSelection(subscribe=(OFFSETS_TOPIC,)),
        starting=settings.starting or Position(kind="earliest"),
        fail_on_data_loss=False,
        offsets_per_trigger_max=settings.offsets_per_trigger_max,
    )


def decoded(
    settings: TableSettings, columns: Sequence[str], batches: Iterable[pa.RecordBatch]
) -> Iterator[tuple[Any, ...]]:
    """Decode the commits in Arrow batches with the columns RECORD_COLUMNS, and yield them as rows with these columns.
    Raises WireError for a commit that does not parse."""
    request = StateRequest("offset_commits", tuple(columns), Bounds(), settings)
    moment = Moment(datetime.now(UTC), None)
    yield from commit_rows(request, _records(batches), moment)


def _records(batches: Iterable[pa.RecordBatch]) -> Iterator[Record]:
    for batch in batches:
        yield from zip(*(batch.column(name).to_pylist() for name in RECORD_COLUMNS), strict=True)


def plan_commits(topic: TopicSettings) -> list[OffsetRange]:
    """Return the ranges of offsets that __consumer_offsets has now. Return no ranges if the topic does not exist,
    because no group has committed yet. Raises the errors of plan_batch."""
    from kraft.client.spark.blocking.cluster import SyncCluster
    from kraft.client.spark.topics.batch_plan import plan_batch

    with SyncCluster(topic.connection) as cluster:
        try:
            return plan_batch(cluster, topic, Bounds())
        except KafkaError as problem:
            if problem.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return []


def commit_log_rows(request: StateRequest) -> Iterator[tuple[Any, ...]]:
    """Read the commits that are in __consumer_offsets now, as rows. Raises the errors of reading a topic."""
    from kraft.client.spark.topics.range_reader import read_range

    topic = topic_settings(request.settings)
    for wanted in plan_commits(topic):
        yield from decoded(request.settings, request.columns, read_range(topic, wanted, RECORD_COLUMNS))
