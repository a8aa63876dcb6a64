"""Async: the age of the next record that a group will read, found by reading that record."""

from __future__ import annotations

import time
from collections.abc import Mapping

import trio

from kraft.client import Consumer, KafkaError
from kraft.client.spark.blocking.link import tls_settings
from kraft.client.spark.state.live import Ends
from kraft.client.spark.state.table_query import REQUEST_FAILURES, TableQuery

Place = tuple[str, int, int]
"""Type: (topic, partition, offset)."""


async def request_lag_times(query: TableQuery, places: Mapping[Place, Ends]) -> dict[Place, int]:
    """Return the age in ms of the record at each place, or of the first record after it; 0 at the end of the log. A
    place is left out if its record does not arrive within a third of the timeout."""
    found: dict[Place, int] = {}
    ahead: dict[tuple[str, int], list[int]] = {}
    for (topic, partition, offset), ends in places.items():
        if ends.start is None or ends.end is None:
            continue
        if offset >= ends.end:
            found[topic, partition, offset] = 0
        else:
            ahead.setdefault((topic, partition), []).append(offset)
    while ahead:  # each round reads one place of each partition
        now = {tp: offsets.pop() for tp, offsets in ahead.items()}
        ahead = {tp: offsets for tp, offsets in ahead.items() if offsets}
        starts = {tp: max(offset, places[*tp, offset].start or 0) for tp, offset in now.items()}
        for tp, written_ms in (await _times(query, starts)).items():
            found[*tp, now[tp]] = max(int(time.time() * 1000) - written_ms, 0)
    return found


async def _times(query: TableQuery, starts: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
    """Return the timestamp in ms of the first record at or after each of these offsets."""
    connection = query.settings.connection
    assert connection is not None
    found: dict[tuple[str, int], int] = {}
    consumer = Consumer(
        bootstrap_servers=connection.bootstrap_servers,
        client_id=connection.client_id,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=1,  # one batch of each partition
        tls=tls_settings(connection.tls),
    )
    with trio.move_on_after(query.part_seconds):
        async with consumer:
            try:
                await consumer.assign(starts, at=starts)
                while found.keys() != starts.keys():
                    for record in await consumer.poll():
                        found.setdefault((record.topic, record.partition), record.timestamp_ms)
            except (KafkaError, *REQUEST_FAILURES):
                return found
    return found
