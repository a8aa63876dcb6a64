"""Produce against one node: appends, acks, and the table of checks."""

from __future__ import annotations

from tests.data_plane.plane import EPOCH_MS, Plane, batch, error, run, values

from kraft.wire.error_codes import ErrorCode


def test_what_was_produced_is_fetched() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        for version in range(3, 14):
            result = await plane.produce("orders", batch(f"v{version}", timestamp=EPOCH_MS), version=version)
            assert (error(result), result.base_offset) == (ErrorCode.NONE, version - 3)
        result = await plane.fetch("orders", 0)
        assert values(result.records) == [f"v{version}".encode() for version in range(3, 14)]
        assert result.high_watermark == 11

    run(test)
