"""Helpers for tests of replicas on three brokers: writing records, electing a new leader, comparing logs."""

from __future__ import annotations

from typing import Any

from kraft.storage.handles import read_through
from kraft.wire.error_codes import ErrorCode
from kraft.wire.records import iter_headers
from tests.stages.plane import Plane, batch, error

NONE = ErrorCode.NONE
BROKERS = (1, 2, 3)


async def produce_numbers(plane: Plane, count: int, *, first: int = 0, **options: Any) -> None:
    for number in range(first, first + count):
        row = await plane.produce("orders", batch(f"{number}"), **options)
        assert error(row) == NONE, row


async def new_leader(plane: Plane, *, without: int) -> int:
    """Wait until a broker other than `without` leads and accepts appends, and return its id."""
    await plane.until(lambda: plane.leader("orders") not in (without, -1))
    leader = plane.leader("orders")
    await plane.until(lambda: plane.partition("orders", leader).leader is not None)
    return leader


def contents(plane: Plane, broker_id: int) -> list[tuple[int, int, bytes]]:
    """Return (base offset, leader epoch, bytes) of every batch in a replica's log."""
    log = plane.partition("orders", broker_id).log
    found: list[tuple[int, int, bytes]] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = read_through(log.read, offset, 2**30, log.log_end_offset).read()
        for position, header in iter_headers(data):
            found.append((header.base_offset, header.partition_leader_epoch, data[position:][: header.size_bytes]))
            offset = header.next_offset
    return found


async def settled(plane: Plane, *brokers: int) -> None:
    """Wait until these replicas end at the same offset and are all in sync."""
    brokers = brokers or BROKERS

    def is_settled() -> bool:
        logs = [plane.partition("orders", broker).log for broker in brokers]
        leader = plane.partition("orders", plane.leader("orders")).leader
        return (
            None not in logs
            and len({log.log_end_offset for log in logs}) == 1
            and leader is not None
            and leader.isr.committed >= set(brokers)
        )

    await plane.until(is_settled, timeout_ms=60_000)


async def restart(plane: Plane, broker_id: int) -> None:
    plane.world.restart(plane.cluster.name(broker_id))
    await plane.world.sleep_ms(20)
    await plane.cluster.wait_ready(30_000)
