"""Async: how old the next record of a group is, by reading it."""

from __future__ import annotations

import time
from collections.abc import Mapping

import trio

from kraft.client import Consumer, KafkaError
from kraft.client.spark.blocking.link import tls_settings
from kraft.client.spark.state.asking import NO_ANSWER, Asking
from kraft.client.spark.state.live import Ends

Place = tuple[str, int, int]
"""Topic, partition, offset."""


async def ask_lag_times(asking: Asking, places: Mapping[Place, Ends]) -> dict[Place, int]:
    """Of each place: ms since the record there, or the first one after it, was written; 0 at the end of the log. A
    place whose record does not come within a third of the time is left out."""
    found: dict[Place, int] = {}
    ahead: dict[tuple[str, int], list[int]] = {}
    for (topic, partition, offset), ends in places.items():
        if ends.start is None or ends.end is None:
            continue
        if offset >= ends.end:
            found[topic, partition, offset] = 0
        else:
            ahead.setdefault((topic, partition), []).append(offset)
    while ahead:  # one place of each partition at a time
        now = {tp: offsets.pop() for tp, offsets in ahead.items()}
        ahead = {tp: offsets for tp, offsets in ahead.items() if offsets}
        starts = {tp: max(offset, places[*tp, offset].start or 0) for tp, offset in now.items()}
        for tp, written_ms in (await _times(asking, starts)).items():
            found[*tp, now[tp]] = max(int(time.time() * 1000) - written_ms, 0)
    return found


async def _times(asking: Asking, starts: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
    """The time in ms of the first record at or after each of these offsets."""
    connection = asking.settings.connection
    assert connection is not None
    found: dict[tuple[str, int], int] = {}
    consumer = Consumer(
        bootstrap_servers=connection.bootstrap_servers,
        client_id=connection.client_id,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=1,  # one batch of each
        tls=tls_settings(connection.tls),
    )
    with trio.move_on_after(asking.part_seconds):
        async with consumer:
            try:
                await consumer.assign(starts, at=starts)
                while found.keys() != starts.keys():
                    for record in await consumer.poll():
                        found.setdefault((record.topic, record.partition), record.timestamp_ms)
            except (KafkaError, *NO_ANSWER):
                return found
    return found
