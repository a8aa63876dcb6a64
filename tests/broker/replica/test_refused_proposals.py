"""Rejected in-sync proposals in the cores' simulation: the leader proposes the change again, as a broker does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kraft.control import AlterPartition, Decision
from kraft.sim.cores.replicas import controller as controller_module
from kraft.sim.cores.replicas.world import ReplicaWorld
from kraft.wire.error_codes import ErrorCode

WITHIN_MS = 20_000


def test_an_idle_follower_joins_the_isr_although_its_first_proposal_was_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = ReplicaWorld(1)
    honest, refused = controller_module.decide, 0

    def refuse_once(image: Any, context: Any, command: Any) -> Decision:
        nonlocal refused
        if not isinstance(command, AlterPartition) or refused:
            return honest(image, context, command)
        refused += 1
        for silent in (2, 3):
            world.pause(world.brokers[silent], WITHIN_MS)
        decision = honest(image, context, command)
        rows = [replace(row, error_code=ErrorCode.INELIGIBLE_REPLICA) for row in decision.reply.partitions]
        return Decision(reply=replace(decision.reply, partitions=tuple(rows)))

    world.controller.start()
    world.start()
    assert world.run_until(world.is_whole, WITHIN_MS)
    world.kill(3)
    assert world.run_until(lambda: 3 not in world.state.isr, WITHIN_MS)
    monkeypatch.setattr(controller_module, "decide", refuse_once)
    world.start(3)
    assert world.run_until(lambda: bool(refused), WITHIN_MS)
    assert 3 not in world.state.isr
    assert world.run_until(lambda: 3 in world.state.isr, 500)
