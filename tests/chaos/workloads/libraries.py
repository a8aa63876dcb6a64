"""A client library whose cluster consists of lists of records in memory, and whose failures the test scripts."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import trio

from kraft.sim.chaos.clients import DescribedPartition, OperationFailed, ProducerSettings, ReadRecord
from kraft.sim.chaos.history import Place

RECORDS_MAX = 10
"""Maximum number of records that one poll returns."""
REPLICAS = (1, 2, 3)


@dataclass
class ScriptedLibrary:
    """The scripted library. `failures` maps a method to the outcomes of its next calls: an exception to raise, or None
    for a success."""

    name: str = "scripted"
    version: str = "0"
    logs: dict[Place, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    failures: dict[str, deque[OperationFailed | None]] = field(default_factory=lambda: defaultdict(deque))
    opened: list[str] = field(default_factory=list)
    """Ids of the clients in the order in which they were opened."""
    is_open: set[str] = field(default_factory=set)
    ends_hidden: int = 0
    """Number of records at the end of each log that the reported end offset does not include yet."""

    def fail(self, verb: str, *failures: OperationFailed | None) -> None:
        self.failures[verb].extend(failures)

    async def act(self, verb: str) -> None:
        await trio.sleep(0.001)
        failures = self.failures[verb]
        failure = failures.popleft() if failures else None
        if failure is not None:
            raise failure

    async def producer(self, bootstrap: str, client_id: str, settings: ProducerSettings) -> ScriptedClient:
        return await self._open("producer", client_id)

    async def consumer(self, bootstrap: str, client_id: str, group: str | None) -> ScriptedClient:
        return await self._open("consumer", client_id)

    async def admin(self, bootstrap: str, client_id: str) -> ScriptedClient:
        return await self._open("admin", client_id)

    async def _open(self, verb: str, client_id: str) -> ScriptedClient:
        await self.act(verb)
        self.opened.append(client_id)
        self.is_open.add(client_id)
        return ScriptedClient(self, client_id)


class ScriptedClient:
    """A producer, consumer and admin client in one object. Its group has one member and no spontaneous rebalance:
    `rebalance` in the script makes a poll contain a rebalance."""

    def __init__(self, library: ScriptedLibrary, client_id: str) -> None:
        self._library = library
        self._client_id = client_id
        self._positions: dict[Place, int] = {}
        self._rebalances = 0

    async def send(self, place: Place, value: bytes) -> int:
        await self._library.act("send")
        self._library.logs[place].append(value)
        return len(self._library.logs[place]) - 1

    async def assign(self, places: Sequence[Place]) -> None:
        await self._library.act("assign")
        self._positions = dict.fromkeys(places, 0)

    async def subscribe(self, topics: Sequence[str]) -> None:
        self._positions = {place: 0 for place in self._library.logs if place.topic in topics}
        await trio.lowlevel.checkpoint()

    def assignment(self) -> tuple[frozenset[Place], int]:
        return frozenset(self._positions), self._rebalances

    async def poll(self, timeout_ms: int) -> list[ReadRecord]:
        await trio.sleep(timeout_ms / 1000)
        try:
            await self._library.act("poll")
        except OperationFailed as failed:
            if failed.error != "rebalance":
                raise
            self._rebalances += 1
            self._positions = dict.fromkeys(self._positions, 0)
        found = []
        for place, at in self._positions.items():
            records = self._library.logs[place][at : at + RECORDS_MAX]
            found += [ReadRecord(place, offset, value) for offset, value in enumerate(records, at)]
            self._positions[place] += len(records)
        return found

    async def commit(self, offsets: Mapping[Place, int]) -> None:
        await self._library.act("commit")

    def position(self, place: Place) -> int:
        return self._positions.get(place, -1)

    async def end_offsets(self, places: Sequence[Place]) -> dict[Place, int]:
        await self._library.act("end_offsets")
        return {place: max(0, len(self._library.logs[place]) - self._library.ends_hidden) for place in places}

    async def create_topic(self, topic: str, partitions: int, replicas: int, configs: Mapping[str, str]) -> str:
        await self._library.act("create_topic")
        return "ab"

    async def delete_topic(self, topic: str) -> None:
        await self._library.act("delete_topic")

    async def partitions(self, topic: str) -> tuple[DescribedPartition, ...]:
        await self._library.act("partitions")
        return (DescribedPartition(1, REPLICAS, REPLICAS),)

    async def aclose(self, *, leaves: bool = True) -> None:
        self._library.is_open.discard(self._client_id)
        await trio.lowlevel.checkpoint()
