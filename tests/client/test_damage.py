"""A consumer that meets damaged batches: it reports them, fetches them again after a backoff, and reads other
partitions.
"""

from __future__ import annotations

import pytest
import trio

from kraft.client import KafkaError
from kraft.client.connections import Link
from kraft.sim.world.filesystem import Directory, Inode
from kraft.wire.error_codes import ErrorCode
from tests.client.test_consumer import fill
from tests.stages.clients_in_world import Stage, run

COUNT = 12
MAGIC, VALUE = 16, -1
"""Positions of the byte of a batch that a test changes. MAGIC is in the header, so the batch becomes unreadable. VALUE
is in the part of the last batch that the CRC covers."""
LAST_OFFSET_DELTA = 25
"""Position of the byte of the field lastOffsetDelta that a test changes. The first batch then seems to end far after
the end of the log."""


def damage(stage: Stage, at: int) -> None:
    """Change a byte in the log of partition 0."""
    data = stage.world.host("b1").root.entries["data"]
    assert isinstance(data, Directory)
    folder = data.entries["orders-0"]
    assert isinstance(folder, Directory)
    (segment,) = (entry for name, entry in folder.entries.items() if name.endswith(".log"))
    assert isinstance(segment, Inode)
    segment.data[at] ^= 0xFF


@pytest.mark.parametrize("at", [MAGIC, VALUE])
def test_a_damaged_partition_is_refetched_with_backoff_while_others_are_read(at: int) -> None:
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


@pytest.mark.parametrize("policy", ["earliest", "latest", "none"])
@pytest.mark.parametrize("version_max", [11, 99])
def test_a_damaged_batch_end_after_the_log_end_does_not_move_the_position_there(
    policy: str, version_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The consumer sends its next fetch for the wrong end of the batch. The broker answers that this offset is out of
    range or, if the request has the last epoch, that the log was truncated."""
    version = Link.version
    monkeypatch.setattr(Link, "version", lambda link, key: min(version(link, key), version_max))

    async def test(stage: Stage) -> None:
        await stage.create_topic("orders")
        await fill(stage, COUNT)
        damage(stage, LAST_OFFSET_DELTA)
        async with stage.consumer(auto_offset_reset=policy) as consumer:
            await consumer.assign([("orders", 0)])
            consumer.seek(("orders", 0), 0)
            await trio.sleep(1)  # the response to the fetch at the wrong offset arrives
            with trio.fail_after(10), pytest.raises(KafkaError, match=r"damaged|CRC") as told:
                await consumer.poll()
            assert told.value.code is ErrorCode.CORRUPT_MESSAGE
            assert consumer.position(("orders", 0)) == 0

    run(test)
