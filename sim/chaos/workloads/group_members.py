"""Members of a consumer group: they read what the group assigns to them, and commit what they have read.

A rebalance is recorded as an `assign`: what a member is given after it need not follow what it had. A commit that fails
is INFO; the member goes on under its next name with the client that it has. If it came with a fresh one, each rebalance
would let commits fail, and each of them would cause the next rebalance.
"""

from __future__ import annotations

import random
from typing import Any

import trio

from kraft.sim.chaos.clients import OperationFailed, ReadRecord, WorkloadConsumer
from kraft.sim.chaos.history import EventType, Function, Place
from kraft.sim.chaos.scenarios.scenario import GROUP, ScenarioWorkload
from kraft.sim.chaos.workloads.processes import (
    POLL_TIMEOUT_MS,
    REOPEN_PAUSE_S,
    ProcessNames,
    Setting,
    as_json,
    record,
    records_as_json,
)


class GroupMembers:
    """All members of the group. `rebalances`: how many assignments they were given."""

    def __init__(self, workload: ScenarioWorkload, topic: str, source: random.Random) -> None:
        self.rebalances = 0
        self.commits = 0
        self._topic = topic
        self._count = workload.group_members
        self._churn_s = workload.group_churn_s
        self._source = random.Random(source.getrandbits(64))
        self._ends: dict[int, bool] = {}
        """Member that is to end → whether it says goodbye to the group."""

    async def run(self, setting: Setting) -> None:
        """Until the work is to end."""
        async with trio.open_nursery() as nursery:
            for number in range(self._count):
                nursery.start_soon(self._member, setting, number)
            if self._count and self._churn_s > 0:
                nursery.start_soon(self._churn, setting)

    async def _churn(self, setting: Setting) -> None:
        while not setting.until.is_set():
            await setting.pause(self._churn_s)
            self._ends[self._source.randrange(self._count)] = self._source.random() < 0.5

    async def _member(self, setting: Setting, number: int) -> None:
        names = ProcessNames(f"member-{number}")
        while not setting.until.is_set():
            process = names.current
            consumer = await setting.open(
                lambda process=process: setting.library.consumer(setting.bootstrap, process, GROUP)  # type: ignore[misc]
            )
            if consumer is None:
                return
            self._ends.pop(number, None)
            try:
                await consumer.subscribe([self._topic])
                await self._read(setting, number, names, consumer)
            except OperationFailed:
                await setting.pause(REOPEN_PAUSE_S)
            finally:
                await consumer.aclose(leaves=self._ends.pop(number, True))
            names.retire()

    async def _read(self, setting: Setting, number: int, names: ProcessNames, consumer: WorkloadConsumer) -> None:
        """Until the work is to end, or this member. OperationFailed if a poll failed."""
        known = 0
        while not setting.until.is_set() and number not in self._ends:
            records, known = await self._poll(setting, names.current, consumer, known)
            if records:
                await self._commit(setting, names, consumer, records)

    async def _poll(
        self, setting: Setting, process: str, consumer: WorkloadConsumer, known: int
    ) -> tuple[list[ReadRecord], int]:
        """The records of one poll, and the number of the last rebalance. A poll in which there was one stands in the
        history as a poll that gave nothing, the `assign`, and a poll that gave the records."""
        history, given = setting.history, list[ReadRecord]()

        async def poll() -> int:
            given.extend(await consumer.poll(POLL_TIMEOUT_MS))
            return consumer.assignment()[1]

        def told(number: int) -> dict[str, Any]:
            return {"records": records_as_json(given) if number == known else []}

        number = await record(history, process, Function.POLL, poll, told)
        if number != known:
            places, _ = consumer.assignment()
            self.rebalances += bool(places)
            history.complete(history.invoke(process, Function.ASSIGN, places=as_json(places)), EventType.OK)
            if given:
                again = history.invoke(process, Function.POLL)
                history.complete(again, EventType.OK, records=records_as_json(given))
        return given, number

    async def _commit(
        self, setting: Setting, names: ProcessNames, consumer: WorkloadConsumer, records: list[ReadRecord]
    ) -> None:
        offsets: dict[Place, int] = {}
        for each in records:
            offsets[each.place] = each.offset + 1
        rows = [[place.topic, place.partition, offset] for place, offset in sorted(offsets.items())]
        try:
            await record(
                setting.history,
                names.current,
                Function.COMMIT,
                lambda: consumer.commit(offsets),
                group=GROUP,
                offsets=rows,
            )
        except OperationFailed:
            names.retire()
        else:
            self.commits += 1
