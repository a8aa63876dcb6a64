"""A broker that the controller removes from its in-sync sets in slices: until the last slice is done, leaders neither
wait for it nor propose it again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from kraft.control.brokers import fencing, heartbeats
from kraft.wire.error_codes import ErrorCode
from kraft.wire.rpc.controller_messages import AlterPartitionRequest
from tests.stages.plane import Plane, batch, error, run, three

PARTITIONS = 60
End = Callable[[Plane], Awaitable[None]]


def _count_proposals(plane: Plane, broker_id: int) -> list[Any]:
    """Count the in-sync proposals of this broker from now on."""
    channel, proposed = plane.cluster.node(broker_id).broker.broker.controller, []
    ask = channel.request

    async def count(request: Any, **options: Any) -> Any:
        if isinstance(request, AlterPartitionRequest):
            proposed.extend(request.partitions)
        return await ask(request, **options)

    channel.request = count  # type: ignore[method-assign]
    return proposed


async def _dies(plane: Plane) -> None:
    plane.world.kill("b3")


async def _stops(plane: Plane) -> None:
    await plane.stop(3)


@pytest.mark.parametrize("end", [_dies, _stops])
def test_no_leader_proposes_a_broker_that_the_controller_is_removing_from_in_sync_sets(
    end: End, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fencing, "FENCE_CHANGES_PER_SLICE_MAX", 2)
    monkeypatch.setattr(heartbeats, "leave_partitions", partial(heartbeats.leave_partitions, limit=2))

    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", PARTITIONS, leader=1)
        await plane.world.sleep_ms(2_000)
        proposed = _count_proposals(plane, 1)
        await end(plane)
        states = [plane.partition("orders", 1, index) for index in range(PARTITIONS)]
        await plane.until(lambda: all(one.state is not None and one.state.isr == (1, 2) for one in states))
        await plane.world.sleep_ms(2_000)
        assert proposed == []
        plane.cluster.start(3)
        await plane.until(lambda: all(one.state is not None and len(one.state.isr) == 3 for one in states))

    three(test)


@pytest.mark.parametrize("brokers", [2, 3])
def test_an_append_does_not_wait_for_a_broker_that_the_controller_is_removing_in_slices(
    brokers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the removal, nothing happens in the partition that would make its leader check again."""
    monkeypatch.setattr(fencing, "FENCE_CHANGES_PER_SLICE_MAX", 2)

    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", PARTITIONS, leader=1)
        await plane.world.sleep_ms(2_000)
        assert error(await plane.produce("orders", batch("before"))) is ErrorCode.NONE
        plane.world.kill("b2")
        assert error(await plane.produce("orders", batch("after"), timeout_ms=5_000)) is ErrorCode.NONE

    run(test, controllers=1, brokers=brokers)


def test_a_follower_removed_by_an_abandoned_plan_is_proposed_by_the_timer() -> None:
    """A plan to remove a broker ends with its controller: the next controller finds the broker alive, and never fences
    it."""

    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        await plane.world.sleep_ms(1_000)
        leading = plane.partition("orders", 1)
        state = leading.state
        assert state is not None
        assert leading.leader is not None
        proposed = _count_proposals(plane, 1)
        leading.keep_leading(state._replace(isr=(1, 2), partition_epoch=state.partition_epoch + 1))
        await plane.world.sleep_ms(1_000)
        assert proposed == []
        leading.check_lag()
        await plane.world.sleep_ms(1_000)
        assert [member for member, _ in proposed[0].new_isr] == [1, 2, 3]

    three(test)


def test_a_stopping_broker_waits_until_the_new_leaders_lead(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new leader that has received the metadata may first have to apply very many other roles."""

    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=3)
        follower = plane.cluster.node(1).broker.broker.replicas
        with monkeypatch.context() as patch:
            patch.setattr(follower.roles.turns._turns, "start", lambda: None)
            plane.cluster.node(3).request_stop()
            await plane.until(lambda: plane.leader("orders") == 1)
            await plane.world.sleep_ms(1_000)
            assert not plane.partition("orders", 1).leads
            assert plane.is_up(3)
        follower.roles.turns._turns.start()
        await plane.until(lambda: not plane.is_up(3))

    three(test)
