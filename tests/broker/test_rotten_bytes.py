"""Bytes of a log that change on the device under their CRC: nobody takes them for good, and where others have them
whole, the replica that has not ends."""

from __future__ import annotations

from struct import unpack_from

import pytest
import trio

from kraft.broker.node.refused_reads import AGAIN_MAX, READERS_MAX, SameAgain
from kraft.client import Consumer, KafkaError
from kraft.image.registrations import LOST_DIRECTORY
from kraft.wire.records import BATCH_HEADER_BYTES
from tests.broker.test_damaged_logs import folder, log_file, state_of
from tests.broker.world_cluster import BROKER_PORT
from tests.data_plane.plane import Plane, three
from tests.data_plane.test_replication import contents, new_leader, produce_numbers, settled

PLACE = ("orders", 0)
COUNT = 40
REFUSAL = "CORRUPT_MESSAGE: orders-0: the batch at offset 7 fails its CRC-32C. It is asked for again"


def rot(plane: Plane, broker: str, number: int) -> None:
    """Flip a bit in the records of one batch, behind its broker's back."""
    data = log_file(plane, broker).data
    position = 0
    for _ in range(number):
        position += 12 + unpack_from(">i", data, position + 8)[0]
    data[position + BATCH_HEADER_BYTES] ^= 1


async def rotten_leader(plane: Plane, *, at: int = 7) -> None:
    await plane.create_topic("orders", leader=1)
    await produce_numbers(plane, COUNT)
    await settled(plane)
    rot(plane, "b1", at)


async def read_all(plane: Plane, *, refusals_max: int = 20) -> tuple[list[bytes | None], int]:
    """What a consumer is given from the begin on, and how often it was told of a damaged batch."""
    servers = ",".join(f"{plane.cluster.name(broker)}:{BROKER_PORT}" for broker in plane.cluster.broker_ids)
    found: list[bytes | None] = []
    told: list[str] = []
    with trio.fail_after(60):
        async with Consumer(bootstrap_servers=servers, seam=plane.world.node("reader")) as consumer:
            await consumer.assign([PLACE], at="earliest")
            while len(found) < COUNT and len(told) < refusals_max:
                try:
                    found += [record.value for record in await consumer.poll()]
                except KafkaError as refused:
                    told.append(str(refused))
    assert all(one.startswith(REFUSAL) for one in told), told
    return found, len(told)


def test_a_consumer_gets_everything_from_another_replica_and_the_rotten_one_ends() -> None:
    async def test(plane: Plane) -> None:
        await rotten_leader(plane)
        found, refusals = await read_all(plane)
        assert found == [b"%d" % number for number in range(COUNT)]
        assert 0 < refusals <= 2 * AGAIN_MAX
        await plane.until(lambda: state_of(plane).directory_of(1) == LOST_DIRECTORY)
        assert plane.partition("orders", 1).is_offline
        assert plane.is_up(1)

    three(test)


def test_a_follower_copies_no_rotten_batch_and_its_leader_ends() -> None:
    async def test(plane: Plane) -> None:
        await rotten_leader(plane)
        await plane.stop(3)
        folder(plane, "b3").entries.pop("orders-0")
        plane.cluster.start(3)
        await plane.until(lambda: state_of(plane).directory_of(1) == LOST_DIRECTORY)
        assert await new_leader(plane, without=1) == 2
        await settled(plane, 2, 3)
        assert contents(plane, 3) == contents(plane, 2)
        assert len(contents(plane, 3)) == COUNT

    three(test)


def test_where_nobody_else_is_in_sync_the_rest_can_be_read() -> None:
    async def test(plane: Plane) -> None:
        await rotten_leader(plane)
        for other in (2, 3):
            await plane.stop(other)
        await plane.until(lambda: state_of(plane, 1).isr == (1,))
        found, refusals = await read_all(plane, refusals_max=4 * AGAIN_MAX)
        assert found == [b"%d" % number for number in range(7)]
        assert refusals == 4 * AGAIN_MAX
        assert not plane.partition("orders", 1).is_offline
        await produce_numbers(plane, 1, first=COUNT)

    three(test)


# whose coming back is suspicious


@pytest.mark.parametrize("reader", [3, -17])
def test_a_reader_that_stays_at_an_offset_is_suspicious_and_one_that_goes_on_is_not(reader: int) -> None:
    seen = SameAgain()
    assert not any(seen.is_suspicious(reader, offset) for offset in range(100))
    again = [seen.is_suspicious(reader, 99) for _ in range(2 * AGAIN_MAX)]
    assert again == [(number + 1) % AGAIN_MAX == 0 for number in range(2 * AGAIN_MAX)]


def test_a_consumer_that_reads_on_behind_what_it_refuses_is_suspicious_and_a_follower_that_goes_on_is_not() -> None:
    def told(reader: int) -> bool:
        seen = SameAgain()
        return any(seen.is_suspicious(reader, offset) for end in range(50, 60) for offset in (7, end))

    assert told(-1)
    assert not told(1)


def test_readers_are_told_apart_and_only_so_many_are_remembered() -> None:
    seen = SameAgain()
    assert not any(seen.is_suspicious(reader, 5) for reader in range(10 * READERS_MAX))
    assert len(seen._given) <= READERS_MAX
