"""Sends requests of an administrator at the times of a plan, for clients that have one request in flight at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from kraft.client.admin import Admin
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.nemesis.plan import PlannedOperation

REQUEST_TIMEOUT_MS = 2_000


async def make_requests(
    cluster: SimCluster,
    client: str,
    work: Iterable[PlannedOperation],
    request: Callable[[SimCluster, Admin, PlannedOperation], Awaitable[None]],
) -> None:
    """Call `request` for each operation in order, none before its planned time, on the host of this client."""
    world, start_ns = cluster.world, cluster.world.now_ns
    seam, servers = world.node(client), cluster.shape.bootstrap_servers
    async with Admin(bootstrap_servers=servers, timeout_ms=REQUEST_TIMEOUT_MS, seam=seam) as admin:
        for operation in work:
            await world.sleep_until_ns(start_ns + operation.at_ms * 1_000_000)
            await request(cluster, admin, operation)
