"""`open_seam`: provides a node's real outside world as a context manager."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from kraft.runtime.clock import RealClock, RealRandom
from kraft.runtime.disk import RealDisk
from kraft.runtime.driver import Driver
from kraft.runtime.links import LinkPolicies
from kraft.runtime.network import RealNetwork
from kraft.seam import DialMap, Seam, sole_error

if TYPE_CHECKING:
    from kraft.runtime.disk_faults import DiskFaults

SWEEP_INTERVAL_MS_MAX = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSettings:
    """Settings of a node's runtime."""

    connections_idle_ms: int = 600_000
    """Milliseconds after which a connection that received nothing is closed (connections.max.idle.ms); -1: never."""
    listen_backlog: int = 1024
    offload_threads: int = 8
    """Number of threads for `Disk.offload` and for file ranges that are not in the page cache."""
    sync_threads: int = 8
    dirty_budget_bytes: int = 1 << 30
    """Bytes appended and not yet written back at which producers wait before they append."""
    shares_wait: bool = False
    """Whether trio waits where the driver waits (see `shared_wait`): for a process that is a node, not for code in an
    application's own trio run."""
    worked: Callable[[int], None] | None = None
    """Function that is called after each of the driver's passes, with the pass's duration in nanoseconds."""


def _disk(settings: RuntimeSettings, faults: DiskFaults | None) -> RealDisk:
    sizes = {
        "offload_threads": settings.offload_threads,
        "sync_threads": settings.sync_threads,
        "dirty_budget_bytes": settings.dirty_budget_bytes,
    }
    if faults is None:
        return RealDisk(**sizes)
    from kraft.runtime.disk_faults import FaultyDisk

    return FaultyDisk(faults, **sizes)


@asynccontextmanager
async def open_seam(
    *,
    node_name: str,
    settings: RuntimeSettings | None = None,
    dial_map: DialMap | None = None,
    links: LinkPolicies | None = None,
    disk_faults: DiskFaults | None = None,
) -> AsyncIterator[Seam]:
    """Provide the seam of one node (or one client), called `node_name` in logs.

    `dial_map` and `links` redirect and disturb what this node dials; without them every link is open. `disk_faults`
    disturb its syncs. An exception of a connection's handler other than WireError (InvariantError above all) cancels
    the body and is raised from this context."""
    settings = settings or RuntimeSettings()
    disk = _disk(settings, disk_faults)
    idle_ms = settings.connections_idle_ms
    sweep_interval_ms = SWEEP_INTERVAL_MS_MAX if idle_ms < 0 else max(1, min(SWEEP_INTERVAL_MS_MAX, idle_ms // 4))
    driver = Driver(
        node_name,
        cold_limiter=disk.offload_limiter,
        sweep_interval_ms=sweep_interval_ms,
        shares_wait=settings.shares_wait,
        worked=settings.worked,
    )
    network = RealNetwork(
        driver,
        {} if dial_map is None else dial_map,
        links or LinkPolicies(),
        idle_ms=idle_ms,
        backlog=settings.listen_backlog,
    )
    seam = Seam(clock=RealClock(), random=RealRandom(), network=network, disk=disk)
    body_error: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            driver.nursery = nursery
            nursery.start_soon(driver.run, name=f"{node_name} driver")
            nursery.start_soon(driver.sweep, name=f"{node_name} idle sweep")
            nursery.start_soon(disk.ledger.run, name=f"{node_name} write-back")
            try:
                yield seam
            except BaseException as error:  # noqa: BLE001 - raised again below, but not wrapped in a group
                body_error = error
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        sole = sole_error(group)
        raise sole from sole.__cause__
    finally:
        driver.close()
    if body_error is not None:
        raise body_error
