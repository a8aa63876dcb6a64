"""Synchronous: the progress log, a topic with the last transaction of each task of streaming queries.

A record of the compacted topic has the key QUERY/PARTITION and the value {"batchId", "rows", "crc"} as JSON. The record
is written in the same transaction as the rows that it describes. All records of a query are in one partition.

The log is read up to its high watermark, and its transaction markers show which records are committed. Reading only up
to the last stable offset would wait for transactions of other tasks, and would miss the task's own records after that
offset. Source: KIP-98 (control records).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kraft.client.core.fetch_session import SessionRequest
from kraft.client.core.partitioner import partition_for_key
from kraft.client.core.records import KafkaError, TopicPartition
from kraft.client.core.requests import PartitionFetchResult, fetch_request, read_fetch_response
from kraft.client.core.retriable import RETRIABLE
from kraft.client.spark.blocking.cluster import SyncCluster
from kraft.client.spark.blocking.link import build_request
from kraft.client.spark.blocking.retries import MISSING, classify
from kraft.client.spark.sink.column_encoder import Columns, OpenRecords, RowPlacement, append
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages.fetch_values import FIRST_VERSION_WITH_TOPIC_ID, FetchPartition
from kraft.wire.records import BatchHeader, check_crc, decode_batch, iter_headers
from kraft.wire.records.control_records import ControlRecordType, decode_control

PARTITIONS = 8
REPLICAS_MAX = 3
CONFIGS = MappingProxyType(
    {
        "cleanup.policy": "compact",
        "segment.bytes": str(1024 * 1024),
        "segment.ms": str(60 * 60 * 1000),
        "min.cleanable.dirty.ratio": "0.1",
        "delete.retention.ms": str(10 * 60 * 1000),
    }
)
"""Settings of the progress topic. Its small segments are compacted soon, because each task reads the whole partition of
its query. After compaction, transaction markers and tombstones remain for `delete.retention.ms`, a day by default."""
FETCH_BYTES_MAX = 4 * 1024 * 1024
FETCH_WAIT_MS = 500
EARLIEST, LATEST = -2, -1


class TaskProgress(NamedTuple):
    """Progress of one task: the last batch that it has committed, with the number of rows and their checksum
    (`Checksum.value`).

    `sink` names the destination of the rows (`sink_name`). A query with a copied checkpoint has the same id but another
    destination, and must not continue from this progress."""

    batch_id: int
    rows: int
    crc: int
    sink: str = ""


class ProgressDamaged(ValueError):
    """A record of the progress log is not in the form that this module writes. The message names topic, partition and
    offset."""


class ProgressLog:
    """The progress log of a cluster."""

    def __init__(self, cluster: SyncCluster, topic: str) -> None:
        self._cluster = cluster
        self.topic = topic

    def exists(self) -> bool:
        """Whether the topic exists. Raises KafkaError if this client may not describe it; ClusterUnreachable."""
        code = self._cluster.refresh([self.topic]).get(self.topic, ErrorCode.NONE)
        return code not in MISSING

    def ensure(self) -> None:
        """Create the topic if it is missing, and wait until it can be used. Raises KafkaError, ClusterUnreachable."""
        if not self.exists():
            self._cluster.retry(self._create)
        self._cluster.wait_topics([self.topic])

    def _create(self, wait_ms: float) -> None:
        row = {
            "name": self.topic,
            "num_partitions": PARTITIONS,
            "replication_factor": min(REPLICAS_MAX, len(self._cluster.brokers)),
            "assignments": (),
            "configs": tuple({"name": name, "value": value} for name, value in CONFIGS.items()),
        }
        request = build_request(ApiKey.CREATE_TOPICS, topics=(row,), timeout=messages.duration(int(wait_ms)))
        reported = self._cluster.request_any(ApiKey.CREATE_TOPICS, request, timeout_ms=wait_ms).topics[0]
        code = ErrorCode.of(int(reported.error_code))
        if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise classify(code, RETRIABLE, f"topic {self.topic} cannot be created", reported.error_message)

    def place_of(self, query_id: str) -> TopicPartition:
        """Return the partition of the progress log that has the records of this query. The topic must exist."""
        return self.topic, partition_for_key(query_id.encode(), len(self._cluster.topics[self.topic].leaders))

    def record(self, query_id: str, partition: int, progress: TaskProgress) -> OpenRecords:
        """Return a batch with one record: the progress of this Spark partition."""
        value = {
            "batchId": progress.batch_id,
            "rows": progress.rows,
            "crc": f"{progress.crc:08x}",
            "sink": progress.sink,
        }
        return _one_record(_key(query_id, partition), json.dumps(value).encode())

    def tombstone(self, query_id: str, partition: int) -> OpenRecords:
        """Return a batch with one record: the tombstone that deletes the progress of this Spark partition."""
        return _one_record(_key(query_id, partition), None)

    def read(self, query_id: str) -> dict[int, TaskProgress]:
        """Return the committed progress of each Spark partition of this query. The topic must exist.

        Raises KafkaError, ClusterUnreachable, ProgressDamaged."""
        self._cluster.wait_topics([self.topic])
        place = self.place_of(query_id)
        start = f"{query_id}/".encode()
        found: dict[int, TaskProgress] = {}
        open_records: dict[int, list[tuple[int, bytes, bytes | None]]] = {}
        for header, batch in self._batches(place):
            if header.is_control:
                ended = open_records.pop(header.producer_id, [])
                if decode_control(batch).type is ControlRecordType.COMMIT:
                    for entry in ended:
                        _take(found, place, *entry)
                continue
            for record in decode_batch(batch):
                if record.key is None or not record.key.startswith(start):
                    continue
                entry = (record.offset, record.key, record.value)
                if header.is_transactional:
                    open_records.setdefault(header.producer_id, []).append(entry)
                else:
                    _take(found, place, *entry)
        return found

    def _batches(self, place: TopicPartition) -> Iterator[tuple[BatchHeader, bytes]]:
        """Yield each batch of the partition below its present high watermark."""
        start, end = (self._cluster.list_offsets({place: time})[place].offset for time in (EARLIEST, LATEST))
        deadline = time.monotonic() + self._cluster.settings.request_timeout_ms / 1000
        while start < end:
            reported = self._fetch(place, start)
            next_start = start
            for position, header in iter_headers(reported.records):
                if header.next_offset <= start:
                    continue
                if not check_crc(reported.records, position, header):
                    raise ProgressDamaged(f"{place[0]}-{place[1]}: the batch at offset {header.base_offset} is damaged")
                yield header, reported.records[position : position + header.size_bytes]
                next_start = header.next_offset
            if next_start == start and time.monotonic() >= deadline:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{place[0]}-{place[1]} gives nothing at offset {start}")
            start = next_start

    def _fetch(self, place: TopicPartition, offset: int) -> PartitionFetchResult:
        topic, index = place
        is_first = True

        def attempt(timeout_ms: float) -> PartitionFetchResult:
            nonlocal is_first
            if not is_first:
                self._cluster.refresh([topic], timeout_ms=timeout_ms)
            is_first = False
            leader = self._cluster.leader_of(place)
            link = self._cluster.link(leader.node_id, timeout_ms=timeout_ms)
            version = min(link.version(ApiKey.FETCH), FIRST_VERSION_WITH_TOPIC_ID - 1)
            part = FetchPartition(index, leader.epoch, offset, -1, -1, FETCH_BYTES_MAX)
            session = SessionRequest(0, -1, [(topic, None, [part])], ())
            body = fetch_request(
                version,
                session,
                wait_ms=FETCH_WAIT_MS,
                bytes_min=1,
                bytes_max=FETCH_BYTES_MAX,
                read_committed=False,
                rack="",
            )
            ticket = link.send(ApiKey.FETCH, version, [body], timeout_ms=timeout_ms + FETCH_WAIT_MS)
            answer = read_fetch_response(version, link.receive(ticket), lambda name, _: name)
            reported = answer.partitions.get(place)
            code = answer.code if reported is None else reported.code
            if reported is None or code is not ErrorCode.NONE:
                raise classify(code, RETRIABLE, f"{topic}-{index} cannot be read at offset {offset}")
            return reported

        return self._cluster.retry(attempt)


def wait_progress(
    log: ProgressLog, query_id: str, batch_id: int, partitions: set[int], timeout_ms: int
) -> dict[int, TaskProgress]:
    """Wait until each of these Spark partitions has progress of this batch or a later one, and return the query's
    progress.

    The wait is needed because brokers answer EndTxn before the transaction markers are in the log. After the timeout,
    return the progress found so far."""
    deadline = time.monotonic() + timeout_ms / 1000
    pause_s = 0.01
    while True:
        found = log.read(query_id)
        is_complete = all(one in found and found[one].batch_id >= batch_id for one in partitions)
        if is_complete or time.monotonic() >= deadline:
            return found
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, 1.0)


def _key(query_id: str, partition: int) -> bytes:
    return f"{query_id}/{partition}".encode()


def _take(found: dict[int, TaskProgress], place: TopicPartition, offset: int, key: bytes, value: bytes | None) -> None:
    try:
        partition = int(key.rpartition(b"/")[2])
        if value is None:
            found.pop(partition, None)
            return
        fields = json.loads(value)
        crc, sink = int(fields["crc"], 16), str(fields["sink"])
        found[partition] = TaskProgress(int(fields["batchId"]), int(fields["rows"]), crc, sink)
    except (ValueError, KeyError, TypeError) as error:
        raise ProgressDamaged(
            f"{place[0]}-{place[1]}, offset {offset}: no progress of a task in the record with key {key!r}"
        ) from error


def _one_record(key: bytes, value: bytes | None) -> OpenRecords:
    records = OpenRecords()
    columns = Columns(
        pa.array([key], pa.binary()),
        pa.array([value], pa.binary()),
        None,
        np.array([int(time.time() * 1000)], np.int64),
    )
    append(columns, [RowPlacement(records, 0, 1)])
    return records
