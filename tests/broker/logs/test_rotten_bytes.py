"""Bytes of a log that change on the device under their CRC: nobody takes them for good, and where others have them
whole, the replica that has not ends."""

from __future__ import annotations

from struct import unpack_from
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from kraft.broker.api.list_offsets import DEBUG_REPLICA
from kraft.broker.logs.damaged_logs import LEFT_ALONE_MS
from kraft.broker.logs.refused_reads import RefusedReads
from kraft.broker.partition.partition_states import LogState
from kraft.broker.partition.repeated_reads import AGAIN_MAX, LEFT_ALONE_MAX, READERS_MAX, SameAgain
from kraft.client import Consumer, KafkaError
from kraft.image.partitions import NO_LEADER
from kraft.image.registrations import LOST_DIRECTORY
from kraft.wire.error_codes import ErrorCode
from kraft.wire.records import BATCH_HEADER_BYTES
from tests.broker.logs.test_damaged_logs import folder, log_file, state_of
from tests.stages.plane import EPOCH_MS, Plane, batch, error, three, values
from tests.stages.replicas import contents, new_leader, produce_numbers, settled
from tests.stages.world_cluster import BROKER_PORT

PLACE = ("orders", 0)
COUNT = 40
REFUSAL = "CORRUPT_MESSAGE: orders-0: the batch at offset 7 fails its CRC-32C. It is asked for again"


def rot(plane: Plane, broker: str, number: int, at: int = BATCH_HEADER_BYTES) -> None:
    """Flip a bit of one batch, so many bytes behind its begin, behind its broker's back."""
    data = log_file(plane, broker).data
    position = 0
    for _ in range(number):
        position += 12 + unpack_from(">i", data, position + 8)[0]
    data[position + at] ^= 1 << 3


async def rotten_leader(plane: Plane, *, at: int = 7, **topic: Any) -> None:
    await plane.create_topic("orders", leader=1, **topic)
    for number in range(COUNT):
        row = await plane.produce("orders", batch(f"{number}", timestamp=EPOCH_MS + number))
        assert not error(row), row
    if plane.partition("orders", 1).state.replicas != (1,):
        await settled(plane)
    rot(plane, "b1", at)


async def rotten_and_alone(plane: Plane, **topic: Any) -> None:
    """Nobody else is in sync."""
    await rotten_leader(plane, **topic)
    for other in (3, 2):
        await plane.stop(other)
    await plane.until(lambda: state_of(plane, 1).isr == (1,))


def reads(plane: Plane) -> RefusedReads:
    return plane.cluster.node(1).broker.broker.replicas.refused_reads


def come_back(plane: Plane, offset: int = 7) -> None:
    """A reader is given what stands there until that is suspicious."""
    for _ in range(1 + AGAIN_MAX):
        reads(plane).given(plane.partition("orders", 1), -5, offset, 1)


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


def test_replicas_of_the_elr_whose_brokers_are_down_could_not_lead_and_one_that_is_back_leads() -> None:
    async def test(plane: Plane) -> None:
        await rotten_and_alone(plane, min_insync_replicas="2")
        assert state_of(plane, 1).elr
        found, refusals = await read_all(plane, refusals_max=4 * AGAIN_MAX)
        assert found == [b"%d" % number for number in range(7)]
        assert refusals == 4 * AGAIN_MAX
        assert not plane.partition("orders", 1).is_offline
        assert state_of(plane, 1).leader == 1
        plane.cluster.start(2)
        await plane.until(lambda: 2 in state_of(plane, 1).isr)
        found, refusals = await read_all(plane)
        assert found == [b"%d" % number for number in range(COUNT)]
        assert 0 < refusals <= 2 * AGAIN_MAX
        assert state_of(plane, 1).directory_of(1) == LOST_DIRECTORY

    three(test)


def test_a_replica_in_sync_or_eligible_whose_broker_is_active_could_lead() -> None:
    async def test(plane: Plane) -> None:
        await rotten_leader(plane, min_insync_replicas="2")
        damaged_logs = plane.cluster.node(1).broker.broker.replicas.damaged_logs
        partition = plane.partition("orders", 1)
        assert partition.state is not None
        for isr, elr, expected in (
            ((1,), (), False),
            ((), (), False),
            ((), (1,), False),
            ((1,), (2,), True),
            ((), (1, 2), True),
            ((2, 3), (), True),
        ):
            partition.follow(partition.state._replace(leader=NO_LEADER, isr=isr, elr=elr))
            assert damaged_logs.others_can_lead(partition) is expected, (isr, elr)
        await plane.stop(2)
        await plane.until(lambda: 2 not in plane.cluster.node(1).broker.broker.replicas.host.eligible)
        partition.follow(partition.state._replace(leader=NO_LEADER, isr=(1,), elr=(2,)))
        assert not damaged_logs.others_can_lead(partition)
        partition.follow(partition.state._replace(isr=(1, 2), elr=()))  # its turn to hear of the fence is still to come
        assert not damaged_logs.others_can_lead(partition)

    three(test)


def test_the_only_replica_in_sync_goes_on_though_it_was_fenced_before_the_damage_was_found() -> None:
    async def test(plane: Plane) -> None:
        await rotten_and_alone(plane)
        partition = plane.partition("orders", 1)
        come_back(plane)
        assert partition.state is not None
        partition.follow(partition.state._replace(leader=NO_LEADER))
        await plane.until(lambda: not reads(plane)._under_way)
        assert not partition.is_offline

    three(test)


@pytest.mark.parametrize(("begins_ms", "ends_ms"), [(0, 10), (10, 1_000)])
def test_a_log_that_is_being_cut_is_not_looked_at(begins_ms: int, ends_ms: int) -> None:
    """What is damaged there may be what is cut."""

    async def test(plane: Plane) -> None:
        await rotten_leader(plane)
        plane.world.slow_disk("b1", 200)
        partition = plane.partition("orders", 1)
        come_back(plane)
        if begins_ms:
            await plane.world.sleep_ms(begins_ms)
        partition.cut_begun()
        await plane.world.sleep_ms(ends_ms - begins_ms)
        partition.log_state = LogState.OPEN
        await plane.world.sleep_ms(1_000)
        assert not partition.is_offline
        come_back(plane)
        await plane.until(lambda: partition.is_offline)

    three(test)


@pytest.mark.slow
def test_damage_that_nobody_can_do_anything_about_is_told_once_in_a_while() -> None:
    async def test(plane: Plane) -> None:
        await rotten_and_alone(plane)
        with capture_logs() as lines:
            for _ in range(2):
                come_back(plane)
                assert reads(plane)._under_way
                await plane.until(lambda: not reads(plane)._under_way)
                for _ in range(20):
                    come_back(plane)
                    assert not reads(plane)._under_way
                await plane.world.sleep_ms(2 * LEFT_ALONE_MS)
        told = [line for line in lines if "log is damaged, and no other replica could lead" in line["event"]]
        assert [line["log_level"] for line in told] == ["error"] * 2
        assert not any("leader" in line["event"] for line in told)

    three(test)


@pytest.mark.parametrize("at", [6, 7, 12, 15])
def test_a_batch_whose_offset_or_epoch_has_changed_is_copied_by_nobody_and_its_leader_ends(at: int) -> None:
    """No CRC covers these: a follower refuses the batch, or goes in a circle."""

    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        await produce_numbers(plane, COUNT)
        await settled(plane)
        rot(plane, "b1", 7, at)
        await plane.stop(3)
        folder(plane, "b3").entries.pop("orders-0")
        plane.cluster.start(3)
        await plane.until(lambda: state_of(plane).directory_of(1) == LOST_DIRECTORY)
        await new_leader(plane, without=1)
        await settled(plane, 2, 3)
        assert contents(plane, 3) == contents(plane, 2)
        assert len(contents(plane, 3)) == COUNT

    three(test)


def test_damage_far_behind_what_a_follower_asks_for_is_found() -> None:
    """It takes nothing of an answer in which one batch is damaged, so it asks for the same again."""

    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        for number in range(8):
            assert not error(await plane.produce("orders", batch(b"%d" % number * 500_000)))
        await settled(plane)
        rot(plane, "b1", 7)
        await plane.stop(3)
        folder(plane, "b3").entries.pop("orders-0")
        plane.cluster.start(3)
        await plane.until(lambda: state_of(plane).directory_of(1) == LOST_DIRECTORY)
        await settled(plane, 2, 3)

    three(test, replica_fetch_max_bytes=str(2**23))


# lookups by time


def test_a_lookup_by_time_that_meets_a_rotten_batch_ends_the_replica_where_others_can_lead() -> None:
    async def test(plane: Plane) -> None:
        await rotten_leader(plane)
        assert (await plane.list_offset("orders", EPOCH_MS + 3)).offset == 3
        assert error(await plane.list_offset("orders", EPOCH_MS + 7)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        await plane.until(lambda: state_of(plane).directory_of(1) == LOST_DIRECTORY)
        leader = await new_leader(plane, without=1)
        assert (await plane.list_offset("orders", EPOCH_MS + 7, broker_id=leader)).offset == 7

    three(test)


@pytest.mark.parametrize("factor", [1, 3])
def test_a_lookup_by_time_is_told_of_a_rotten_batch_where_nobody_else_could_lead_and_all_else_goes_on(
    factor: int,
) -> None:
    async def test(plane: Plane) -> None:
        await (rotten_leader(plane, factor=1) if factor == 1 else rotten_and_alone(plane))
        with capture_logs() as lines:
            for _ in range(5):
                assert error(await plane.list_offset("orders", EPOCH_MS + 7)) is ErrorCode.CORRUPT_MESSAGE
        assert len([line for line in lines if line["log_level"] == "error"]) == 1
        assert not any("leader" in line["event"] for line in lines)
        assert not plane.partition("orders", 1).is_offline
        assert (await plane.list_offset("orders", EPOCH_MS + 8)).offset == 8
        answer = await plane.fetch("orders", 8)
        assert values(answer.records) == [b"%d" % number for number in range(8, COUNT)]
        await produce_numbers(plane, 1, first=COUNT)

    three(test)


def test_a_lookup_by_time_does_not_look_at_a_log_that_is_being_cut() -> None:
    async def test(plane: Plane) -> None:
        await rotten_leader(plane)
        partition = plane.partition("orders", 1)
        assert partition.state is not None
        partition.follow(partition.state._replace(leader=2))
        partition.cut_begun()
        plane.world.slow_disk("b1", 200)
        told: list[ErrorCode] = []

        async def ask() -> None:
            told.append(error(await plane.list_offset("orders", EPOCH_MS + 7, replica_id=DEBUG_REPLICA)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await plane.world.sleep_ms(100)
            partition.log_state = LogState.OPEN
        assert told == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert not partition.is_offline

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


def test_readers_are_told_apart_and_only_so_many_consumers_are_remembered() -> None:
    seen = SameAgain()
    assert not any(seen.is_suspicious(-1 - session, 5) for session in range(10 * READERS_MAX))
    assert len(seen._given) <= READERS_MAX


@pytest.mark.parametrize("stuck", [3, -1_000])
def test_a_reader_that_is_stuck_is_noticed_among_as_many_as_are_remembered(stuck: int) -> None:
    seen = SameAgain()
    noticed = False
    for offset in range(1 + AGAIN_MAX):
        for session in range(1, READERS_MAX):
            assert not seen.is_suspicious(-session, offset)
        noticed = seen.is_suspicious(stuck, 5)
    assert noticed


def test_of_too_many_readers_the_consumer_is_forgotten_that_was_away_the_longest_and_no_follower() -> None:
    seen = SameAgain()
    readers = (2, 3, *(-session for session in range(1, READERS_MAX - 1)))
    for reader in (*readers, -1):
        seen.is_suspicious(reader, 5)
    seen.is_suspicious(-500, 5)
    assert set(readers) - set(seen._given) == {-2}


def test_only_so_many_offsets_are_left_alone_and_each_for_a_while() -> None:
    seen = SameAgain()
    for offset in range(3 * LEFT_ALONE_MAX):
        seen.leave_alone(offset, until_ms=100 + offset)
    assert not seen.is_left_alone(2 * LEFT_ALONE_MAX - 1, now_ms=0)
    last = 3 * LEFT_ALONE_MAX - 1
    assert seen.is_left_alone(last, now_ms=99 + last)
    assert not seen.is_left_alone(last, now_ms=100 + last)
