"""Damaged logs: the broker reports them, other replicas lead, and the log is fetched again after its folder was
removed.
"""

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
    """Return the first segment file of the replica on this host."""
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
    """Kill every broker, and change a byte in the middle of one replica's log, with intact batches after it."""
    for broker_id in plane.cluster.broker_ids:
        name = plane.cluster.name(broker_id)
        plane.world.kill(name)
        del plane.cluster.started[name]
    segment = log_file(plane, broker)
    segment.data[len(segment.data) // 2] ^= 0xFF
    await plane.world.sleep_ms(500)


def test_a_damaged_leader_is_replaced_and_is_in_sync_again_after_its_folder_was_moved_away() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1, min_insync_replicas="2")
        for number in range(40):
            assert not error(await plane.produce("orders", batch(f"{number}" * 50)))
        for broker_id in (2, 3, 1):
            await plane.stop(broker_id)
        del log_file(plane, "b1").data[-10:]  # found when a cleanly closed log is opened
        plane.cluster.start(1)
        await plane.cluster.wait_ready()
        plane.cluster.node(1).broker.broker.replicas.logs.opener.request_urgently(plane.partition("orders", 1))
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


def test_other_logs_of_the_directory_of_a_damaged_log_keep_working() -> None:
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


def test_a_broker_repeats_the_report_of_a_lost_replica_until_a_controller_acknowledges_it() -> None:
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


def test_a_log_in_a_newer_format_is_not_changed_and_other_replicas_lead() -> None:
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


def test_no_acknowledged_record_is_lost_when_a_full_disk_has_room_again() -> None:
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
            pass  # broker 1 has stopped, because its only log directory is offline
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


# a damaged header that is found only when it is read


def with_wrong_length(data: bytearray, position: int) -> None:
    pack_into(">i", data, position + 8, 1 << 30)


def with_wrong_magic(data: bytearray, position: int) -> None:
    data[position + 16] = 9


Harm = Callable[[bytearray, int], None]
harms = pytest.mark.parametrize("harm", [with_wrong_length, with_wrong_magic])


def damage_batch(plane: Plane, broker: str, number: int, harm: Harm = with_wrong_length) -> None:
    """Damage the header of one batch in the replica's log, directly in the file."""
    data = log_file(plane, broker).data
    position = 0
    for _ in range(number):
        position += 12 + unpack_from(">i", data, position + 8)[0]
    harm(data, position)


async def damaged_and_in_sync(plane: Plane, harm: Harm = with_wrong_length) -> None:
    """Damage the third of forty batches in broker 1's cleanly closed replica while the broker is down. Then start the
    broker and wait until the replica is in sync; the damage is not found by then."""
    await plane.create_topic("orders", leader=1)
    for number in range(40):  # large enough for an entry in the index, because opening checks only the end of the log
        assert not error(await plane.produce("orders", batch(f"{number}" * 50)))
    await plane.stop(1)
    damage_batch(plane, "b1", 2, harm)
    plane.cluster.start(1)
    await plane.cluster.wait_ready()
    await plane.until(lambda: set(state_of(plane).isr) == {1, 2, 3})


async def only_the_replica_is_lost(plane: Plane) -> None:
    """Check that broker 1 runs, that its replica of the topic is offline, and that its other replicas keep working."""
    await plane.until(lambda: state_of(plane).directory_of(1) == LOST_DIRECTORY)
    assert plane.partition("orders", 1).is_offline
    assert plane.is_up(1)
    assert not plane.cluster.failures
    leader = await new_leader(plane, without=1)
    await produce_numbers(plane, 1, first=40, broker_id=leader)


@harms
@pytest.mark.parametrize("is_warm", [True, False])
def test_a_damaged_header_found_by_a_fetch_takes_the_replica_offline_and_not_the_broker(
    harm: Harm, is_warm: bool
) -> None:
    async def test(plane: Plane) -> None:
        await damaged_and_in_sync(plane, harm)
        if is_warm:  # the files are open, so the damage is found while the request is handled, not at opening
            assert values((await plane.fetch("orders", 0, partition_bytes=1)).records) == [b"0" * 50]
        answer = await plane.fetch("orders", 20)
        assert error(answer) is ErrorCode.KAFKA_STORAGE_ERROR
        await only_the_replica_is_lost(plane)

    three(test)


def test_a_damaged_header_found_by_a_follower_fetch_takes_the_leaders_replica_offline() -> None:
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


def test_a_leader_with_a_damaged_header_stays_online_if_no_other_replica_could_lead() -> None:
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
        logged = [line["event"] for line in lines if line["log_level"] == "error"]
        assert len(logged) == 1
        assert "no other replica could lead" in logged[0]
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
    """Change the index so that it claims the largest timestamp for a later batch. A timestamp lookup then reads all
    headers."""
    plane.partition("orders", 1).log.segments[0].max_timestamp = EPOCH_MS + 1


def test_a_damaged_header_found_by_a_timestamp_lookup_takes_the_replica_offline() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        await produce_numbers(plane, 40)
        await settled(plane)
        damage_batch(plane, "b1", 2)
        assert (await plane.list_offset("orders", EPOCH_MS)).offset == 0, "it is before the damage"
        set_largest_timestamp(plane)
        answer = await plane.list_offset("orders", EPOCH_MS + 1)
        assert error(answer) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        await only_the_replica_is_lost(plane)

    three(test)


def test_a_timestamp_lookup_gets_an_error_for_a_damaged_header_if_no_other_replica_could_lead() -> None:
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


def test_the_log_line_for_a_log_that_cannot_be_opened_names_no_other_leader_if_there_is_none() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", factor=1, leader=1)
        await produce_numbers(plane, 40)
        await plane.stop(1)
        damage_batch(plane, "b1", 0)
        with capture_logs() as lines:
            plane.cluster.start(1)
            await plane.cluster.wait_ready()
            plane.cluster.node(1).broker.broker.replicas.logs.opener.request_urgently(plane.partition("orders", 1))
            await plane.until(lambda: plane.partition("orders", 1).is_offline)
        logged = [line["event"] for line in lines if line["log_level"] == "error"]
        assert logged == [
            "log is damaged, and no other replica could lead: restore its files while the broker is stopped"
        ]

    three(test)


@harms
def test_a_damaged_header_found_by_a_truncation_takes_the_replica_offline_and_not_the_broker(harm: Harm) -> None:
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
def test_a_damaged_first_header_takes_the_replica_offline_when_its_log_is_opened(harm: Harm) -> None:
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


def test_a_broker_that_found_an_open_log_damaged_writes_no_clean_shutdown_file() -> None:
    async def test(plane: Plane) -> None:
        await damaged_and_in_sync(plane)
        assert error(await plane.fetch("orders", 20)) is ErrorCode.KAFKA_STORAGE_ERROR
        await only_the_replica_is_lost(plane)
        await plane.stop(1)
        assert not clean_shutdown_is_noted(plane, "b1")
        plane.cluster.start(1)
        await plane.cluster.wait_ready()
        await plane.until(lambda: plane.partition("orders", 1).is_offline)  # recovery of the log has found the damage
        await plane.stop(2)
        assert clean_shutdown_is_noted(plane, "b2"), "the others do"

    three(test)


def test_a_log_that_could_not_be_opened_does_not_prevent_the_clean_shutdown_file() -> None:
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
