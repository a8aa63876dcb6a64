"""Observes what brokers report to clients: the end offsets of partitions (Fetch and ListOffsets), and producer ids.

A response may be delayed while others are sent. So it is compared with what had been reported when its request was
about to be handled, never with reports sent after that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from kraft.sim.check.observations import EndReported, Observation, ProducerIdSent, TopicPartition
from kraft.wire.api_keys import ApiKey
from kraft.wire.messages import decode_request, decode_response, request_header_version, response_header_version
from kraft.wire.messages.fetch import decode_fetch_request
from kraft.wire.messages.fetch_response import decode_fetch_response

CLIENT_KEYS = frozenset({ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN})
IDENTITY_KEYS = (ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN)
LATEST = -1
READ_COMMITTED = 1
FIRST_FLEXIBLE_HEADER = 2
FIRST_FLEXIBLE_ANSWER_HEADER = 1


class LeaderLookup(Protocol):
    """Interface through which the client observer asks the run which node leads a log."""

    def led_log(self, node: int, topic: str | UUID, partition: int) -> tuple[TopicPartition, int] | None:
        """Return the log that a node hosts for a topic's name or id, and the epoch in which the node leads it now; None
        if the node does not lead it."""
        ...


@dataclass(slots=True)
class ClientAsked:
    """A client's request whose response has not been sent."""

    key: int
    version: int
    reads_committed: bool
    latest_of: frozenset[tuple[str, int]]
    """For ListOffsets: the partitions of which the client requests the end offset."""
    asked_at: int = 0
    """Number of end offsets that had been reported when the broker was about to handle the request."""
    transactional_id: str = ""
    caller: str = ""
    """Client and incarnation that request a producer id, or the end of a transaction."""


class ClientObserver:
    """Receives the requests that clients send to brokers, and the responses, frame by frame."""

    def __init__(self, leaders: LeaderLookup, tell: Callable[[Observation], None]) -> None:
        self._leaders = leaders
        self._tell = tell
        self._told = 0

    def asked(self, key: int, version: int, body: memoryview, caller: str) -> ClientAsked:
        """Record that a client sends a request."""
        if request_header_version(key, version) >= FIRST_FLEXIBLE_HEADER:
            body = body[1:]
        if key in IDENTITY_KEYS:
            transactional_id = str(decode_request(key, version, body).transactional_id or "")
            return ClientAsked(key, version, False, frozenset(), transactional_id=transactional_id, caller=caller)
        if key == ApiKey.FETCH:
            isolation_level = decode_fetch_request(version, body).isolation_level
            return ClientAsked(key, version, isolation_level == READ_COMMITTED, frozenset())
        request = decode_request(key, version, body)
        latest_of = frozenset(
            (topic.name, row.partition_index)
            for topic in request.topics
            for row in topic.partitions
            if row.timestamp == LATEST
        )
        return ClientAsked(key, version, request.isolation_level == READ_COMMITTED, latest_of)

    def handled(self, asked: ClientAsked) -> None:
        """Record that the broker is about to handle the request."""
        asked.asked_at = self._told

    def answered(self, node: int, asked: ClientAsked, body: memoryview) -> None:
        """Record that this broker sends the response."""
        if response_header_version(asked.key, asked.version) >= FIRST_FLEXIBLE_ANSWER_HEADER:
            body = body[1:]
        if asked.key in IDENTITY_KEYS:
            given: Any = decode_response(asked.key, asked.version, body)
            if given.error_code == 0 and getattr(given, "producer_id", -1) >= 0:
                identity = (int(given.producer_id), int(given.producer_epoch))
                is_next = asked.key == ApiKey.END_TXN
                self._tell(ProducerIdSent(node, *identity, asked.transactional_id, asked.caller, is_next))
            return
        is_listed = asked.key == ApiKey.LIST_OFFSETS
        for topic, partition, end, epoch in (_listed if is_listed else _fetched)(asked, body):
            led = self._leaders.led_log(node, topic, partition)
            if led is None or end < 0:
                continue
            self._told += 1
            told_in = led[1] if epoch < 0 else epoch
            self._tell(
                EndReported(node, led[0], told_in, end, is_listed, asked.reads_committed, self._told, asked.asked_at)
            )


def _fetched(asked: ClientAsked, body: memoryview) -> Iterator[tuple[str | UUID, int, int, int]]:
    """Yield (topic, partition, end offset, leader epoch or -1) for each partition in a Fetch response."""
    for name, topic_id, results in decode_fetch_response(asked.version, body).topics:
        for result in results:
            if result.error_code == 0:
                end = result.last_stable_offset if asked.reads_committed else result.high_watermark
                yield name or topic_id or "", result.partition, end, -1


def _listed(asked: ClientAsked, body: memoryview) -> Iterator[tuple[str | UUID, int, int, int]]:
    response: Any = decode_response(asked.key, asked.version, body)
    for topic in response.topics:
        for row in topic.partitions:
            if row.error_code == 0 and row.leader_epoch >= 0 and (topic.name, row.partition_index) in asked.latest_of:
                yield topic.name, row.partition_index, row.offset, row.leader_epoch
