"""Steps of the wall clock: what may depend on them (rolling segments, retention, expiry by time) and what must not."""

from __future__ import annotations

from tests.broker.api.fetch.test_fetch import write_in_transaction
from tests.stages.plane import EPOCH_MS, Plane, batch, error, run, three, values

HOUR_MS = 3_600_000


def segments(plane: Plane) -> int:
    return len(plane.partition("orders").log.segments)


async def produce(plane: Plane, text: str, **options: object) -> int:
    row = await plane.produce("orders", batch(text, **options))
    assert not error(row)
    return int(row.base_offset)


def test_a_log_append_time_log_rolls_after_a_clock_step_forward_and_accepts_appends_after_one_back() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", message_timestamp_type="LogAppendTime", segment_ms="600000")
        assert await produce(plane, "now") == 0
        plane.world.jump_clock("b1", HOUR_MS)
        assert await produce(plane, "an hour later") == 1
        assert segments(plane) == 2
        plane.world.jump_clock("b1", -3 * HOUR_MS)
        for number in range(2, 5):
            assert await produce(plane, f"two hours before {number}") == number
        found = await plane.fetch("orders", 0)
        assert len(values(found.records)) == 1
        assert len(values((await plane.fetch("orders", 1)).records)) == 4
        late = await plane.list_offset("orders", plane.partition("orders").log.segments[0].max_timestamp + 1)
        assert late.offset == 1, "the first record that is not older, whatever came after it"

    run(test)


def test_a_create_time_log_does_not_roll_after_a_step_of_the_brokers_clock() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", segment_ms="600000")
        await produce(plane, "a")
        plane.world.jump_clock("b1", HOUR_MS // 2)
        await produce(plane, "b")
        assert segments(plane) == 1

    run(test)


def test_after_a_clock_step_back_only_batches_with_far_future_timestamps_are_rejected() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        await produce(plane, "before")
        plane.world.jump_clock("b1", -2 * HOUR_MS)
        row = await plane.produce("orders", batch("ahead"))
        assert error(row).name == "INVALID_TIMESTAMP"
        assert await produce(plane, "right", timestamp=EPOCH_MS - 2 * HOUR_MS) == 1

    run(test)


def test_retention_by_time_deletes_after_a_clock_step_forward_and_not_after_a_step_back() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", retention_ms=str(HOUR_MS), segment_bytes="1048576")
        for _ in range(3):
            await produce(plane, "x" * 700_000)
        maintenance = plane.cluster.node(1).broker.broker.replicas.logs.maintenance
        plane.world.jump_clock("b1", -24 * HOUR_MS)
        await maintenance.apply_retention()
        assert (segments(plane), plane.partition("orders").log.log_start_offset) == (3, 0)
        plane.world.jump_clock("b1", 26 * HOUR_MS)
        await maintenance.apply_retention()
        log = plane.partition("orders").log
        assert (log.log_start_offset, log.log_end_offset) == (3, 3)
        assert await produce(plane, "after", timestamp=EPOCH_MS + 2 * HOUR_MS) == 3

    run(test)


def test_idle_producers_expire_after_a_clock_step_forward_but_not_after_a_step_back() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        await produce(plane, "a", producer_id=7, producer_epoch=0, base_sequence=0)
        write_in_transaction(plane, "orders", 9, 0, "open")
        entries = plane.partition("orders").log.producers.entries
        plane.world.jump_clock("b1", -2 * HOUR_MS)
        await plane.world.sleep_ms(3_000)
        assert set(entries) == {7, 9}
        again = await plane.produce("orders", batch("a", producer_id=7, producer_epoch=0, base_sequence=0))
        assert again.base_offset == 0 or error(again).name == "INVALID_TIMESTAMP"
        plane.world.jump_clock("b1", 5 * HOUR_MS)
        await plane.until(lambda: 7 not in entries, 5_000)
        assert 9 in entries

    run(test, combined=1, producer_id_expiration_ms="600000", producer_id_expiration_check_interval_ms="1000")


def test_a_clock_step_affects_neither_broker_sessions_nor_in_sync_sets() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        await produce(plane, "before")
        epoch = plane.partition("orders").state.leader_epoch
        for host in ("b1", "b2", "c101"):
            for step_ms in (24 * HOUR_MS, -48 * HOUR_MS):
                plane.world.jump_clock(host, step_ms)
                await plane.world.sleep_ms(12_000)
        state = plane.partition("orders").state
        assert (state.leader, state.leader_epoch, set(state.isr)) == (1, epoch, {1, 2, 3})
        row = await plane.produce("orders", batch("after", timestamp=EPOCH_MS - 24 * HOUR_MS))
        assert not error(row)

    three(test)
