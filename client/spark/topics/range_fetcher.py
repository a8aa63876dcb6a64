"""Synchronous: fetch the batches of one range of offsets from the partition's leader or a follower, one request ahead.

The next Fetch is sent as soon as the headers of a response are walked, so that the broker works while the caller
decodes. Invariants: the position never decreases, so no record is returned twice. The end of the range is detected by
the last offsets of batch headers, never by counting records, because compaction and transaction markers leave offsets
out.
Source: KIP-320 (truncation), KIP-392 (closest replica), KIP-516 (topic ids), KIP-951 (leader hints).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import NoReturn

from kraft.client.core.records import KafkaError
from kraft.client.core.retriable import RETRIABLE
from kraft.client.core.topology import BrokerEndpoint, LeaderAndEpoch
from kraft.client.spark.blocking.cluster import ATTEMPTS_MIN, SyncCluster
from kraft.client.spark.blocking.link import LinkFailed, SyncLink, Ticket
from kraft.client.spark.blocking.retries import MISSING_TOPIC_MS, ClusterUnreachable, Pause, RetriableError, classify
from kraft.client.spark.settings import EARLIEST, LATEST, TopicSettings
from kraft.client.spark.topics.data_loss import report_loss
from kraft.client.spark.topics.decoding.walking import Walked, damaged, walk
from kraft.client.spark.topics.ranges import OffsetRange
from kraft.seam import Address, Buffer, FileRange, WireError
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages.fetch import (
    FIRST_VERSION_WITH_TOPIC_ID,
    FetchPartition,
    FetchRequest,
    FetchResult,
    encode_fetch_request,
)
from kraft.wire.messages.fetch_response import decode_fetch_response

FIRST_BYTES_MAX = 1024 * 1024
"""Maximum size of the first response. It shows how many bytes an offset takes on average."""
BYTES_SPARE = 64 * 1024
"""Bytes requested beyond the estimated size of the range, so that a small error of the estimate does not cost another
request."""
FETCH_GRACE_MS = 5_000
"""Minimum ms that a response may take beyond the wait time that the Fetch itself allows."""
BEHIND_TRIES = 5
"""Number of retries if a log ends before the fetch position. A new leader may report a lower end for a moment."""
EMPTY_ANSWERS = 3
"""Number of consecutive responses without a batch after which the range counts as read, because its last records were
compacted away. Only responses after the whole range has become readable count."""

_MOVED_TOPIC = frozenset({ErrorCode.INCONSISTENT_TOPIC_ID, *RETRIABLE})


class NoProgress(Exception):
    """The broker responds, but the expected records do not arrive within kafkaConsumer.pollTimeoutMs."""


class _RestOfRangeLost(Exception):
    """Internal signal that the remaining records of the range are lost and that the loss has been reported."""


class RangeFetcher:
    """Fetches the records of one range of offsets. `position` is the next offset to fetch."""

    def __init__(self, cluster: SyncCluster, settings: TopicSettings, wanted: OffsetRange) -> None:
        self.position = wanted.start
        self._cluster = cluster
        self._settings = settings
        self._wanted = wanted
        self._last_epoch = wanted.start_epoch
        self._topic_id = wanted.topic_id
        self._rack = settings.connection.rack
        self._replica = -1
        self._replica_until = 0.0
        self._bytes_per_offset: float | None = None
        self._pause: Pause | None = None
        self._behind = 0
        self._ended = 0
        self._empty_since: float | None = None
        if wanted.leader is not None and wanted.topic_id is not None:
            cluster.assume_leader(wanted.topic, wanted.topic_id, wanted.partition, wanted.leader, wanted.leader_epoch)

    def walks(self) -> Iterator[Walked]:
        """Yield the walked batches of each response in the range. When batches are yielded, the next request is already
        in flight.

        Raises WireError for damaged batches; DataLost for records that no longer exist, if failOnDataLoss is set;
        KafkaError, ClusterUnreachable or NoProgress if retries until the request timeout did not help."""
        asked: tuple[SyncLink, Ticket] | None = None
        while self.position < self._wanted.end:
            try:
                walked = self._take(*(asked or self._send_fetch()))
            except _RestOfRangeLost:
                return
            except (LinkFailed, RetriableError, ClusterUnreachable) as failure:
                asked = None
                if not self._recover(failure):
                    return
                continue
            asked = None
            if walked is None:
                continue
            self._advance(walked)
            if self.position < self._wanted.end:
                asked = self._send_ahead()
            yield walked

    # requests

    def _send_fetch(self) -> tuple[SyncLink, Ticket]:
        wanted, fetch = self._wanted, self._settings.fetch
        node_id, epoch = self._source()
        link = self._cluster.link(node_id, timeout_ms=self._try_ms)
        version = link.version(ApiKey.FETCH)
        if self._topic_id is None:
            version = min(version, FIRST_VERSION_WITH_TOPIC_ID - 1)
        bytes_max = self._bytes_max()
        part = FetchPartition(
            wanted.partition, epoch, self.position, self._last_epoch, -1, min(bytes_max, fetch.partition_bytes_max)
        )
        body = encode_fetch_request(
            version,
            FetchRequest(
                max_wait_ms=fetch.wait_ms,
                min_bytes=1,
                topics=[(wanted.topic, self._topic_id, [part])],
                max_bytes=bytes_max,
                isolation_level=int(fetch.read_committed),
                rack_id=self._rack,
            ),
        )
        timeout_ms = fetch.wait_ms + max(FETCH_GRACE_MS, self._try_ms)
        return link, link.send(ApiKey.FETCH, version, [body], timeout_ms=timeout_ms)

    def _send_ahead(self) -> tuple[SyncLink, Ticket] | None:
        """Send the next request before its response is needed, or return None if sending fails. The failure is handled
        after the caller has received the batches already read."""
        try:
            return self._send_fetch()
        except (LinkFailed, RetriableError, _RestOfRangeLost):
            return None

    @property
    def _try_ms(self) -> float:
        return self._settings.connection.request_timeout_ms / ATTEMPTS_MIN

    def _source(self) -> tuple[int, int]:
        """Return (node id, leader epoch) to fetch from: the replica that the leader prefers for this rack, otherwise
        the leader."""
        if self._wanted.topic not in self._cluster.topics:
            self._refresh()
        leader = self._cluster.leader_of((self._wanted.topic, self._wanted.partition))
        topic_id = self._cluster.topics[self._wanted.topic].topic_id
        if self._topic_id is None:
            self._topic_id = topic_id
        elif topic_id is not None and topic_id != self._topic_id:
            self._report_rest_lost("the topic was deleted and recreated", f"a new topic of this name, id {topic_id}")
        if self._replica in self._cluster.brokers and time.monotonic() < self._replica_until:
            return self._replica, leader.epoch
        self._replica = -1
        return leader.node_id, leader.epoch

    def _bytes_max(self) -> int:
        """Return the estimated bytes of the remaining range, plus a margin."""
        most = self._settings.fetch.bytes_max
        if self._bytes_per_offset is None:
            return min(most, FIRST_BYTES_MAX)
        rest = (self._wanted.end - self.position) * self._bytes_per_offset
        return min(most, int(rest) + BYTES_SPARE)

    # responses

    def _take(self, link: SyncLink, ticket: Ticket) -> Walked | None:
        """Receive a response and return its batches. For a response without batches, handle the reason and return None.
        Raises RetriableError for a transient error."""
        part = self._read(link, ticket)
        code = ErrorCode.NONE if part is None else ErrorCode.of(part.error_code)
        if part is None:  # the response of a broker that throttles this client
            self._handle_empty(-1, -1)
        elif code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._handle_offset_out_of_range()
        elif code is not ErrorCode.NONE:
            self._handle_error(code, part)
        elif part.diverging_epoch is not None:
            self._handle_divergence(*part.diverging_epoch)
        elif part.records:
            return self._walk(part)
        elif part.preferred_read_replica >= 0:
            self._prefer(part.preferred_read_replica)
        else:
            self._handle_empty(part.high_watermark, part.last_stable_offset)
        return None

    def _prefer(self, node_id: int) -> None:
        """Fetch from this replica for a while."""
        if node_id not in self._cluster.brokers:
            self._return_to_leader()
            return
        self._replica = node_id
        self._replica_until = time.monotonic() + self._settings.connection.metadata_max_age_ms / 1000

    def _return_to_leader(self) -> None:
        """Fetch the remaining range from the leader. The requests then name no rack, so that the leader does not prefer
        a follower again."""
        self._replica, self._rack = -1, ""

    def _read(self, link: SyncLink, ticket: Ticket) -> FetchResult | None:
        body = link.receive(ticket)
        try:
            answer = decode_fetch_response(ticket.version, body)
        except WireError as error:
            raise self._damaged(f"the answer of {link.address}: {error}") from error
        code = ErrorCode.of(answer.error_code)
        if code is not ErrorCode.NONE:
            raise classify(code, _MOVED_TOPIC, f"{self._wanted}")
        for endpoint in answer.node_endpoints:
            broker = BrokerEndpoint(endpoint.node_id, Address(endpoint.host, endpoint.port), endpoint.rack)
            self._cluster.brokers.setdefault(endpoint.node_id, broker)
        parts = [part for _, _, parts in answer.topics for part in parts if part.partition == self._wanted.partition]
        return parts[0] if parts else None

    def _walk(self, part: FetchResult) -> Walked:
        wanted, fetch = self._wanted, self._settings.fetch
        walked = walk(
            _records(part),
            topic=wanted.topic,
            partition=wanted.partition,
            start=self.position,
            end=wanted.end,
            aborted=(part.aborted_transactions or ()) if fetch.read_committed else None,
            check_crcs=fetch.check_crcs,
        )
        if walked.next_offset <= self.position:
            raise self._damaged(f"{len(walked.records)} bytes came without a batch after this offset")
        return walked

    def _damaged(self, text: str) -> WireError:
        return damaged(self._wanted.topic, self._wanted.partition, self.position, text)

    def _advance(self, walked: Walked) -> None:
        """Move the position behind these batches, and reset the state of earlier failures."""
        spanned = walked.next_offset - self.position
        per_offset = len(walked.records) / spanned
        self._bytes_per_offset = max(per_offset, (self._bytes_per_offset or per_offset) / 2)
        last = walked.batches[-1][1] if walked.batches else None
        is_last = last is not None and last.next_offset == walked.next_offset
        self._last_epoch = last.partition_leader_epoch if last is not None and is_last else -1
        self.position = walked.next_offset
        self._pause = None
        self._behind = self._ended = 0
        self._empty_since = None

    def _handle_empty(self, high_watermark: int, last_stable_offset: int) -> None:
        """Handle a response without a batch: keep waiting if records are still expected, or end the range if none can
        come."""
        now = time.monotonic()
        if self._empty_since is None:
            self._empty_since = now
        read_committed = self._settings.fetch.read_committed
        readable_end = last_stable_offset if read_committed else high_watermark
        self._ended = self._ended + 1 if readable_end >= self._wanted.end else 0
        if self._ended >= EMPTY_ANSWERS:
            self.position = self._wanted.end
            return
        poll_ms = self._settings.fetch.poll_timeout_ms
        if (now - self._empty_since) * 1000 < poll_ms:
            return
        if 0 <= high_watermark < self._wanted.end:
            self._report_rest_lost(
                f"the log ends before the range, since {poll_ms} ms", f"offsets below {high_watermark}"
            )
        raise NoProgress(
            f"topic {self._wanted.topic}, partition {self._wanted.partition}: no record from offset {self.position} on "
            f"came within {poll_ms} ms (high watermark {high_watermark}, last stable offset {last_stable_offset}): an "
            "open transaction or a throttled client may be the cause; kafkaConsumer.pollTimeoutMs is how long to wait"
        )

    # errors in responses

    def _handle_error(self, code: ErrorCode, part: FetchResult) -> None:
        tp = (self._wanted.topic, self._wanted.partition)
        if self._replica >= 0:
            self._return_to_leader()
        reported = part.current_leader
        if reported is not None and self._cluster.learn_leader(
            tp, LeaderAndEpoch(reported.leader_id, reported.leader_epoch)
        ):
            return
        raise classify(code, _MOVED_TOPIC, f"fetching {self._wanted} at offset {self.position}")

    def _handle_offset_out_of_range(self) -> None:
        """Handle a position that is not in the log: retry if the cause may be transient, otherwise continue at the
        nearest available offset."""
        if self._replica >= 0:
            self._return_to_leader()  # a follower may lag: ask the leader
            return
        tp = (self._wanted.topic, self._wanted.partition)
        start = self._cluster.list_offsets({tp: EARLIEST})[tp].offset
        end = self._cluster.list_offsets({tp: LATEST})[tp].offset
        if self.position < start:
            nearest = min(start, self._wanted.end)
            self._report_loss(
                nearest - self.position, f"offsets {start} to {end}", "the beginning of the range has expired"
            )
            self.position, self._last_epoch = nearest, -1
            return
        self._behind += 1
        if self.position <= end or self._behind <= BEHIND_TRIES:
            error = KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self._wanted}: offset {self.position} is not in the log of {start} to {end}",
            )
            raise RetriableError(error)
        self._report_rest_lost("the log ends before this offset", f"offsets {start} to {end}")

    def _handle_divergence(self, epoch: int, end_offset: int) -> None:
        """Handle a log that differs from the one that was read before, because it was truncated. `end_offset`: where
        the common part ends."""
        self._last_epoch = -1
        if end_offset < self.position:
            available = f"offsets below {end_offset} as of leader epoch {epoch}, and others behind them"
            count = self.position - end_offset
            self._report_loss(count, available, "the log was truncated below what was read (an unclean election)")

    def _report_rest_lost(self, why: str, available: str) -> NoReturn:
        self._report_loss(self._wanted.end - self.position, available, why)
        self.position = self._wanted.end
        raise _RestOfRangeLost

    def _report_loss(self, count: int, available: str, why: str) -> None:
        report_loss(
            fail=self._settings.fail_on_data_loss,
            topic=self._wanted.topic,
            partition=self._wanted.partition,
            wanted=f"offsets {self.position} to {self._wanted.end}",
            available=available,
            count=count,
            why=why,
        )

    # failures

    def _recover(self, failure: LinkFailed | RetriableError | ClusterUnreachable) -> bool:
        """Pause, then refresh the leader. Return False if the remaining range is lost. Raises the failure when the
        request timeout has passed without a batch."""
        if self._replica >= 0:
            self._return_to_leader()
        if self._pause is None:
            self._pause = Pause(self._settings.connection.request_timeout_ms)
        pause = self._pause
        if isinstance(failure, RetriableError) and failure.missing and pause.passed_ms >= MISSING_TOPIC_MS:
            with contextlib.suppress(_RestOfRangeLost):
                self._report_rest_lost("the topic or partition no longer exists", "nothing")
            return False
        if not pause.once_more():
            error = self._cluster.final(failure, pause.total_ms)
            error.add_note(f"while reading {self._wanted}, at offset {self.position}")
            raise error from failure
        try:
            self._refresh(max(1.0, pause.left_ms))
        except ClusterUnreachable as unreachable:
            unreachable.add_note(f"while reading {self._wanted}, at offset {self.position}")
            raise
        return True

    def _refresh(self, timeout_ms: float | None = None) -> None:
        self._cluster.refresh([self._wanted.topic], timeout_ms=timeout_ms)


def _records(part: FetchResult) -> Buffer:
    """Return the bytes of the batches, as a view into the response."""
    (records,) = part.records
    if isinstance(records, FileRange):
        raise TypeError("an answer that was read holds no file ranges")
    return records
