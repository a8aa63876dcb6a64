"""Injects random faults, one at a time and drawn from a seed, while an application under test runs.

Invariant: before the next fault begins the cluster is healthy again (every node up, every replica in sync). So a record
acknowledged with acks=all survives all of them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import trio

from kraft.seam import Random, sole_error
from kraft.sim.shapes import ClusterError

if TYPE_CHECKING:
    from kraft.sim.simulated_cluster import SimulatedCluster

PARTITION = "partition"
KINDS = ("kill", "stop", "lose power", "pause", PARTITION)


@asynccontextmanager
async def random_faults(
    cluster: SimulatedCluster, random: Random, kinds: Sequence[str], pause_s: float, lasting_s: float
) -> AsyncIterator[None]:
    """Inject random faults, one at a time; see SimulatedCluster.random_faults."""
    unknown = sorted(set(kinds) - set(KINDS))
    if unknown or not kinds:
        raise ClusterError(f"kinds of faults are {', '.join(KINDS)}; not {', '.join(unknown) or 'none'}")
    if len(cluster.node_ids) == 1:
        kinds = [kind for kind in kinds if kind != PARTITION]
        if not kinds:
            raise ClusterError("a cluster of one node has no links to cut")
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_go_on, cluster, random, kinds, pause_s, lasting_s)
            yield
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise sole_error(group) from None
    cluster.mend()


async def _go_on(
    cluster: SimulatedCluster, random: Random, kinds: Sequence[str], pause_s: float, lasting_s: float
) -> None:
    verbs: Mapping[str, Callable[[int], None]] = {
        "kill": cluster.kill,
        "stop": cluster.stop,
        "lose power": cluster.lose_power,
        "pause": cluster.pause,
        PARTITION: lambda node: cluster.partition({node}, set(cluster.node_ids) - {node}),
    }
    while True:
        cluster.mend()
        await cluster.wait_ready()
        await trio.sleep(_below(random, pause_s))
        node = cluster.node_ids[random.below(len(cluster.node_ids))]
        kind = kinds[random.below(len(kinds))]
        verbs[kind](node)
        await trio.sleep(_below(random, lasting_s))
        if kind == "stop":
            await cluster.wait_until(partial(_is_down, cluster, node))


def _is_down(cluster: SimulatedCluster, node: int) -> bool:
    return not cluster.is_running(node)


def _below(random: Random, seconds: float) -> float:
    """Return a random time above 0, up to this long."""
    return (1 + random.below(max(1, int(seconds * 1000)))) / 1000
