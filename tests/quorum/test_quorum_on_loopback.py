"""The same drivers on the real runtime: sockets on loopback, files in a temporary folder."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import trio

from kraft.runtime import open_seam
from tests.stages.ports import hold_ports

from .cluster import Member, config_of


class Cluster:
    """Three controllers and a broker-only node that run a quorum on the real runtime, each with its own folder."""

    def __init__(self, nursery: trio.Nursery, folder: Path) -> None:
        self._nursery = nursery
        self._folder = folder
        addresses = {n: ("127.0.0.1", port) for n, port in enumerate(hold_ports(3), start=1)}
        self.members = {
            n: Member(config_of(n, addresses, str(folder / str(n)), is_controller=n <= 3), UUID(int=1000 + n))
            for n in range(1, 5)
        }
        self._scopes: dict[int, trio.CancelScope] = {}
        self._ended: dict[int, trio.Event] = {}

    async def _live(self, n: int, task_status: trio.TaskStatus[None]) -> None:
        self._ended[n] = trio.Event()
        with trio.CancelScope() as self._scopes[n]:
            async with open_seam(node_name=f"c{n}") as seam:
                await self.members[n].main(seam, task_status)
        self.members[n].quorum = None
        self._ended[n].set()

    async def start(self, n: int) -> None:
        await self._nursery.start(self._live, n)

    async def kill(self, n: int) -> None:
        self._scopes[n].cancel()
        await self._ended[n].wait()

    @property
    def leader(self) -> Member | None:
        for member in self.members.values():
            if member.quorum is not None and member.replica.leads is not None and member.quorum.is_leader:
                return member
        return None

    async def wait(self, condition: Callable[[], object], limit_s: float = 60.0) -> float:
        began = time.monotonic()
        with trio.fail_after(limit_s):
            while not condition():  # noqa: ASYNC110
                await trio.sleep(0.001)
        return time.monotonic() - began

    async def write(self, value: bytes) -> None:
        await self.wait(lambda: self.leader is not None)
        leader = self.leader
        assert leader is not None
        assert leader.quorum is not None
        end = leader.quorum.append([value])
        await self.wait(lambda: leader.replica.next_offset >= end)

    def have(self, *values: bytes) -> bool:
        return all(m.quorum is None or m.replica.values == list(values) for m in self.members.values())


async def test_quorum_on_loopback_survives_leader_kills_and_all_nodes_replay_the_same_values(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        cluster = Cluster(nursery, tmp_path)
        for n in cluster.members:
            await cluster.start(n)
        await cluster.write(b"0")
        written = [b"0"]
        for round_number in range(1, 4):
            old = cluster.leader
            assert old is not None
            number = old.config.node_id
            await cluster.kill(number)
            await cluster.wait(lambda old=old: cluster.leader not in (None, old))
            written.append(b"%d" % round_number)
            await cluster.write(written[-1])
            await cluster.start(number)
        await cluster.wait(lambda: cluster.have(*written))
        nursery.cancel_scope.cancel()
