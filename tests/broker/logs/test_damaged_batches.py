"""Batches of a log whose bytes change on the device after they were written. No reader accepts them, and the replica
goes offline if another replica has the batches intact.
"""

from __future__ import annotations

from struct import unpack_from
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from kraft.broker.api.list_offsets import DEBUG_REPLICA
from kraft.broker.logs.damaged_logs import NEXT_REPORT_AFTER_MS
from kraft.broker.logs.repeated_read_checks import RepeatedReadChecks
from kraft.broker.partition.partition_states import LogState
from kraft.broker.partition.repeated_reads import READERS_MAX, REPEATS_MAX, SKIPPED_OFFSETS_MAX, RepeatedReads
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
REFUSAL = "CORRUPT_MESSAGE: orders-0: the batch at offset 7 fails its CRC-32C. It is fetched again"


def flip_bit(plane: Plane, broker: str, number: int, at: int = BATCH_HEADER_BYTES) -> None:
    """Flip one bit in the file, at this number of bytes after the beginning of the batch."""
    data = log_file(plane, broker).data
    position = 0
    for _ in range(number):
        position += 12 + unpack_from(">i", data, position + 8)[0]
    data[position + at] ^= 1 << 3


async def leader_with_damaged_batch(plane: Plane, *, at: int = 7, **topic: Any) -> None:
    await plane.create_topic("orders", leader=1, **topic)
    for number in range(COUNT):
        row = await plane.produce("orders", batch(f"{number}", timestamp=EPOCH_MS + number))
        assert not error(row), row
    if plane.partition("orders", 1).state.replicas != (1,):
        await settled(plane)
    flip_bit(plane, "b1", at)


async def damaged_leader_alone_in_sync(plane: Plane, **topic: Any) -> None:
    """Create a leader with a damaged batch whose replica is the only one in sync."""
    await leader_with_damaged_batch(plane, **topic)
    for other in (3, 2):
        await plane.stop(other)
    await plane.until(lambda: state_of(plane, 1).isr == (1,))


def reads(plane: Plane) -> RepeatedReadChecks:
    return plane.cluster.node(1).broker.broker.replicas.repeated_read_checks


def fetch_repeatedly(plane: Plane, offset: int = 7) -> None:
    """Fetch the same bytes repeatedly until the broker checks them for damage."""
    for _ in range(1 + REPEATS_MAX):
        reads(plane).bytes_sent(plane.partition("orders", 1), -5, offset, 1)


async def read_all(plane: Plane, *, refusals_max: int = 20) -> tuple[list[bytes | None], int]:
    """Read like a consumer from the beginning of the log. Return the records, and how often a damaged batch was
    rejected."""
    servers = ",".join(f"{plane.cluster.name(broker)}:{BROKER_PORT}" for broker in plane.cluster.broker_ids)
    found: list[bytes | None] = []
    rejected: list[str] = []
    with trio.fail_after(60):
        async with Consumer(bootstrap_servers=servers, seam=plane.world.node("reader")) as consumer:
            await consumer.assign([PLACE], at="earliest")
            while len(found) < COUNT and len(rejected) < refusals_max:
                try:
                    found += [record.value for record in await consumer.poll()]
                except KafkaError as refused:
                    rejected.append(str(refused))
    assert all(one.startswith(REFUSAL) for one in rejected), rejected
    return found, len(rejected)


def test_a_damaged_leader_goes_offline_and_consumers_read_everything_from_another_replica() -> None:
    async def test(plane: Plane) -> None:
        await leader_with_damaged_batch(plane)
        found, refusals = await read_all(plane)
        assert found == [b"%d" % number for number in range(COUNT)]
        assert 0 < refusals <= 2 * REPEATS_MAX
        await plane.until(lambda: state_of(plane).directory_of(1) == LOST_DIRECTORY)
        assert plane.partition("orders", 1).is_offline
        assert plane.is_up(1)

    three(test)


def test_a_follower_does_not_copy_a_damaged_batch_and_the_leaders_replica_goes_offline() -> None:
    async def test(plane: Plane) -> None:
        await leader_with_damaged_batch(plane)
        await plane.stop(3)
        folder(plane, "b3").entries.pop("orders-0")
        plane.cluster.start(3)
        await plane.until(lambda: state_of(plane).directory_of(1) == LOST_DIRECTORY)
        assert await new_leader(plane, without=1) == 2
        await settled(plane, 2, 3)
        assert contents(plane, 3) == contents(plane, 2)
        assert len(contents(plane, 3)) == COUNT

    three(test)


def test_undamaged_records_of_a_damaged_log_stay_readable_if_no_other_replica_is_in_sync() -> None:
    async def test(plane: Plane) -> None:
        await leader_with_damaged_batch(plane)
        for other in (2, 3):
            await plane.stop(other)
        await plane.until(lambda: state_of(plane, 1).isr == (1,))
        found, refusals = await read_all(plane, refusals_max=4 * REPEATS_MAX)
        assert found == [b"%d" % number for number in range(7)]
        assert refusals == 4 * REPEATS_MAX
        assert not plane.partition("orders", 1).is_offline
        await produce_numbers(plane, 1, first=COUNT)

    three(test)


def test_a_damaged_replica_stays_online_until_the_broker_of_an_elr_member_is_back() -> None:
    async def test(plane: Plane) -> None:
        await damaged_leader_alone_in_sync(plane, min_insync_replicas="2")
        assert state_of(plane, 1).elr
        found, refusals = await read_all(plane, refusals_max=4 * REPEATS_MAX)
        assert found == [b"%d" % number for number in range(7)]
        assert refusals == 4 * REPEATS_MAX
        assert not plane.partition("orders", 1).is_offline
        assert state_of(plane, 1).leader == 1
        plane.cluster.start(2)
        await plane.until(lambda: 2 in state_of(plane, 1).isr)
        found, refusals = await read_all(plane)
        assert found == [b"%d" % number for number in range(COUNT)]
        assert 0 < refusals <= 2 * REPEATS_MAX
        assert state_of(plane, 1).directory_of(1) == LOST_DIRECTORY

    three(test)


def test_only_isr_or_elr_members_on_active_brokers_count_as_possible_leaders_for_a_damaged_replica() -> None:
    async def test(plane: Plane) -> None:
        await leader_with_damaged_batch(plane, min_insync_replicas="2")
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
        partition.follow(partition.state._replace(isr=(1, 2), elr=()))  # this broker has not applied the fencing yet
        assert not damaged_logs.others_can_lead(partition)

    three(test)


def test_the_only_in_sync_replica_stays_online_if_it_was_fenced_before_its_damage_was_found() -> None:
    async def test(plane: Plane) -> None:
        await damaged_leader_alone_in_sync(plane)
        partition = plane.partition("orders", 1)
        fetch_repeatedly(plane)
        assert partition.state is not None
        partition.follow(partition.state._replace(leader=NO_LEADER))
        await plane.until(lambda: not reads(plane)._under_way)
        assert not partition.is_offline

    three(test)


@pytest.mark.parametrize(("begins_ms", "ends_ms"), [(0, 10), (10, 1_000)])
def test_a_log_that_is_being_truncated_is_not_checked_for_damage(begins_ms: int, ends_ms: int) -> None:
    """The truncation may be about to remove the damaged bytes."""

    async def test(plane: Plane) -> None:
        await leader_with_damaged_batch(plane)
        plane.world.slow_disk("b1", 200)
        partition = plane.partition("orders", 1)
        fetch_repeatedly(plane)
        if begins_ms:
            await plane.world.sleep_ms(begins_ms)
        partition.truncation_begun()
        await plane.world.sleep_ms(ends_ms - begins_ms)
        partition.log_state = LogState.OPEN
        await plane.world.sleep_ms(1_000)
        assert not partition.is_offline
        fetch_repeatedly(plane)
        await plane.until(lambda: partition.is_offline)

    three(test)


@pytest.mark.slow
def test_damage_of_a_replica_that_must_stay_online_is_logged_once_per_interval() -> None:
    async def test(plane: Plane) -> None:
        await damaged_leader_alone_in_sync(plane)
        with capture_logs() as lines:
            for _ in range(2):
                fetch_repeatedly(plane)
                assert reads(plane)._under_way
                await plane.until(lambda: not reads(plane)._under_way)
                for _ in range(20):
                    fetch_repeatedly(plane)
                    assert not reads(plane)._under_way
                await plane.world.sleep_ms(2 * NEXT_REPORT_AFTER_MS)
        logged = [line for line in lines if "log is damaged, and no other replica could lead" in line["event"]]
        assert [line["log_level"] for line in logged] == ["error"] * 2
        assert not any("leader" in line["event"] for line in logged)

    three(test)


@pytest.mark.parametrize("at", [6, 7, 12, 15])
def test_a_batch_with_a_changed_offset_or_epoch_is_not_copied_and_takes_the_leader_offline(at: int) -> None:
    """No CRC covers the offset and the epoch of a batch. The follower rejects the batch, or fetches it again and
    again."""

    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        await produce_numbers(plane, COUNT)
        await settled(plane)
        flip_bit(plane, "b1", 7, at)
        await plane.stop(3)
        folder(plane, "b3").entries.pop("orders-0")
        plane.cluster.start(3)
        await plane.until(lambda: state_of(plane).directory_of(1) == LOST_DIRECTORY)
        await new_leader(plane, without=1)
        await settled(plane, 2, 3)
        assert contents(plane, 3) == contents(plane, 2)
        assert len(contents(plane, 3)) == COUNT

    three(test)


def test_damage_far_behind_a_followers_fetch_offset_is_found() -> None:
    """The follower rejects a whole response if one batch in it is damaged, so it fetches the same bytes again."""

    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        for number in range(8):
            assert not error(await plane.produce("orders", batch(b"%d" % number * 500_000)))
        await settled(plane)
        flip_bit(plane, "b1", 7)
        await plane.stop(3)
        folder(plane, "b3").entries.pop("orders-0")
        plane.cluster.start(3)
        await plane.until(lambda: state_of(plane).directory_of(1) == LOST_DIRECTORY)
        await settled(plane, 2, 3)

    three(test, replica_fetch_max_bytes=str(2**23))


# timestamp lookups


def test_a_damaged_batch_found_by_a_timestamp_lookup_takes_the_replica_offline_if_others_can_lead() -> None:
    async def test(plane: Plane) -> None:
        await leader_with_damaged_batch(plane)
        assert (await plane.list_offset("orders", EPOCH_MS + 3)).offset == 3
        assert error(await plane.list_offset("orders", EPOCH_MS + 7)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        await plane.until(lambda: state_of(plane).directory_of(1) == LOST_DIRECTORY)
        leader = await new_leader(plane, without=1)
        assert (await plane.list_offset("orders", EPOCH_MS + 7, broker_id=leader)).offset == 7

    three(test)


@pytest.mark.parametrize("factor", [1, 3])
def test_a_timestamp_lookup_gets_an_error_for_a_damaged_batch_if_no_other_replica_could_lead(
    factor: int,
) -> None:
    async def test(plane: Plane) -> None:
        await (leader_with_damaged_batch(plane, factor=1) if factor == 1 else damaged_leader_alone_in_sync(plane))
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


def test_a_timestamp_lookup_does_not_read_a_log_that_is_being_truncated() -> None:
    async def test(plane: Plane) -> None:
        await leader_with_damaged_batch(plane)
        partition = plane.partition("orders", 1)
        assert partition.state is not None
        partition.follow(partition.state._replace(leader=2))
        partition.truncation_begun()
        plane.world.slow_disk("b1", 200)
        rejected: list[ErrorCode] = []

        async def ask() -> None:
            rejected.append(error(await plane.list_offset("orders", EPOCH_MS + 7, replica_id=DEBUG_REPLICA)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await plane.world.sleep_ms(100)
            partition.log_state = LogState.OPEN
        assert rejected == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert not partition.is_offline

    three(test)


# when repeated reads are suspicious


@pytest.mark.parametrize("reader", [3, -17])
def test_a_reader_that_repeats_an_offset_triggers_a_check_and_an_advancing_reader_does_not(reader: int) -> None:
    seen = RepeatedReads()
    assert not any(seen.is_suspicious(reader, offset) for offset in range(100))
    again = [seen.is_suspicious(reader, 99) for _ in range(2 * REPEATS_MAX)]
    assert again == [(number + 1) % REPEATS_MAX == 0 for number in range(2 * REPEATS_MAX)]


def test_a_consumer_that_fetches_ahead_and_then_repeats_an_offset_triggers_a_damage_check() -> None:
    def rejected(reader: int) -> bool:
        seen = RepeatedReads()
        return any(seen.is_suspicious(reader, offset) for end in range(50, 60) for offset in (7, end))

    assert rejected(-1)
    assert not rejected(1)


def test_repeated_reads_are_counted_per_reader_and_a_bounded_number_of_consumers_is_remembered() -> None:
    seen = RepeatedReads()
    assert not any(seen.is_suspicious(-1 - session, 5) for session in range(10 * READERS_MAX))
    assert len(seen._given) <= READERS_MAX


@pytest.mark.parametrize("stuck", [3, -1_000])
def test_a_stuck_reader_is_detected_among_the_maximum_number_of_remembered_readers(stuck: int) -> None:
    seen = RepeatedReads()
    noticed = False
    for offset in range(1 + REPEATS_MAX):
        for session in range(1, READERS_MAX):
            assert not seen.is_suspicious(-session, offset)
        noticed = seen.is_suspicious(stuck, 5)
    assert noticed


def test_when_too_many_readers_are_remembered_the_longest_inactive_consumer_is_dropped() -> None:
    seen = RepeatedReads()
    readers = (2, 3, *(-session for session in range(1, READERS_MAX - 1)))
    for reader in (*readers, -1):
        seen.is_suspicious(reader, 5)
    seen.is_suspicious(-500, 5)
    assert set(readers) - set(seen._given) == {-2}


def test_damage_checks_are_skipped_at_a_bounded_number_of_offsets_and_for_a_limited_time() -> None:
    seen = RepeatedReads()
    for offset in range(3 * SKIPPED_OFFSETS_MAX):
        seen.skip_until(offset, until_ms=100 + offset)
    assert not seen.is_skipped(2 * SKIPPED_OFFSETS_MAX - 1, now_ms=0)
    last = 3 * SKIPPED_OFFSETS_MAX - 1
    assert seen.is_skipped(last, now_ms=99 + last)
    assert not seen.is_skipped(last, now_ms=100 + last)
