"""The two environments of the conformance suite, with one interface: two nodes over the real seam, and two in a
simulated world.
"""

from __future__ import annotations

import resource
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager
from pathlib import Path
from typing import Protocol

import trio

from kraft.runtime import LinkPolicies, RuntimeSettings, open_seam
from kraft.runtime.disk_faults import DiskFaults
from kraft.seam import Address, Binding, LinkPolicy, Peer, Seam, Transport
from kraft.sim.world import World, WorldOptions
from tests.stages.recorder import Recorder

LISTENER = "PLAINTEXT"
DIAL_TIMEOUT_MS = 20_000
DIRTY_BUDGET_BYTES = 1 << 20
WORLD_SEEDS = (1, 2, 3)


class Site(Protocol):
    """Two nodes of one environment. `server` has the disk folder `folder`; `client` dials the server."""

    server: Seam
    client: Seam
    folder: str
    serving_host: str

    def set_link_policy(self, node_id: int, policy: LinkPolicy) -> None: ...

    def map_dial(self, node_id: int, address: Address) -> None: ...

    def no_room(self) -> AbstractContextManager[None]:
        """Return a context in which the server's disk has no room for a megabyte."""
        ...


class Listening:
    """A listener of the server that records its connections in the order of their arrival."""

    def __init__(self, site: Site, prepare: Callable[[Recorder], None] | None = None, *, room: int = 65536) -> None:
        self.site = site
        self.accepted: list[Recorder] = []
        self._prepare = prepare
        self._room = room
        self._arrived = trio.Event()
        binding = Binding(LISTENER, Address(site.serving_host, 0))
        self.bound = site.server.network.serve(binding, self._make)

    def _make(self, transport: Transport) -> Recorder:
        connection = Recorder(transport, room=self._room)
        if self._prepare is not None:
            self._prepare(connection)
        self.accepted.append(connection)
        self._arrived.set()
        self._arrived = trio.Event()
        return connection

    def peer(self, node_id: int | None = None) -> Peer:
        return Peer(node_id, LISTENER, self.bound.address)

    async def connect(self, *, node_id: int | None = None, room: int = 65536) -> tuple[Recorder, Recorder]:
        """Open a connection, and return the client's end and the server's."""
        number = len(self.accepted)
        near = await self.site.client.network.dial(
            self.peer(node_id), lambda transport: Recorder(transport, room=room), timeout_ms=DIAL_TIMEOUT_MS
        )
        while len(self.accepted) == number:
            await self._arrived.wait()
        return near, self.accepted[number]


Body = Callable[[Site], Awaitable[None]]


class RealSite:
    """Both nodes in this process over the real seam."""

    serving_host = "127.0.0.1"

    def __init__(self, folder: Path, *, shares_wait: bool = False, disk_faults: DiskFaults | None = None) -> None:
        """`shares_wait`: trio waits in the server's driver, as in a node. `disk_faults`: faults of the server's
        disk."""
        self.folder = str(folder)
        self._disk_faults = disk_faults
        self._shares_wait = shares_wait
        self._links = LinkPolicies()
        self._dial_map: dict[tuple[int, str], Address] = {}

    def run(self, body: Body) -> None:
        trio.run(self._run, body)

    async def _run(self, body: Body) -> None:
        settings = RuntimeSettings(dirty_budget_bytes=DIRTY_BUDGET_BYTES, shares_wait=self._shares_wait)
        server = open_seam(node_name="server", settings=settings, disk_faults=self._disk_faults)
        async with AsyncExitStack() as stack:
            self.server = await stack.enter_async_context(server)
            client = open_seam(node_name="client", dial_map=self._dial_map, links=self._links)
            self.client = await stack.enter_async_context(client)
            await body(self)

    def set_link_policy(self, node_id: int, policy: LinkPolicy) -> None:
        self._links.set(node_id, LISTENER, policy)

    def map_dial(self, node_id: int, address: Address) -> None:
        self._dial_map[node_id, LISTENER] = address

    @contextmanager
    def no_room(self) -> Iterator[None]:
        """Limit files to 1 MiB: the kernel writes up to there and then refuses."""
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class WorldSite:
    """Both nodes in a simulated world; each test runs once per seed."""

    serving_host = "server"
    folder = "/data"

    def run(self, body: Body) -> None:
        for seed in WORLD_SEEDS:
            self._dial_map: dict[tuple[int, str], Address] = {}
            self._world = World(seed, WorldOptions(dirty_budget_bytes=DIRTY_BUDGET_BYTES))
            self._world.run(lambda world: self._run(body))

    async def _run(self, body: Body) -> None:
        self.server = self._world.node("server")
        self.client = self._world.node("client", dial_map=self._dial_map)
        self.server.disk.make_directory(self.folder)
        await body(self)

    def set_link_policy(self, node_id: int, policy: LinkPolicy) -> None:
        self._world.set_link_policy("client", node_id, LISTENER, policy)

    def map_dial(self, node_id: int, address: Address) -> None:
        self._dial_map[node_id, LISTENER] = address

    @contextmanager
    def no_room(self) -> Iterator[None]:
        self._world.disk_full("server", True)
        try:
            yield
        finally:
            self._world.disk_full("server", False)
