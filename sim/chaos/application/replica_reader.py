"""Reads partitions from one broker, leader or follower, as a consumer that the broker is close to does (KIP-392).

A follower answers up to the high watermark that it knows, which comes with its next fetch: what it does not have yet is
asked for again until the time is over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import trio

from kraft.client.cluster import Cluster
from kraft.client.connections import CONNECTION_FAILURES, VersionMismatch
from kraft.client.core.fetch_session import FetchSession
from kraft.client.core.fetched import FetchedBytes, FetchPosition
from kraft.client.core.records import ConsumerRecord, TopicPartition
from kraft.client.core.requests import FetchedPartition, fetch_request, read_fetch_response
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
    """The offsets of a partition that are to be read: from `start`, to `end` exclusively."""

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
    """Read these extents, batch by batch, from this broker. `cluster` knows it and the topics. Gives for each partition
    that was not read to its end within the time a sentence that says why."""
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
    """One fetch; the next offset, and what stands in the way of more."""
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


async def _fetch(cluster: Cluster, node: int, tp: TopicPartition, offset: int) -> FetchedPartition | None:
    """What the broker has from this offset on; None if its answer does not speak of it."""
    topic = cluster.topic(tp[0])
    if topic is None:
        return None
    link = await cluster.link(node, "replica")
    version = link.version(ApiKey.FETCH)
    if version < FIRST_VERSION_WITH_RACK:
        raise VersionMismatch(f"broker {node} does not let consumers read from followers (KIP-392)")
    if topic.topic_id is None:
        version = min(version, FIRST_VERSION_WITH_TOPIC_ID - 1)
    session = FetchSession()
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
