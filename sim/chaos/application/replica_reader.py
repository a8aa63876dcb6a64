"""Reads partitions from one given broker, leader or follower, as a consumer near that broker does (KIP-392).

A follower returns records up to its own high watermark, which each of its fetches from the leader updates. Records that
it does not return yet are requested again until the timeout.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import trio

from kraft.client.cluster import Cluster
from kraft.client.connections import CONNECTION_FAILURES, VersionMismatch
from kraft.client.core.fetch_session import FetchSessionHandler
from kraft.client.core.fetched import FetchedBytes, FetchPosition
from kraft.client.core.records import ConsumerRecord, TopicPartition
from kraft.client.core.requests import PartitionFetchResult, fetch_request, read_fetch_response
from kraft.seam import WireError
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages.fetch import FIRST_VERSION_WITH_RACK, FIRST_VERSION_WITH_TOPIC_ID, FetchPartition

PAUSE_MS = 50
FETCH_BYTES = 4 * 1024 * 1024
FETCH_TIMEOUT_MS = 5_000
WAIT_MS = 200


@dataclass(frozen=True, slots=True)
class Extent:
    """The offsets of a partition to read: from `start` inclusive to `end` exclusive."""

    start: int
    end: int


async def read_replica(
    cluster: Cluster,
    node: int,
    extents: Mapping[TopicPartition, Extent],
    take: Callable[[TopicPartition, list[ConsumerRecord]], None],
    *,
    timeout_ms: float,
) -> dict[TopicPartition, str]:
    """Read these extents, batch by batch, from this broker. `cluster` holds the metadata of the broker and the topics.
    Returns a sentence with the reason for each partition that was not read to its end in time."""
    reading = {tp: _Reading(extent.start, extent.end) for tp, extent in extents.items()}
    with trio.move_on_after(timeout_ms / 1000):
        for tp, each in reading.items():
            while each.position < each.end:
                position, each.problem = await _read_on(cluster, node, tp, each.position, take)
                if position == each.position:
                    await trio.sleep(PAUSE_MS / 1000)
                each.position = position
    return {
        tp: f"broker {node} gave {tp[0]}-{tp[1]} up to offset {each.position} of {each.end} within "
        f"{timeout_ms / 1000:g} s: {each.problem}"
        for tp, each in reading.items()
        if each.position < each.end
    }


@dataclass(slots=True)
class _Reading:
    position: int
    end: int
    problem: str = "there was no time left for it"


async def _read_on(
    cluster: Cluster,
    node: int,
    tp: TopicPartition,
    offset: int,
    take: Callable[[TopicPartition, list[ConsumerRecord]], None],
) -> tuple[int, str]:
    """Fetch once; return the next offset, and the reason if the read cannot continue."""
    try:
        part = await _fetch(cluster, node, tp, offset)
    except KeyError:
        with suppress(*CONNECTION_FAILURES):
            await cluster.refresh([tp[0]], timeout_ms=FETCH_TIMEOUT_MS)
        return offset, "the broker is not up"
    except (*CONNECTION_FAILURES, WireError, VersionMismatch) as problem:
        return offset, str(problem) or type(problem).__name__
    if part is None or part.code is not ErrorCode.NONE:
        return offset, "it was not answered" if part is None else part.code.name
    fetched = FetchedBytes(part.records, FetchPosition(offset))
    try:
        while (records := fetched.next_batch(tp)) is not None:
            if records:
                take(tp, records)
    except WireError as damage:
        return fetched.position.offset, str(damage)
    return fetched.position.offset, f"its high watermark is {part.high_watermark}"


async def _fetch(cluster: Cluster, node: int, tp: TopicPartition, offset: int) -> PartitionFetchResult | None:
    """Return the broker's records from this offset on; None if its response does not contain the partition."""
    topic = cluster.topic(tp[0])
    if topic is None:
        return None
    link = await cluster.link(node, "replica")
    version = link.version(ApiKey.FETCH)
    if version < FIRST_VERSION_WITH_RACK:
        raise VersionMismatch(f"broker {node} does not let consumers read from followers (KIP-392)")
    if topic.topic_id is None:
        version = min(version, FIRST_VERSION_WITH_TOPIC_ID - 1)
    session = FetchSessionHandler()
    request = fetch_request(
        version,
        session.request({tp: (topic.topic_id, FetchPartition(tp[1], -1, offset, -1, -1, FETCH_BYTES))}),
        wait_ms=WAIT_MS,
        bytes_min=1,
        bytes_max=FETCH_BYTES,
        read_committed=False,
        rack="",
    )
    answer = await link.request_encoded(
        ApiKey.FETCH,
        version,
        [request],
        lambda body: read_fetch_response(version, body, session.topic_of),
        timeout_ms=WAIT_MS + FETCH_TIMEOUT_MS,
    )
    if answer.code is not ErrorCode.NONE:
        raise WireError(f"broker {node} refused a fetch: {answer.code.name}")
    return answer.partitions.get(tp)
