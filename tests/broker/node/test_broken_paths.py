"""Operations of the data path that raise half-way: no incomplete state is used, and no retry continues forever."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kraft.seam import InvariantError
from kraft.storage.producers.producer_state import ProducerStates
from kraft.wire.error_codes import ErrorCode
from tests.stages.plane import Plane, batch, error, run, values


def numbered(text: str, sequence: int) -> bytearray:
    return batch(text, producer_id=7, producer_epoch=0, base_sequence=sequence)


def fails_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the next append raise after its bytes were written, while its producer state is applied."""
    whole = ProducerStates.apply_batch

    def apply_batch(self: ProducerStates, *arguments: Any) -> None:
        monkeypatch.setattr(ProducerStates, "apply_batch", whole)
        raise ValueError("a bug")

    monkeypatch.setattr(ProducerStates, "apply_batch", apply_batch)


def test_an_append_that_raises_half_way_stops_the_node_and_its_log_is_intact_after_the_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        assert not error(await plane.produce("orders", numbered("a", 0)))
        fails_once(monkeypatch)
        with pytest.raises(ConnectionError):
            await plane.produce("orders", numbered("b", 1))
        await plane.until(lambda: not plane.is_up(1))
        ((name, failure),) = plane.cluster.failures
        assert name == "b1"
        assert isinstance(failure, InvariantError)
        assert "offset 1" in str(failure)
        plane.cluster.failures.clear()
        del plane.cluster.started["b1"]
        plane.cluster.start(1)
        await plane.cluster.wait_ready()
        again = await plane.produce("orders", numbered("b", 1))
        assert (again.error_code, again.base_offset) == (0, 1)
        assert values((await plane.fetch("orders", 0)).records) == [b"a", b"b"]

    run(test)


def test_an_append_that_raises_half_way_on_a_follower_stops_the_follower(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        assert not error(await plane.produce("orders", numbered("a", 0)))
        fails_once(monkeypatch)
        log = plane.partition("orders").log
        data = numbered("b", 1)
        data[:8] = (1).to_bytes(8, "big")
        data[12:16] = log.epochs.latest_epoch.to_bytes(4, "big")
        with pytest.raises(InvariantError, match="offset 1"):
            log.append_as_follower(data, now_ms=0)

    run(test)


def test_a_fetch_whose_bytes_never_stay_in_memory_gets_a_storage_error() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        for _ in range(20):
            assert not error(await plane.produce("orders", batch("x" * 300)))
        plane.world.kill("b1")  # file positions do not survive a restart, and are then read from the file
        del plane.cluster.started["b1"]
        plane.cluster.start(1)
        await plane.cluster.wait_ready()
        assert values((await plane.fetch("orders", 7)).records)
        disk = plane.cluster.node(1).broker.broker.seam.disk
        usual = disk._options
        disk._options = replace(usual, cold_read_one_in=1)
        row = await plane.fetch("orders", 7, max_wait_ms=500)
        assert error(row) is ErrorCode.KAFKA_STORAGE_ERROR
        disk._options = usual
        assert values((await plane.fetch("orders", 7)).records)
        assert plane.is_up(1)

    run(test)
