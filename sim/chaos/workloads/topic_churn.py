"""Clients that create and delete topics; each does one operation at a time. Some topic names belong to one client; for
the other names all clients compete.

A check of linearizability is feasible only for few operations on each name, so a shared name is used at most
SHARED_OPERATIONS_MAX times.
"""

from __future__ import annotations

import random
from itertools import count

import trio

from kraft.sim.chaos.clients import OperationFailed, WorkloadAdmin
from kraft.sim.chaos.history import Function, HistoryEventType
from kraft.sim.chaos.workloads.processes import REOPEN_PAUSE_S, ClientContext, ProcessNames, record

SHARED_SHARE = 0.3
"""Probability that a client chooses a shared topic name."""
SHARED_OPERATIONS_MAX = 100
PAUSE_S_MAX = 0.3
PARTITIONS = 1


class TopicChurn:
    """All clients that create and delete topics. The topics' names begin with `prefix`."""

    def __init__(self, clients: int, replicas: int, source: random.Random, *, prefix: str = "churn") -> None:
        self.names: set[str] = set()
        """Topics that were, or may have been, created; most are deleted again."""
        self._prefix = prefix
        self._sources = [random.Random(source.getrandbits(64)) for _ in range(clients)]
        self._replicas = replicas
        self._shared_uses = 0

    async def run(self, context: ClientContext) -> None:
        """Run all clients until the work ends."""
        async with trio.open_nursery() as nursery:
            for number, source in enumerate(self._sources):
                nursery.start_soon(self._change, context, number, source)

    async def _change(self, context: ClientContext, number: int, source: random.Random) -> None:
        names, topics = ProcessNames(f"churn-client-{number}"), count()
        while not context.until.is_set():
            process = names.current
            admin = await context.open(
                lambda process=process: context.library.admin(context.bootstrap, process)  # type: ignore[misc]
            )
            if admin is None:
                return
            try:
                while not context.until.is_set():
                    topic = self._name(number, source, topics)
                    await self._create_and_delete(context, names, admin, topic, source)
                    if names.current != process:
                        break
            finally:
                await admin.aclose()
            await context.pause(REOPEN_PAUSE_S)

    def _name(self, number: int, source: random.Random, topics: count[int]) -> str:
        if source.random() >= SHARED_SHARE:
            return f"{self._prefix}-{number}-{next(topics)}"
        self._shared_uses += 2
        return f"{self._prefix}-shared-{self._shared_uses // SHARED_OPERATIONS_MAX}"

    async def _create_and_delete(
        self, context: ClientContext, names: ProcessNames, admin: WorkloadAdmin, topic: str, source: random.Random
    ) -> None:
        """Create a topic and delete it. The topic is deleted also after a creation with an unknown outcome, because it
        may have been created. After an unknown outcome the client continues under the next process name until the topic
        is deleted."""
        history = context.history
        self.names.add(topic)
        try:
            await record(
                history,
                names.current,
                Function.CREATE_TOPIC,
                lambda: admin.create_topic(topic, PARTITIONS, self._replicas, {}),
                lambda topic_id: {"topic_id": topic_id} if topic_id else {},
                topic=topic,
                partitions=PARTITIONS,
            )
        except OperationFailed as failed:
            _retire_if_unknown(names, failed)
        await context.pause(source.random() * PAUSE_S_MAX)
        try:
            await record(history, names.current, Function.DELETE_TOPIC, lambda: admin.delete_topic(topic), topic=topic)
        except OperationFailed as failed:
            _retire_if_unknown(names, failed)
        await context.pause(source.random() * PAUSE_S_MAX)


def _retire_if_unknown(names: ProcessNames, failed: OperationFailed) -> None:
    if failed.type is HistoryEventType.INFO:
        names.retire()
