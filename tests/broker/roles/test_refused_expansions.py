"""An idle follower that the controller rejected is proposed for the in-sync set again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kraft.wire.error_codes import ErrorCode
from kraft.wire.rpc.controller_messages import AlteredPartition, AlterPartitionRequest, AlterPartitionResponse
from tests.broker.logs.test_damaged_logs import state_of
from tests.stages.plane import Plane, three

REFUSALS = 3


def test_an_idle_follower_joins_the_isr_after_the_controller_first_rejected_it() -> None:
    """The controller rejects the follower while it is still fencing the follower's previous incarnation."""

    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        await plane.stop(3)
        await plane.until(lambda: state_of(plane, 1).isr == (1, 2))
        node = plane.cluster.node(1).broker
        assert node is not None
        channel, refused = node.broker.controller, 0
        ask = channel.request

        async def refuse(request: Any, **options: Any) -> Any:
            nonlocal refused
            if not isinstance(request, AlterPartitionRequest) or refused == REFUSALS:
                return await ask(request, **options)
            refused += 1
            rows = [replace(row, error_code=ErrorCode.INELIGIBLE_REPLICA) for row in _rows(request)]
            return AlterPartitionResponse(partitions=tuple(rows))

        channel.request = refuse  # type: ignore[method-assign]
        plane.cluster.start(3)
        await plane.until(lambda: sorted(state_of(plane, 1).isr) == [1, 2, 3], 5_000)
        assert refused == REFUSALS

    three(test)


def _rows(request: AlterPartitionRequest) -> list[Any]:
    return [AlteredPartition(topic_id=row.topic_id, partition_id=row.partition_id) for row in request.partitions]
