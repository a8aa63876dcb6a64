"""A Loop for tests of single parts of the data plane. It has the clock and disk of one simulated machine. Tasks run in
the test's nursery, and passes are only counted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import trio

from kraft.broker.partition.log_directories import HostedDirectory
from kraft.broker.serving.loop import Loop
from kraft.broker.serving.purgatory import Deadlines
from kraft.sim.world import World
from kraft.storage.handles import FileCache
from kraft.storage.log import Log
from kraft.storage.log_config import LogConfig
from kraft.storage.log_dir import format_directory
from kraft.storage.meta_properties import MetaProperties
from tests.stages.plane import batch

TOPIC_ID = UUID(int=77)
LONG_ENOUGH_MS = 1_000


class PartStage:
    """A `loop` for the tested part. `passes` is the number of passes that the part has requested."""

    def __init__(self, world: World, nursery: trio.Nursery) -> None:
        seam = world.node("machine")
        self.world = world
        self.disk = seam.disk
        self.passes = 0
        self.loop = Loop(
            seam.clock, seam.disk, seam.random, Deadlines(seam.clock), nursery.start_soon, self._request_pass
        )

    def _request_pass(self) -> None:
        self.passes += 1

    async def finish_tasks(self) -> None:
        """Wait until every task that does not sleep for long has finished."""
        await self.world.sleep_ms(LONG_ENOUGH_MS)

    def open_directory(self, directory: HostedDirectory) -> None:
        """Format a log directory and bring it online."""
        format_directory(self.disk, directory.path, MetaProperties("cluster", 1, self.loop.random.uuid()))
        directory.open(self.disk, node_id=1, cluster_id="cluster")

    def flip_a_bit(self, path: str, position: int) -> None:
        """Flip one bit of a file directly on the disk."""
        found: Any = self.world.host("machine").root
        for name in path.strip("/").split("/"):
            found = found.entries[name]
        found.data[position] ^= 1

    def open_log(
        self, path: str = "/data/orders-0", *, records: int = 0, topic_id: UUID = TOPIC_ID, **config: Any
    ) -> Log:
        """Return a log that accepts appends and has this many batches of one record."""
        opened = Log.open_log(
            self.disk,
            path,
            LogConfig(**config),
            clean=True,
            recovery_point=0,
            log_start=0,
            now_ms=self.loop.clock.wall_ms(),
            cache=FileCache(100),
        )
        plan = opened.ready_plan(topic_id)
        if plan is not None:
            plan.run()
            opened.mark_synced(plan)
        cold = opened.warm_for_append()
        if cold is not None:
            cold.warm()
            cold.adopt()
        for number in range(records):
            opened.append_as_follower(follower_batch(number), now_ms=self.loop.clock.wall_ms())
        return opened


def follower_batch(offset: int) -> bytes:
    """Return a batch of one record as a leader of epoch 0 sends it to a follower."""
    data = batch(f"{offset}", key=b"key")
    data[0:8] = offset.to_bytes(8, "big")
    data[12:16] = bytes(4)
    return bytes(data)


def replica(log: Log | None = None, **members: Any) -> Any:
    """Stand-in for a hosted replica: it has the members that parts use, a lock, and the given members."""
    usual: dict[str, Any] = {
        "topic": "orders",
        "topic_id": TOPIC_ID,
        "index": 0,
        "key": (TOPIC_ID, 0),
        "log": log,
        "blocking": trio.Lock(),
        "is_unwritten": False,
        "is_offline": False,
        "is_removed": False,
        "is_truncating": False,
    }
    return Replica(**{**usual, **members})


class Replica(SimpleNamespace):
    """A stand-in for a Partition that is hashable, like a Partition."""

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


def play(test: Callable[[PartStage], Awaitable[None]]) -> None:
    """Run `test` in a world, then end the tasks that it has started."""

    async def main(world: World) -> None:
        async with trio.open_nursery() as nursery:
            await test(PartStage(world, nursery))
            nursery.cancel_scope.cancel()

    World(1).run(main)
