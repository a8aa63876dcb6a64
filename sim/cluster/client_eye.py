"""The eye on what brokers tell clients: where a partition ends (Fetch and ListOffsets), and producer ids.

An answer may have waited, and others may have left meanwhile: what is told now is compared with what had been told
when its request was about to be handled, and never with what overtook it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from kraft.sim.check.observations import EndTold, Observation, ProducerIdGiven, TopicPartition
from kraft.wire.api_keys import ApiKey
from kraft.wire.messages import decode_request, decode_response, request_header_version, response_header_version
from kraft.wire.messages.fetch import decode_fetch_request
from kraft.wire.messages.fetch_response import decode_fetch_response

CLIENT_KEYS = frozenset({ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.INIT_PRODUCER_ID})
LATEST = -1
READ_COMMITTED = 1
FIRST_FLEXIBLE_HEADER = 2
FIRST_FLEXIBLE_ANSWER_HEADER = 1


class Leaders(Protocol):
    """What the eye asks of the run."""

    def led_log(self, node: int, topic: str | UUID, partition: int) -> tuple[TopicPartition, int] | None:
        """The log that a node means by a topic's name or id, and the epoch in which it leads it now; None if it does
        not."""
        ...


@dataclass(slots=True)
class ClientAsked:
    """A client's request whose answer has not left."""

    key: int
    version: int
    reads_committed: bool
    latest_of: frozenset[tuple[str, int]]
    """Of ListOffsets: the partitions whose end is asked for."""
    asked_at: int = 0
    """How many ends had been told when it was about to be handled."""


class ClientEye:
    """Is given the requests that clients send to brokers, and their answers, frame by frame."""

    def __init__(self, leaders: Leaders, tell: Callable[[Observation], None]) -> None:
        self._leaders = leaders
        self._tell = tell
        self._told = 0

    def asked(self, key: int, version: int, body: memoryview) -> ClientAsked:
        """A request leaves its client."""
        if request_header_version(key, version) >= FIRST_FLEXIBLE_HEADER:
            body = body[1:]
        if key == ApiKey.INIT_PRODUCER_ID:
            return ClientAsked(key, version, False, frozenset())
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
        """Its broker is about to handle it."""
        asked.asked_at = self._told

    def answered(self, node: int, asked: ClientAsked, body: memoryview) -> None:
        """Its answer leaves this broker."""
        if response_header_version(asked.key, asked.version) >= FIRST_FLEXIBLE_ANSWER_HEADER:
            body = body[1:]
        if asked.key == ApiKey.INIT_PRODUCER_ID:
            given = decode_response(asked.key, asked.version, body)
            if given.error_code == 0:
                self._tell(ProducerIdGiven(node, given.producer_id, given.producer_epoch))
            return
        is_listed = asked.key == ApiKey.LIST_OFFSETS
        for topic, partition, end, epoch in (_listed if is_listed else _fetched)(asked, body):
            led = self._leaders.led_log(node, topic, partition)
            if led is None or end < 0:
                continue
            self._told += 1
            told_in = led[1] if epoch < 0 else epoch
            self._tell(
                EndTold(node, led[0], told_in, end, is_listed, asked.reads_committed, self._told, asked.asked_at)
            )


def _fetched(asked: ClientAsked, body: memoryview) -> Iterator[tuple[str | UUID, int, int, int]]:
    """(topic, partition, end, leader epoch or -1) of each partition that an answer tells of."""
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
