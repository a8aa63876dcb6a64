"""What a consumer does with bytes that no batch can be: it says so, keeps on asking in peace, and reads the rest."""

from __future__ import annotations

import pytest
import trio

from kraft.client import KafkaError
from kraft.sim.world.filesystem import Directory, Inode
from kraft.wire.error_codes import ErrorCode

from .stage import Stage, run
from .test_consumer import fill

COUNT = 12
MAGIC, VALUE = 16, -1
"""Where a byte changes: in the header, which nobody gets past; under the CRC of the last batch."""


def damage(stage: Stage, at: int) -> None:
    """Change a byte of what partition 0 holds."""
    data = stage.world.host("b1").root.entries["data"]
    assert isinstance(data, Directory)
    folder = data.entries["orders-0"]
    assert isinstance(folder, Directory)
    (segment,) = (entry for name, entry in folder.entries.items() if name.endswith(".log"))
    assert isinstance(segment, Inode)
    segment.data[at] ^= 0xFF


@pytest.mark.parametrize("at", [MAGIC, VALUE])
def test_a_damaged_partition_keeps_no_other_from_being_read_and_is_asked_for_in_peace(at: int) -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("orders", 2)
        for partition in (0, 1):
            await fill(stage, COUNT, partition=partition)
        damage(stage, at)
        read: set[int] = set()
        told: list[KafkaError] = []
        async with stage.consumer() as consumer:
            await consumer.assign([("orders", 0), ("orders", 1)], at="earliest")
            with trio.move_on_after(3):
                while True:
                    try:
                        read |= {record.offset for record in await consumer.poll() if record.partition == 1}
                    except KafkaError as refused:
                        told.append(refused)
        assert read == set(range(COUNT))
        assert {refused.code for refused in told} == {ErrorCode.CORRUPT_MESSAGE}
        assert all("orders-0" in str(refused) for refused in told)
        assert 2 <= len(told) <= 3_000 / consumer.config.retry_backoff_ms

    run(test)
