"""Clients that create and delete topics, one after the other. Some names are of one client, for others all race.

A judge of linearizability wants few operations on each name: a shared name is used SHARED_OPERATIONS_MAX times.
"""

from __future__ import annotations

import random
from itertools import count

import trio

from kraft.sim.chaos.clients import OperationFailed, WorkloadAdmin
from kraft.sim.chaos.history import EventType, Function
from kraft.sim.chaos.workloads.processes import REOPEN_PAUSE_S, ProcessNames, Setting, record

SHARED_SHARE = 0.3
"""How often a client takes a shared name."""
SHARED_OPERATIONS_MAX = 100
PAUSE_S_MAX = 0.3
PARTITIONS = 1


class TopicChurn:
    """All clients that create and delete topics, whose names begin with `prefix`."""

    def __init__(self, clients: int, replicas: int, source: random.Random, *, prefix: str = "churn") -> None:
        self.names: set[str] = set()
        """The topics that were created, or may have been; most are deleted again."""
        self._prefix = prefix
        self._sources = [random.Random(source.getrandbits(64)) for _ in range(clients)]
        self._replicas = replicas
        self._shared_uses = 0

    async def run(self, setting: Setting) -> None:
        """Until the work is to end."""
        async with trio.open_nursery() as nursery:
            for number, source in enumerate(self._sources):
                nursery.start_soon(self._change, setting, number, source)

    async def _change(self, setting: Setting, number: int, source: random.Random) -> None:
        names, topics = ProcessNames(f"churn-client-{number}"), count()
        while not setting.until.is_set():
            process = names.current
            admin = await setting.open(
                lambda process=process: setting.library.admin(setting.bootstrap, process)  # type: ignore[misc]
            )
            if admin is None:
                return
            try:
                while not setting.until.is_set():
                    topic = self._name(number, source, topics)
                    await self._create_and_delete(setting, names, admin, topic, source)
                    if names.current != process:
                        break
            finally:
                await admin.aclose()
            await setting.pause(REOPEN_PAUSE_S)

    def _name(self, number: int, source: random.Random, topics: count[int]) -> str:
        if source.random() >= SHARED_SHARE:
            return f"{self._prefix}-{number}-{next(topics)}"
        self._shared_uses += 2
        return f"{self._prefix}-shared-{self._shared_uses // SHARED_OPERATIONS_MAX}"

    async def _create_and_delete(
        self, setting: Setting, names: ProcessNames, admin: WorkloadAdmin, topic: str, source: random.Random
    ) -> None:
        """Delete it also if the creation is not known to have succeeded: it may have. After INFO the next name acts,
        with this client until the topic is dealt with."""
        history = setting.history
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
        await setting.pause(source.random() * PAUSE_S_MAX)
        try:
            await record(history, names.current, Function.DELETE_TOPIC, lambda: admin.delete_topic(topic), topic=topic)
        except OperationFailed as failed:
            _retire_if_unknown(names, failed)
        await setting.pause(source.random() * PAUSE_S_MAX)


def _retire_if_unknown(names: ProcessNames, failed: OperationFailed) -> None:
    if failed.type is EventType.INFO:
        names.retire()
