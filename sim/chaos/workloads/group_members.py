"""Members of a consumer group: they read the partitions that the group assigns to them, and commit what they have read.

A rebalance is recorded as an `assign`: the next records of a member need not follow its earlier ones. A commit that
fails is INFO; the member continues under its next process name with the same client. A new client would cause a
rebalance, which makes the commits of other members fail, so each failed commit would cause the next rebalance.
"""

from __future__ import annotations

import random
from typing import Any

import trio

from kraft.sim.chaos.clients import OperationFailed, ReadRecord, WorkloadConsumer
from kraft.sim.chaos.history import Function, HistoryEventType, Place
from kraft.sim.chaos.scenarios.scenario import GROUP, ScenarioWorkload
from kraft.sim.chaos.workloads.processes import (
    POLL_TIMEOUT_MS,
    REOPEN_PAUSE_S,
    ClientContext,
    ProcessNames,
    as_json,
    record,
    records_as_json,
)


class GroupMembers:
    """All members of the group. `rebalances`: number of assignments that they received."""

    def __init__(self, workload: ScenarioWorkload, topic: str, source: random.Random) -> None:
        self.rebalances = 0
        self.commits = 0
        self._topic = topic
        self._count = workload.group_members
        self._churn_s = workload.group_churn_s
        self._source = random.Random(source.getrandbits(64))
        self._ends: dict[int, bool] = {}
        """Member number of each member that is to end → whether the member leaves the group before it ends."""

    async def run(self, context: ClientContext) -> None:
        """Run all members until the work ends."""
        async with trio.open_nursery() as nursery:
            for number in range(self._count):
                nursery.start_soon(self._member, context, number)
            if self._count and self._churn_s > 0:
                nursery.start_soon(self._churn, context)

    async def _churn(self, context: ClientContext) -> None:
        while not context.until.is_set():
            await context.pause(self._churn_s)
            self._ends[self._source.randrange(self._count)] = self._source.random() < 0.5

    async def _member(self, context: ClientContext, number: int) -> None:
        names = ProcessNames(f"member-{number}")
        while not context.until.is_set():
            process = names.current
            consumer = await context.open(
                lambda process=process: context.library.consumer(context.bootstrap, process, GROUP)  # type: ignore[misc]
            )
            if consumer is None:
                return
            self._ends.pop(number, None)
            try:
                await consumer.subscribe([self._topic])
                await self._read(context, number, names, consumer)
            except OperationFailed:
                await context.pause(REOPEN_PAUSE_S)
            finally:
                await consumer.aclose(leaves=self._ends.pop(number, True))
            names.retire()

    async def _read(self, context: ClientContext, number: int, names: ProcessNames, consumer: WorkloadConsumer) -> None:
        """Read and commit until the work ends or this member is to end. Raises OperationFailed if a poll failed."""
        known = 0
        while not context.until.is_set() and number not in self._ends:
            records, known = await self._poll(context, names.current, consumer, known)
            if records:
                await self._commit(context, names, consumer, records)

    async def _poll(
        self, context: ClientContext, process: str, consumer: WorkloadConsumer, known: int
    ) -> tuple[list[ReadRecord], int]:
        """Poll once; return its records and the number of the last rebalance. A poll during which a rebalance happened
        is recorded as three operations: an empty poll, the `assign`, and a poll with the records."""
        history, given = context.history, list[ReadRecord]()

        async def poll() -> int:
            given.extend(await consumer.poll(POLL_TIMEOUT_MS))
            return consumer.assignment()[1]

        def values_of(number: int) -> dict[str, Any]:
            return {"records": records_as_json(given) if number == known else []}

        number = await record(history, process, Function.POLL, poll, values_of)
        if number != known:
            places, _ = consumer.assignment()
            self.rebalances += bool(places)
            history.complete(history.invoke(process, Function.ASSIGN, places=as_json(places)), HistoryEventType.OK)
            if given:
                again = history.invoke(process, Function.POLL)
                history.complete(again, HistoryEventType.OK, records=records_as_json(given))
        return given, number

    async def _commit(
        self, context: ClientContext, names: ProcessNames, consumer: WorkloadConsumer, records: list[ReadRecord]
    ) -> None:
        offsets: dict[Place, int] = {}
        for each in records:
            offsets[each.place] = each.offset + 1
        rows = [[place.topic, place.partition, offset] for place, offset in sorted(offsets.items())]
        try:
            await record(
                context.history,
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
