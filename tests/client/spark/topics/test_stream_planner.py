"""Tests of the planner of topic streams against a real broker, called as Spark calls it: rows are neither duplicated
nor lost.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import confluent_kafka
import pytest

from kraft.client.core.records import KafkaError
from kraft.client.spark.blocking.cluster import SyncCluster
from kraft.client.spark.blocking.link import SyncLink
from kraft.client.spark.options import OptionError, parse_connection, parse_read
from kraft.client.spark.settings import TopicSettings
from kraft.client.spark.topics.data_loss import DataLost
from kraft.client.spark.topics.group_commits import GroupCommits
from kraft.client.spark.topics.range_reader import read_range
from kraft.client.spark.topics.stream_offsets import StreamOffset
from kraft.client.spark.topics.stream_planner import StreamPlanner
from kraft.wire.api_keys import ApiKey
from tests.client.spark.changing_topics import (
    delete_topic,
    group_offsets,
    grow_topic,
    recreate_topic,
    truncate_partition,
)
from tests.client.spark.topic_records import create_topic, numbered, write_records
from tests.stages.started_clusters import LocalCluster, running

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

STEPS_MAX = 200
IDLE_SECONDS = 1.5
REQUESTS_PER_SECOND_MAX = 12


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalCluster]:
    with running(combined=1, settings=["group.initial.rebalance.delay.ms=0"]) as started:
        yield started


Stream = Callable[..., "Query"]


@pytest.fixture
def stream(broker: LocalCluster, topic: str) -> Iterator[Stream]:
    """Factory of stream queries with these options. If the options name no topic or pattern, the query
    reads `topic`."""
    made: list[Query] = []

    def make(**options: str) -> Query:
        which = {} if {"assign", "subscribePattern", "subscribe"} & options.keys() else {"subscribe": topic}
        made.append(Query(broker.bootstrap, {**which, **options}))
        return made[-1]

    yield make
    for query in made:
        query.planner.close()


class Query:
    """Drives a planner as Spark does: it plans a micro-batch, records its end offset, reads it, commits it, and
    repeats."""

    def __init__(self, bootstrap: str, options: dict[str, str], log: list[dict[str, Any]] | None = None) -> None:
        given = {"bootstrap": bootstrap, **options}
        settings = parse_read(given, is_stream=True, now_ms=int(time.time() * 1000))
        assert isinstance(settings, TopicSettings)
        self.settings = settings
        self.bootstrap, self.options = bootstrap, options
        self.planner = StreamPlanner(settings)
        self.log = [] if log is None else log
        """The end offsets of all planned micro-batches, as the checkpoint has them."""

    def restarted(self) -> Query:
        """Return a query that continues from the checkpoint, with a new planner, as in another process."""
        self.planner.close()
        self.planner = StreamPlanner(self.settings)
        return self

    def begin(self) -> Query:
        """Begin the query without a checkpoint."""
        self.log.append(self.planner.initial_offset())
        return self

    def plan(self) -> bool:
        """Plan the next micro-batch. Return False if there is nothing to read now."""
        end = self.planner.next_offset(self.log[-1], unlimited=False)
        if end == self.log[-1]:
            return False
        self.log.append(end)
        return True

    def rows(self, batch: int = -1) -> list[tuple[int, int, bytes]]:
        """Read a planned micro-batch, and return (partition, offset, value) of each record."""
        start, end = self.log[:-1][batch], self.log[1:][batch]
        found = []
        for wanted in self.planner.ranges(start, end):
            for arrow in read_range(self.settings, wanted, ("partition", "offset", "value")):
                found += [tuple(row.values()) for row in arrow.to_pylist()]
        return found

    def drain(self, count: int) -> list[tuple[int, int, bytes]]:
        """Plan and read micro-batches until `count` rows have been read."""
        found: list[tuple[int, int, bytes]] = []
        for _ in range(STEPS_MAX):
            if self.plan():
                found += self.rows()
            if len(found) >= count:
                return found
        raise AssertionError(f"only {len(found)} of {count} rows in {STEPS_MAX} steps")

    def finish(self) -> list[tuple[int, int, bytes]]:
        """Plan and read micro-batches until there is nothing to read, as Spark does under AvailableNow."""
        found = []
        while self.plan():
            found += self.rows()
        return found


def values(rows: list[tuple[int, int, bytes]]) -> list[int]:
    """Return the sorted numbers of the records, which `numbered` made."""
    return sorted(int(value.removeprefix(b"value-")) for _, _, value in rows)


# where it begins


def test_topic_stream_without_a_start_option_begins_at_the_end(
    broker: LocalCluster, topic: str, stream: Stream
) -> None:
    create_topic(broker.bootstrap, topic, partitions=2)
    write_records(broker.bootstrap, topic, numbered(10, partitions=2))
    late = stream().begin()
    early = stream(startingOffsets="earliest").begin()
    middle = stream(startingOffsets=f'{{"{topic}":{{"0":3,"1":-1}}}}').begin()
    assert late.log[0][topic] == {"0": 5, "1": 5}
    assert early.log[0][topic] == {"0": 0, "1": 0}
    assert middle.log[0][topic] == {"0": 3, "1": 5}
    assert middle.planner.initial_offset() == middle.log[0]
    write_records(broker.bootstrap, topic, numbered(4, start=10, partitions=2))
    assert values(late.drain(4)) == [10, 11, 12, 13]
    assert values(early.drain(14)) == list(range(14))
    assert values(middle.drain(6)) == [6, 8, 10, 11, 12, 13]


def test_topic_stream_with_a_start_time_begins_at_the_first_record_since_then_or_fails_without_one(
    broker: LocalCluster, topic: str, stream: Stream
) -> None:
    create_topic(broker.bootstrap, topic, partitions=2)
    write_records(broker.bootstrap, topic, numbered(10, partitions=1, timestamp_ms=1_700_000_000_000))
    with pytest.raises(OptionError, match="partition 1 has no record at or after"):
        stream(startingTimestamp="1700000000004").begin()
    query = stream(startingTimestamp="1700000000004", startingOffsetsByTimestampStrategy="latest").begin()
    assert query.log[0][topic] == {"0": 4, "1": 0}


def test_topic_stream_of_a_missing_topic_fails_at_its_start(stream: Stream, topic: str) -> None:
    with pytest.raises(KafkaError, match=topic):
        stream().begin()


def test_topic_stream_rejects_starting_offsets_without_a_partition(
    broker: LocalCluster, topic: str, stream: Stream
) -> None:
    create_topic(broker.bootstrap, topic, partitions=2)
    with pytest.raises(OptionError, match="partition 1 is read"):
        stream(startingOffsets=f'{{"{topic}":{{"0":3}}}}').begin()


def test_topic_stream_rejects_starting_offsets_with_an_unknown_partition(
    broker: LocalCluster, topic: str, stream: Stream
) -> None:
    create_topic(broker.bootstrap, topic, partitions=1)
    with pytest.raises(OptionError, match="partition 1 of topic"):
        stream(startingOffsets=f'{{"{topic}":{{"0":3,"1":3}}}}').begin()


# batches


def test_replanned_stream_batch_has_the_same_rows_in_the_same_tasks(
    broker: LocalCluster, topic: str, stream: Stream
) -> None:
    create_topic(broker.bootstrap, topic, partitions=2)
    write_records(broker.bootstrap, topic, numbered(50, partitions=2))
    query = stream(startingOffsets="earliest", minPartitions="5", maxOffsetsPerTrigger="30").begin()
    assert query.plan()
    first = query.rows()
    assert len(first) == 30
    ranges = [(one.topic, one.partition, one.start, one.end) for one in query.planner.ranges(*query.log)]
    assert len(ranges) > 2
    write_records(broker.bootstrap, topic, numbered(20, start=50, partitions=2))
    query.restarted()
    assert query.rows() == first
    assert ranges == [(one.topic, one.partition, one.start, one.end) for one in query.planner.ranges(*query.log)]
    assert values(first + query.drain(40)) == list(range(70))


def test_stream_planner_returns_the_offset_unchanged_if_nothing_is_new(
    broker: LocalCluster, topic: str, stream: Stream
) -> None:
    create_topic(broker.bootstrap, topic, partitions=1)
    query = stream().begin()
    old = {topic: {"0": 0}, "@later": "x"}
    assert query.planner.next_offset(old, unlimited=False) == old


def test_stream_batch_respects_max_offsets_per_trigger_and_every_partition_advances(
    broker: LocalCluster, topic: str, stream: Stream
) -> None:
    create_topic(broker.bootstrap, topic, partitions=3)
    records = numbered(60, partitions=1) + [one for one in numbered(9, start=60, partitions=3) if one.partition]
    write_records(broker.bootstrap, topic, records)
    query = stream(startingOffsets="earliest", maxOffsetsPerTrigger="10").begin()
    assert query.plan()
    rows = query.rows()
    assert len(rows) == 10
    assert {partition for partition, _, _ in rows} == {0, 1, 2}
    assert len(rows + query.drain(56)) == 66


def test_stream_batch_with_a_limit_in_bytes_adapts_to_the_size_of_records(
    broker: LocalCluster, topic: str, stream: Stream
) -> None:
    create_topic(broker.bootstrap, topic, partitions=1)
    write_records(broker.bootstrap, topic, numbered(1000, partitions=1))
    query = stream(startingOffsets="earliest", maxBytesPerTrigger="4k").begin()
    assert query.plan()
    assert 40 < len(query.rows()) < 250  # records have 30 to 60 bytes, and batches a header of 61


def test_stream_batch_waits_for_min_offsets_per_trigger(broker: LocalCluster, topic: str, stream: Stream) -> None:
    create_topic(broker.bootstrap, topic, partitions=1)
    query = stream(minOffsetsPerTrigger="5", maxTriggerDelay="1h", pollInterval="1").begin()
    short_delay = stream(minOffsetsPerTrigger="5", maxTriggerDelay="20ms", pollInterval="1").begin()
    write_records(broker.bootstrap, topic, numbered(4))
    assert not query.plan()
    assert len(short_delay.drain(4)) == 4
    assert not query.plan()
    write_records(broker.bootstrap, topic, numbered(1, start=4))
    assert values(query.drain(5)) == [0, 1, 2, 3, 4]


# partitions that appear


def test_stream_reads_a_new_partition_from_its_first_record(broker: LocalCluster, topic: str, stream: Stream) -> None:
    create_topic(broker.bootstrap, topic, partitions=1)
    query = stream(**{"kafka.metadata.max.age.ms": "1"}).begin()
    grow_topic(broker.bootstrap, topic, 2)
    write_records(broker.bootstrap, topic, numbered(6, partitions=2))
    assert query.plan()
    assert query.log[-1][topic]["1"] == 0
    assert {partition for partition, _, _ in query.rows()} <= {0}
    rows = query.rows() + query.drain(6 - len(query.rows()))
    assert values(rows) == list(range(6))


def test_stream_of_a_pattern_reads_topics_created_later(broker: LocalCluster, topic: str, stream: Stream) -> None:
    query = stream(subscribePattern=f"{topic}-[ab]", **{"kafka.metadata.max.age.ms": "1"}).begin()
    assert not query.plan()
    for name in ("a", "b", "c"):
        create_topic(broker.bootstrap, f"{topic}-{name}", partitions=1)
        write_records(broker.bootstrap, f"{topic}-{name}", numbered(3))
    assert values(query.drain(6)) == [0, 0, 1, 1, 2, 2]
    assert {name for name in query.log[-1] if not name.startswith("@")} == {f"{topic}-a", f"{topic}-b"}


def test_stream_of_assigned_partitions_reads_only_those(broker: LocalCluster, topic: str, stream: Stream) -> None:
    create_topic(broker.bootstrap, topic, partitions=3)
    write_records(broker.bootstrap, topic, numbered(9, partitions=3))
    query = stream(assign=f'{{"{topic}":[0,2]}}', startingOffsets="earliest").begin()
    assert values(query.drain(6)) == [0, 2, 3, 5, 6, 8]
    with pytest.raises(KafkaError, match="partition 7"):
        stream(assign=f'{{"{topic}":[7]}}').begin()


# AvailableNow


def test_available_now_stream_reads_the_present_records_and_ends(
    broker: LocalCluster, topic: str, stream: Stream
) -> None:
    create_topic(broker.bootstrap, topic, partitions=1)
    write_records(broker.bootstrap, topic, numbered(5))
    query = stream(startingOffsets="earliest", maxOffsetsPerTrigger="2", minOffsetsPerTrigger="2", maxTriggerDelay="1h")
    query.planner.fix_targets()
    query.begin()
    write_records(broker.bootstrap, topic, numbered(3, start=5))
    grow_topic(broker.bootstrap, topic, 2)
    write_records(broker.bootstrap, topic, [one for one in numbered(8, start=8, partitions=2) if one.partition])
    assert values(query.finish()) == [0, 1, 2, 3, 4]
    assert len(query.log) == 4
    query.restarted().planner.fix_targets()
    assert values(query.finish()) == [5, 6, 7, 9, 11, 13, 15]


def test_available_now_stream_that_begins_at_the_end_reads_nothing(
    broker: LocalCluster, topic: str, stream: Stream
) -> None:
    create_topic(broker.bootstrap, topic, partitions=1)
    write_records(broker.bootstrap, topic, numbered(5))
    query = stream()
    query.planner.fix_targets()
    write_records(broker.bootstrap, topic, numbered(5))
    assert query.begin().finish() == []
    assert query.planner.known_offset() == query.log[-1]


def test_available_now_stream_that_resumes_beyond_its_target_offsets_reads_nothing(
    broker: LocalCluster, topic: str, stream: Stream
) -> None:
    create_topic(broker.bootstrap, topic, partitions=1)
    write_records(broker.bootstrap, topic, numbered(5))
    query = stream()
    query.planner.fix_targets()
    write_records(broker.bootstrap, topic, numbered(5))
    query.log.append({topic: {"0": 9}})
    assert query.finish() == []


# losses


def test_stream_fails_on_deleted_records_or_skips_them_by_option_fail_on_data_loss(
    broker: LocalCluster, topic: str, stream: Stream
) -> None:
    create_topic(broker.bootstrap, topic, partitions=1)
    strict = stream(startingOffsets="earliest").begin()
    lenient = stream(startingOffsets="earliest", failOnDataLoss="false").begin()
    write_records(broker.bootstrap, topic, numbered(10))
    truncate_partition(broker.bootstrap, topic, 0, 6)
    with pytest.raises(DataLost, match=rf"topic {topic}, partition 0.*0.*6.*failOnDataLoss=false"):
        strict.drain(1)
    assert values(lenient.drain(4)) == [6, 7, 8, 9]


def test_stream_fails_on_a_recreated_topic_or_reads_it_by_option_fail_on_data_loss(
    broker: LocalCluster, topic: str, stream: Stream
) -> None:
    create_topic(broker.bootstrap, topic, partitions=1)
    write_records(broker.bootstrap, topic, numbered(3))
    strict = stream(startingOffsets="earliest").begin()
    lenient = stream(startingOffsets="earliest", failOnDataLoss="false", **{"kafka.metadata.max.age.ms": "1"}).begin()
    assert values(strict.drain(3)) == values(lenient.drain(3)) == [0, 1, 2]
    recreate_topic(broker.bootstrap, topic)
    write_records(broker.bootstrap, topic, numbered(8, start=100))
    with pytest.raises(DataLost, match="was deleted and"):
        strict.drain(1)
    assert values(lenient.drain(8)) == list(range(100, 108))


def test_stream_detects_at_restart_a_topic_recreated_while_stopped(
    broker: LocalCluster, topic: str, stream: Stream
) -> None:
    create_topic(broker.bootstrap, topic, partitions=1)
    write_records(broker.bootstrap, topic, numbered(3))
    query = stream(startingOffsets="earliest").begin()
    query.drain(3)
    recreate_topic(broker.bootstrap, topic)
    write_records(broker.bootstrap, topic, numbered(3))
    with pytest.raises(DataLost, match="was deleted and"):
        query.restarted().plan()


def test_stream_fails_on_a_deleted_topic_or_skips_it_by_option_fail_on_data_loss(
    broker: LocalCluster, topic: str, stream: Stream
) -> None:
    stays, goes = f"{topic}-stays", f"{topic}-goes"
    for name in (stays, goes):
        create_topic(broker.bootstrap, name, partitions=1)
    strict = stream(subscribe=f"{stays},{goes}").begin()
    lenient = stream(subscribe=f"{stays},{goes}", failOnDataLoss="false").begin()
    delete_topic(broker.bootstrap, goes)
    write_records(broker.bootstrap, stays, numbered(2))
    with pytest.raises(DataLost, match=f"topic {goes}.*no longer exists"):
        strict.drain(1)
    assert values(lenient.drain(2)) == [0, 1]
    assert goes not in lenient.log[-1]


def test_stream_with_an_offset_beyond_the_log_end_fails_or_continues_by_option_fail_on_data_loss(
    broker: LocalCluster, topic: str, stream: Stream
) -> None:
    create_topic(broker.bootstrap, topic, partitions=1)
    write_records(broker.bootstrap, topic, numbered(3))
    behind = f'{{"{topic}":{{"0":50}}}}'
    with pytest.raises(DataLost, match=r"ends before what was read .*offset 50.*offsets below 3.*47 offsets"):
        stream(startingOffsets=behind).begin().plan()
    lenient = stream(startingOffsets=behind, failOnDataLoss="false").begin()
    assert lenient.plan()
    assert lenient.rows() == []
    write_records(broker.bootstrap, topic, numbered(2, start=3))
    assert values(lenient.drain(2)) == [3, 4]


# few requests


def test_idle_stream_sends_few_requests_and_none_to_report_its_latest_offset(
    broker: LocalCluster, topic: str, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(broker.bootstrap, topic, partitions=3)
    query = stream().begin()
    assert not query.plan()
    asked: list[ApiKey] = []
    send = SyncLink.send

    def counted(link: SyncLink, key: ApiKey, *rest: Any, **named: Any) -> Any:
        asked.append(key)
        return send(link, key, *rest, **named)

    monkeypatch.setattr(SyncLink, "send", counted)
    begun = time.monotonic()
    while time.monotonic() - begun < IDLE_SECONDS:  # as Spark does, without a pause
        assert query.planner.next_offset(query.log[-1], unlimited=False) == query.log[-1]
        before = len(asked)
        for _ in range(10):
            assert query.planner.known_offset() == query.log[-1]
        assert len(asked) == before
    assert set(asked) == {ApiKey.LIST_OFFSETS}
    assert len(asked) <= REQUESTS_PER_SECOND_MAX * (time.monotonic() - begun) + 1


# commits


def test_stream_commits_ends_to_its_group_once_a_second_and_always_the_last_one(
    broker: LocalCluster, topic: str, stream: Stream
) -> None:
    create_topic(broker.bootstrap, topic, partitions=1)
    query = stream(commitGroup=topic, startingOffsets="earliest", maxOffsetsPerTrigger="1").begin()
    write_records(broker.bootstrap, topic, numbered(5))
    for _ in range(5):
        query.drain(1)
        query.planner.commit(query.log[-1])
    first = group_offsets(broker.bootstrap, topic, topic)[0]
    assert first == (1, "spark")
    while group_offsets(broker.bootstrap, topic, topic)[0] != (5, "spark"):
        assert not query.plan()
    assert query.log[-1]["@commit"] == {"group": topic, "bootstrap": broker.bootstrap}


def test_stream_continues_if_a_group_with_live_members_rejects_its_commits(
    broker: LocalCluster, topic: str, stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    create_topic(broker.bootstrap, topic, partitions=1)
    write_records(broker.bootstrap, topic, numbered(1))
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
        | {"enable.auto.commit": False}
    )
    with closing(consumer):
        consumer.subscribe([topic])
        assert consumer.poll(30) is not None
        query = stream(commitGroup=topic, startingOffsets="earliest").begin()
        query.drain(1)
        for _ in range(3):
            query.planner.commit(query.log[-1])
        assert group_offsets(broker.bootstrap, topic, topic) == {}
    warnings = [record.message for record in caplog.records if "not committed" in record.message]
    assert len(warnings) == 1
    assert topic in warnings[0]
    assert "live members" in warnings[0]


def test_stream_commits_of_other_topics_continue_after_a_topic_is_deleted(
    broker: LocalCluster, topic: str, stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    gone, kept = f"{topic}-gone", f"{topic}-kept"
    for name in (gone, kept):
        create_topic(broker.bootstrap, name, partitions=1)
        write_records(broker.bootstrap, name, numbered(1))
    options = {"subscribePattern": topic, "commitGroup": topic, "startingOffsets": "earliest"}
    query = stream(**options).begin()
    query.drain(2)
    delete_topic(broker.bootstrap, gone)
    query.planner.commit(query.log[-1])
    while group_offsets(broker.bootstrap, topic, kept).get(0) != (1, "spark"):
        assert not query.plan()
    assert not [record.message for record in caplog.records if "not committed" in record.message]


def test_group_commits_flush_sends_rejected_commits_again(
    broker: LocalCluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    create_topic(broker.bootstrap, topic, partitions=1)
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": topic})
    with SyncCluster(parse_connection({"bootstrap": broker.bootstrap})) as cluster:
        commits = GroupCommits(cluster, topic, interval_seconds=0)
        with closing(consumer):
            consumer.subscribe([topic])
            while not consumer.assignment():
                consumer.poll(0.1)
            commits.offer(StreamOffset(ends={(topic, 0): 1}), "note")
            assert group_offsets(broker.bootstrap, topic, topic) == {}
        commits.flush()
    assert group_offsets(broker.bootstrap, topic, topic) == {0: (1, "note")}
    assert len(caplog.records) == 1


def test_topic_stream_reader_is_pickled_without_its_sockets(broker: LocalCluster, topic: str, stream: Stream) -> None:
    from kraft.client.spark.topics.stream import TopicStreamReader

    create_topic(broker.bootstrap, topic, partitions=1)
    reader = TopicStreamReader(stream().settings, ("value",))
    with closing(reader.planner):
        start = reader.initialOffset()
        write_records(broker.bootstrap, topic, numbered(3))
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        copy = pickle.loads(pickle.dumps(reader))
        partitions = pickle.loads(pickle.dumps(reader.partitions(start, end)))
        rows = [row["value"] for one in partitions for batch in copy.read(one) for row in batch.to_pylist()]
        assert rows == [b"value-0", b"value-1", b"value-2"]
        assert reader.reportLatestOffset() == {name: of for name, of in end.items() if name != "@epochs"}
