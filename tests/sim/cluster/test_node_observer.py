"""Test that the node observer drops what it recorded about a decision of the controller when the decision fails."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.controller.command_queue import NO_WAITER, _QueuedCommand
from kraft.sim.cluster.cluster import SimCluster
from tests.stages.checked_cluster import play


def test_the_node_observer_drops_a_decision_that_failed() -> None:
    async def story(cluster: SimCluster) -> None:
        observer = cluster.watch.nodes[cluster.watch.active_controller or 0]
        controller = observer.node.controller
        assert controller is not None
        nothing: Any = None
        with pytest.raises(AttributeError):
            controller.queue._carry_out(_QueuedCommand(nothing, NO_WAITER), nothing, 0)
        assert not observer._tags

    assert not play(story)
