"""Synchronous: the committed metadata log of a running cluster, fetched as raw batches from a broker.

While the caller uses the batches of one response, the next Fetch is already in flight.
Source: FetchRequest (KIP-98, KIP-516), ListOffsetsRequest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from uuid import UUID

from kraft.client.core.fetch_session import SessionRequest
from kraft.client.core.records import KafkaError
from kraft.client.core.requests import fetch_request, read_fetch_response
from kraft.client.core.retriable import RETRIABLE
from kraft.client.metadata_log.entries import LogBatch, whole_batches
from kraft.client.metadata_log.errors import LogRefused, MetadataLogError, NotInLog
from kraft.client.spark.blocking.cluster import SyncCluster
from kraft.client.spark.blocking.link import LinkFailed, SyncLink, Ticket
from kraft.client.spark.blocking.retries import RetriableError, classify
from kraft.client.spark.settings import EARLIEST, LATEST
from kraft.seam import WireError
from kraft.storage.log_names import METADATA_TOPIC
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages.fetch import FetchPartition

METADATA_PARTITION = (METADATA_TOPIC, 0)
FIRST_BYTES = 64 * 1024
"""Requested bytes of the first Fetch. Often that suffices, because with a cached image only the last part of the log is
read."""
BYTES = 4 * 1024 * 1024
WAIT_MS = 500
_LAST_VERSION_WITH_NAMES = 12
_REFUSALS = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)
"""Error codes of a broker that does not serve the metadata log at all, or not to this client."""


class NetworkBounds(NamedTuple):
    """The offsets of the metadata log that a cluster serves. `end` is the high watermark. A cluster without a cluster
    id is identified by its bootstrap addresses."""

    cluster_id: str
    start: int
    end: int


class _PendingFetch(NamedTuple):
    """A Fetch in flight."""

    link: SyncLink
    ticket: Ticket


class NetworkLog:
    """Reads the metadata log through the connections of a `SyncCluster`, which the caller closes."""

    def __init__(self, cluster: SyncCluster) -> None:
        self._cluster = cluster

    def bounds(self) -> NetworkBounds:
        """Return the offsets at which the log begins and ends now. Raises LogRefused if the cluster does not serve its
        log to this client; KafkaError, ClusterUnreachable."""
        code = self._cluster.refresh([METADATA_TOPIC]).get(METADATA_TOPIC)
        if code in _REFUSALS:
            raise _refused(code)
        try:
            start = self._cluster.list_offsets({METADATA_PARTITION: EARLIEST})[METADATA_PARTITION].offset
            end = self.end_offset()
        except KafkaError as problem:
            if problem.code not in _REFUSALS:
                raise
            raise _refused(problem.code) from None
        return NetworkBounds(self._cluster.cluster_id or self._cluster.settings.bootstrap_servers, start, end)

    def end_offset(self) -> int:
        """Request and return the log's present high watermark. Raises KafkaError, ClusterUnreachable."""
        return self._cluster.list_offsets({METADATA_PARTITION: LATEST})[METADATA_PARTITION].offset

    def offset_at(self, time_ms: int) -> int | None:
        """Return the offset of the first record appended at this time or later; None if the log has no such record."""
        found = self._cluster.list_offsets({METADATA_PARTITION: time_ms})[METADATA_PARTITION].offset
        return None if found < 0 else found

    def topic_names(self) -> dict[UUID, str]:
        """Return the names of the topics that exist now, by id."""
        self._cluster.refresh(None)
        return {topic.topic_id: topic.name for topic in self._cluster.topics.values() if topic.topic_id is not None}

    def batches(self, start: int, end: int) -> Iterator[LogBatch]:
        """Return the whole batches that contain the offsets from `start` to before `end`, which is at most the high
        watermark.

        Raises NotInLog if the log start offset has passed `start`; ClusterUnreachable."""
        asked: _PendingFetch | None = None
        bytes_max = FIRST_BYTES
        while start < end:
            records = self._records(start, bytes_max, asked)
            try:
                batches = list(whole_batches(records))
            except WireError as problem:
                raise WireError(f"{METADATA_TOPIC} from offset {start} on: {problem}") from None
            if not batches or batches[-1].header.next_offset <= start:
                raise MetadataLogError(f"{METADATA_TOPIC} has no batch at offset {start}, though it ends at {end}")
            start = batches[-1].header.next_offset
            bytes_max = BYTES
            asked = self._send_ahead(start, bytes_max) if start < end else None
            yield from batches

    def _records(self, offset: int, bytes_max: int, asked: _PendingFetch | None) -> bytes:
        """Return records from this offset on. Use the response to the Fetch sent ahead if it arrives and is valid,
        otherwise fetch again."""
        is_first = True

        def attempt(wait_ms: float) -> bytes:
            nonlocal asked, is_first
            if not is_first:
                self._cluster.refresh([METADATA_TOPIC], timeout_ms=wait_ms)
            is_first = False
            link, ticket = asked if asked is not None else self._send(offset, bytes_max, wait_ms)
            asked = None
            return self._take(offset, ticket.version, link.receive(ticket))

        return self._cluster.retry(attempt)

    def _send_ahead(self, offset: int, bytes_max: int) -> _PendingFetch | None:
        """Send the next Fetch before its records are needed. Return None if sending fails; the caller fetches again
        when it needs the records."""
        try:
            return self._send(offset, bytes_max, self._cluster.settings.request_timeout_ms)
        except (LinkFailed, KafkaError, RetriableError):
            return None

    def _send(self, offset: int, bytes_max: int, timeout_ms: float) -> _PendingFetch:
        leader = self._cluster.leader_of(METADATA_PARTITION)
        link = self._cluster.link(leader.node_id, timeout_ms=timeout_ms)
        version = min(link.version(ApiKey.FETCH), _LAST_VERSION_WITH_NAMES)
        wanted = FetchPartition(0, -1, offset, -1, -1, bytes_max)
        body = fetch_request(
            version,
            SessionRequest(0, -1, ((METADATA_TOPIC, None, (wanted,)),), ()),
            wait_ms=WAIT_MS,
            bytes_min=1,
            bytes_max=bytes_max,
            read_committed=False,
            rack="",
        )
        return _PendingFetch(link, link.send(ApiKey.FETCH, version, [body], timeout_ms=timeout_ms))

    def _take(self, offset: int, version: int, body: memoryview) -> bytes:
        answer = read_fetch_response(version, body, lambda name, _: name)
        part = answer.partitions.get(METADATA_PARTITION)
        code = answer.code if part is None else part.code
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            raise NotInLog(f"offset {offset} of {METADATA_TOPIC} is gone: the log begins later by now; read again")
        if part is None or code is not ErrorCode.NONE:
            raise classify(code, RETRIABLE, f"{METADATA_TOPIC} at offset {offset}")
        if not part.records:  # this broker is behind the broker that reported the end
            raise classify(ErrorCode.OFFSET_NOT_AVAILABLE, RETRIABLE, f"{METADATA_TOPIC} at offset {offset}")
        return part.records


def _refused(code: ErrorCode) -> LogRefused:
    return LogRefused(
        f"the cluster does not allow this client to read {METADATA_TOPIC} ({code.name}): that needs permission ALTER "
        "or CLUSTER_ACTION on the cluster, and brokers that serve it, as pykraft's do. A node's data folder can be "
        "read instead: option folder=DIR"
    )
