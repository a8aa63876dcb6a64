"""A log that is damaged: its broker says so, others lead, and it is fetched anew once its folder is gone."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack_into, unpack_from

import pytest
from structlog.testing import capture_logs

from kraft.image.partitions import PartitionState
from kraft.image.registrations import LOST_DIRECTORY, RESERVED_DIRECTORIES
from kraft.seam import DiskError
from kraft.sim.world.filesystem import Directory, Inode
from kraft.storage.log_dir import CLEAN_SHUTDOWN
from kraft.wire.error_codes import ErrorCode
from tests.stages.plane import EPOCH_MS, Plane, batch, error, three, values
from tests.stages.replicas import new_leader, produce_numbers, settled


def log_file(plane: Plane, broker: str) -> Inode:
    """The first segment of the replica on this host."""
    found = folder(plane, broker).entries["orders-0"]
    assert isinstance(found, Directory)
    (name,) = [name for name in found.entries if name.endswith(".log")]
    segment = found.entries[name]
    assert isinstance(segment, Inode)
    return segment


def folder(plane: Plane, broker: str) -> Directory:
    data = plane.world.host(broker).root.entries["data"]
    assert isinstance(data, Directory)
    return data


def state_of(plane: Plane, broker_id: int = 2) -> PartitionState:
    topic = plane.cluster.node(broker_id).publisher.image.topics.get("orders")
    assert topic is not None
    return topic.partition(0)


async def crash_all_and_damage(plane: Plane, broker: str) -> None:
    """Kill every broker, and change a byte in the middle of one replica's log, with good batches after it."""
    for broker_id in plane.cluster.broker_ids:
        name = plane.cluster.name(broker_id)
        plane.world.kill(name)
        del plane.cluster.started[name]
    segment = log_file(plane, broker)
    segment.data[len(segment.data) // 2] ^= 0xFF
    await plane.world.sleep_ms(500)


def test_a_damaged_leader_is_replaced_and_comes_back_when_its_folder_was_moved_away() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1, min_insync_replicas="2")
        for number in range(40):
            assert not error(await plane.produce("orders", batch(f"{number}" * 50)))
        for broker_id in (2, 3, 1):
            await plane.stop(broker_id)
        del log_file(plane, "b1").data[-10:]  # of a log that was closed in order: found when it is opened
        plane.cluster.start(1)
        await plane.cluster.wait_ready()
        plane.cluster.node(1).broker.broker.replicas.logs.opener.want_urgently(plane.partition("orders", 1))
        await plane.until(lambda: state_of(plane, 1).directory_of(1) == LOST_DIRECTORY)
        assert state_of(plane, 1).leader == -1
        assert 1 not in (*state_of(plane, 1).isr, *state_of(plane, 1).elr)
        plane.cluster.start(2, 3)
        await plane.until(lambda: state_of(plane, 1).leader in (2, 3))
        leader = state_of(plane, 1).leader
        await plane.until(lambda: plane.partition("orders", leader).leader is not None)
        await plane.until(lambda: set(state_of(plane, 1).isr) == {2, 3})
        answer = await plane.produce("orders", batch("after"), broker_id=leader)
        assert (answer.error_code, answer.base_offset) == (0, 40)

        plane.world.kill("b1")
        folder(plane, "b1").entries.pop("orders-0")
        plane.cluster.start(1)
        await plane.until(lambda: set(state_of(plane).isr) == {1, 2, 3})
        directory = state_of(plane).directory_of(1)
        assert directory is not None
        assert directory.int >= RESERVED_DIRECTORIES
        assert plane.partition("orders", 1).log.log_end_offset == 41

    three(test)


def test_other_logs_of_the_directory_go_on() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        await plane.create_topic("others", leader=1)
        for number in range(40):
            assert not error(await plane.produce("orders", batch(f"{number}" * 50)))
            assert not error(await plane.produce("others", batch(f"{number}" * 50)))
        await crash_all_and_damage(plane, "b1")
        plane.cluster.start(1, 2, 3)
        await plane.cluster.wait_ready()
        await plane.until(lambda: state_of(plane).directory_of(1) == LOST_DIRECTORY)
        assert plane.partition("orders", 1).is_offline
        assert not plane.partition("others", 1).is_offline

        def others() -> PartitionState:
            topic = plane.cluster.node(2).publisher.image.topics.get("others")
            assert topic is not None
            return topic.partition(0)

        await plane.until(lambda: set(others().isr) == {1, 2, 3})

    three(test)


def test_a_broker_tells_its_loss_again_until_a_controller_hears_it() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        for number in range(40):
            assert not error(await plane.produce("orders", batch(f"{number}" * 50)))
        await crash_all_and_damage(plane, "b1")
        plane.world.kill("c101")
        plane.cluster.start(1, 2, 3)
        await plane.world.sleep_ms(3_000)
        plane.cluster.start(101)
        await plane.cluster.wait_ready(timeout_ms=30_000)
        await plane.until(lambda: state_of(plane).directory_of(1) == LOST_DIRECTORY)

    three(test)


def test_a_replica_in_a_newer_format_is_left_alone_and_the_others_lead() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        assert not error(await plane.produce("orders", batch("a")))
        await plane.stop(1)
        found = folder(plane, "b1").entries["orders-0"]
        assert isinstance(found, Directory)
        metadata = found.entries["partition.metadata"]
        assert isinstance(metadata, Inode)
        metadata.data[:] = bytes(metadata.data).replace(b"version: 0", b"version: 1")
        plane.cluster.start(1)
        await plane.cluster.wait_ready()
        await plane.until(lambda: state_of(plane).directory_of(1) == LOST_DIRECTORY)
        assert state_of(plane).leader in (2, 3)
        assert b"version: 1" in metadata.data

    three(test)


def test_what_was_acknowledged_before_a_disk_was_full_is_there_when_it_has_room_again() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        for number in range(5):
            assert not error(await plane.produce("orders", batch(f"{number}")))
        plane.world.disk_full("b1", True)
        client = await plane.another_client(1)
        try:
            refused = await plane.produce("orders", batch("refused"), client=client)
            assert error(refused).name in ("KAFKA_STORAGE_ERROR", "NOT_LEADER_OR_FOLLOWER")
        except ConnectionError:
            pass  # its only log directory is offline: the broker has stopped
        await plane.until(lambda: not plane.is_up(1))
        failures, plane.cluster.failures = plane.cluster.failures, []
        assert [type(failure) for _, failure in failures] == [DiskError]
        plane.world.disk_full("b1", False)
        del plane.cluster.started["b1"]
        plane.cluster.start(1)
        await plane.cluster.wait_ready()
        await plane.until(lambda: set(state_of(plane).isr) == {1, 2, 3})
        records = (await plane.fetch("orders", 0, broker_id=state_of(plane).leader)).records
        assert values(records)[:5] == [b"0", b"1", b"2", b"3", b"4"]

    three(test)


# a damaged header, which only a look at it can find


def with_wrong_length(data: bytearray, position: int) -> None:
    pack_into(">i", data, position + 8, 1 << 30)


def with_wrong_magic(data: bytearray, position: int) -> None:
    data[position + 16] = 9


Harm = Callable[[bytearray, int], None]
harms = pytest.mark.parametrize("harm", [with_wrong_length, with_wrong_magic])


def damage_batch(plane: Plane, broker: str, number: int, harm: Harm = with_wrong_length) -> None:
    """Harm the header of one batch in the replica's log, behind its broker's back."""
    data = log_file(plane, broker).data
    position = 0
    for _ in range(number):
        position += 12 + unpack_from(">i", data, position + 8)[0]
    harm(data, position)


async def damaged_and_in_sync(plane: Plane, harm: Harm = with_wrong_length) -> None:
    """The third of forty batches of broker 1's replica, closed in order, is harmed while the broker is down; then it is
    up and in sync again, for all that anybody knows."""
    await plane.create_topic("orders", leader=1)
    for number in range(40):  # so much that there is an entry in the index: the opening looks at the end only
        assert not error(await plane.produce("orders", batch(f"{number}" * 50)))
    await plane.stop(1)
    damage_batch(plane, "b1", 2, harm)
    plane.cluster.start(1)
    await plane.cluster.wait_ready()
    await plane.until(lambda: set(state_of(plane).isr) == {1, 2, 3})


async def only_the_replica_is_lost(plane: Plane) -> None:
    """Broker 1 runs, its replica of the topic has ended, and the others go on."""
    await plane.until(lambda: state_of(plane).directory_of(1) == LOST_DIRECTORY)
    assert plane.partition("orders", 1).is_offline
    assert plane.is_up(1)
    assert not plane.cluster.failures
    leader = await new_leader(plane, without=1)
    await produce_numbers(plane, 1, first=40, broker_id=leader)


@harms
@pytest.mark.parametrize("is_warm", [True, False])
def test_a_fetch_that_meets_a_damaged_header_ends_the_replica_and_not_the_broker(harm: Harm, is_warm: bool) -> None:
    async def test(plane: Plane) -> None:
        await damaged_and_in_sync(plane, harm)
        if is_warm:  # the files are open: the damage is met as the request is handled, not when they were opened
            assert values((await plane.fetch("orders", 0, partition_bytes=1)).records) == [b"0" * 50]
        answer = await plane.fetch("orders", 20)
        assert error(answer) is ErrorCode.KAFKA_STORAGE_ERROR
        await only_the_replica_is_lost(plane)

    three(test)


def test_a_follower_that_fetches_a_damaged_header_ends_the_leaders_replica_and_not_the_leader() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        await produce_numbers(plane, 40)
        await settled(plane)
        await plane.stop(3)
        folder(plane, "b3").entries.pop("orders-0")
        damage_batch(plane, "b1", 2)
        plane.cluster.start(3)
        await plane.until(lambda: state_of(plane).directory_of(1) == LOST_DIRECTORY)
        await only_the_replica_is_lost(plane)

    three(test)


def test_a_leader_whose_header_is_damaged_goes_on_where_nobody_else_could_lead() -> None:
    async def test(plane: Plane) -> None:
        await damaged_and_in_sync(plane)
        await plane.stop(3)
        await plane.stop(2)
        await plane.until(lambda: state_of(plane, 1).leader == 1)
        folder(plane, "b2").entries.pop("orders-0")
        plane.cluster.start(2)
        await plane.until(lambda: plane.partition("orders", 1).leader is not None)
        with capture_logs() as lines:
            for number in range(5):
                assert error(await plane.fetch("orders", 20)) is ErrorCode.KAFKA_STORAGE_ERROR
                await produce_numbers(plane, 1, first=40 + number)
            await plane.world.sleep_ms(60_000)
        told = [line["event"] for line in lines if line["log_level"] == "error"]
        assert len(told) == 1
        assert "no other replica could lead" in told[0]
        assert values((await plane.fetch("orders", 0, partition_bytes=200)).records)[0] == b"0" * 50
        await produce_numbers(plane, 1, first=45)
        assert state_of(plane, 1).isr == (1,), "who has not the batch never gets past it"
        plane.cluster.start(3)
        await plane.until(lambda: 3 in state_of(plane, 1).isr)
        assert error(await plane.fetch("orders", 20)) is ErrorCode.KAFKA_STORAGE_ERROR
        await plane.until(lambda: state_of(plane, 1).directory_of(1) == LOST_DIRECTORY)
        assert await new_leader(plane, without=1) == 3
        await settled(plane, 2, 3)
        assert not plane.cluster.failures

    three(test)


def set_largest_timestamp(plane: Plane) -> None:
    """As if a later batch than the damaged one had it: all headers are looked at."""
    plane.partition("orders", 1).log.segments[0].max_timestamp = EPOCH_MS + 1


def test_a_lookup_by_time_that_meets_a_damaged_header_ends_the_replica() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        await produce_numbers(plane, 40)
        await settled(plane)
        damage_batch(plane, "b1", 2)
        assert (await plane.list_offset("orders", EPOCH_MS)).offset == 0, "it stands before the damage"
        set_largest_timestamp(plane)
        answer = await plane.list_offset("orders", EPOCH_MS + 1)
        assert error(answer) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        await only_the_replica_is_lost(plane)

    three(test)


def test_a_lookup_by_time_is_told_of_a_damaged_header_where_nobody_else_could_lead() -> None:
    async def test(plane: Plane) -> None:
        await damaged_and_in_sync(plane)
        await plane.stop(2)
        await plane.stop(3)
        await plane.until(lambda: state_of(plane, 1).leader == 1)
        await plane.until(lambda: plane.partition("orders", 1).leader is not None)
        assert (await plane.list_offset("orders", EPOCH_MS)).offset == 0
        set_largest_timestamp(plane)
        assert error(await plane.list_offset("orders", EPOCH_MS + 1)) is ErrorCode.CORRUPT_MESSAGE
        assert not plane.partition("orders", 1).is_offline
        assert (await plane.list_offset("orders", EPOCH_MS)).offset == 0

    three(test)


def test_a_log_that_cannot_be_opened_is_not_promised_a_leader_where_there_is_none() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", factor=1, leader=1)
        await produce_numbers(plane, 40)
        await plane.stop(1)
        damage_batch(plane, "b1", 0)
        with capture_logs() as lines:
            plane.cluster.start(1)
            await plane.cluster.wait_ready()
            plane.cluster.node(1).broker.broker.replicas.logs.opener.want_urgently(plane.partition("orders", 1))
            await plane.until(lambda: plane.partition("orders", 1).is_offline)
        told = [line["event"] for line in lines if line["log_level"] == "error"]
        assert told == [
            "log is damaged, and no other replica could lead: restore its files while the broker is stopped"
        ]

    three(test)


@harms
def test_a_truncation_that_meets_a_damaged_header_ends_the_replica_and_not_the_broker(harm: Harm) -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        await produce_numbers(plane, 40)
        for other in ("b2", "b3", "c101"):
            plane.world.partition("b1", other)
        for number in range(7):
            await plane.produce("orders", batch(f"lost {number}"), acks=1)
        await new_leader(plane, without=1)
        damage_batch(plane, "b1", 2, harm)
        plane.world.heal_all()
        await only_the_replica_is_lost(plane)

    three(test)


@harms
def test_a_first_header_that_is_damaged_ends_the_replica_when_the_log_is_opened(harm: Harm) -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        await produce_numbers(plane, 40)
        await plane.stop(1)
        damage_batch(plane, "b1", 0, harm)
        plane.cluster.start(1)
        await plane.cluster.wait_ready()
        await only_the_replica_is_lost(plane)

    three(test)


def clean_shutdown_is_noted(plane: Plane, broker: str) -> bool:
    return CLEAN_SHUTDOWN in folder(plane, broker).entries


def test_a_broker_whose_log_was_found_damaged_while_it_was_open_does_not_say_that_it_was_closed_cleanly() -> None:
    async def test(plane: Plane) -> None:
        await damaged_and_in_sync(plane)
        assert error(await plane.fetch("orders", 20)) is ErrorCode.KAFKA_STORAGE_ERROR
        await only_the_replica_is_lost(plane)
        await plane.stop(1)
        assert not clean_shutdown_is_noted(plane, "b1")
        plane.cluster.start(1)
        await plane.cluster.wait_ready()
        await plane.until(lambda: plane.partition("orders", 1).is_offline)  # its recovery has found the damage
        await plane.stop(2)
        assert clean_shutdown_is_noted(plane, "b2"), "the others do"

    three(test)


def test_a_log_that_could_not_be_opened_at_all_is_as_cleanly_closed_as_before() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        await produce_numbers(plane, 40)
        await plane.stop(1)
        damage_batch(plane, "b1", 0)
        plane.cluster.start(1)
        await plane.cluster.wait_ready()
        await only_the_replica_is_lost(plane)
        await plane.stop(1)
        assert clean_shutdown_is_noted(plane, "b1")

    three(test)
