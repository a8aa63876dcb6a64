"""The eye on a running node: what its spies keep in mind ends with what they watch."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.controller.command_queue import NOBODY, _Asked
from kraft.sim.cluster.cluster import SimCluster
from tests.stages.checked_cluster import play


def test_a_decision_that_could_not_be_carried_out_is_not_watched_any_more() -> None:
    async def story(cluster: SimCluster) -> None:
        eye = cluster.watch.nodes[cluster.watch.active_controller or 0]
        controller = eye.node.controller
        assert controller is not None
        nothing: Any = None
        with pytest.raises(AttributeError):
            controller.line._carry_out(_Asked(nothing, NOBODY), nothing, 0)
        assert not eye._tags

    assert not play(story)
