"""ClientWorkload: all clients of a scenario, from the topic that they use to the final reader."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Sequence

import trio

from kraft.sim.chaos.clients import ClientLibrary, OperationFailed, WorkloadAdmin
from kraft.sim.chaos.history import HistoryRecorder, Place
from kraft.sim.chaos.scenarios.scenario import GROUP, TOPIC, Scenario
from kraft.sim.chaos.workloads.group_members import GroupMembers
from kraft.sim.chaos.workloads.processes import ClientContext
from kraft.sim.chaos.workloads.reading import FinalReader, read_along
from kraft.sim.chaos.workloads.sending import Producers
from kraft.sim.chaos.workloads.topic_churn import TopicChurn
from kraft.sim.shapes import ClusterError
from kraft.wire.error_codes import ErrorCode

PREPARE_S_MAX = 60.0
PREPARE_PAUSE_S = 0.2
FINISH_S = 15.0
"""Seconds for which operations in progress may continue when the work ends. After that they are abandoned."""
PREPARER = "preparer"


class ClientWorkload:
    """All clients of a scenario; see the module. `notes` receives sentences for the report. `places`: partitions of
    existing topics that belong to other users; then no topic is created, and only readers make sense. `is_lasting`: the
    cluster continues to exist after the run and may hold other users' data; then only topics created by this run are
    used."""

    def __init__(
        self,
        library: ClientLibrary,
        bootstrap: str,
        scenario: Scenario,
        history: HistoryRecorder,
        random: random.Random,
        notes: Callable[[str], None],
        *,
        places: Sequence[Place] | None = None,
        is_lasting: bool = False,
    ) -> None:
        workload = scenario.workload
        self._library = library
        self._bootstrap = bootstrap
        self._scenario = scenario
        self._history = history
        self._notes = notes
        self._is_own = places is None
        self._is_lasting = is_lasting
        self._has_topic = False
        """Whether the topic of the producers exists: it was created, or an existing topic is used."""
        self.is_ready = False
        """Whether the topic exists and all of its replicas are in sync."""
        self._places = [Place(TOPIC, number) for number in range(scenario.topic.partitions)]
        if places is not None:
            self._places = list(places)
        self._producers = Producers(workload, self._places, random)
        self._members = GroupMembers(workload, TOPIC, random)
        prefix = f"churn-{secrets.token_hex(4)}" if is_lasting else "churn"
        self._churn = TopicChurn(workload.topic_churn, scenario.topic.replicas, random, prefix=prefix)

    @property
    def rebalances(self) -> int:
        """Number of assignments that the members of the group received."""
        return self._members.rebalances

    @property
    def made_topics(self) -> frozenset[str]:
        """Names of the topics that this run has created or may have created, as opposed to topics that
        existed before."""
        return frozenset({*self._churn.names, *((TOPIC,) if self._has_topic else ())})

    @property
    def made_groups(self) -> tuple[str, ...]:
        return (GROUP,) if self.is_ready and self._scenario.workload.group_members else ()

    # before the run

    async def prepare(self) -> None:
        """Create the topic, and wait until each of its partitions has a leader and all replicas in sync. ClusterError
        if that takes longer than PREPARE_S_MAX. ClusterError also if the topic exists already: in a lasting cluster
        always, otherwise if it holds records."""
        if not self._is_own:
            return
        last = "no broker answered"
        with trio.move_on_after(PREPARE_S_MAX):
            while True:
                try:
                    await self._try_prepare()
                except OperationFailed as failed:
                    last = failed.error
                    await trio.sleep(PREPARE_PAUSE_S)
                else:
                    self.is_ready = True
                    return
        raise ClusterError(f"topic {TOPIC} is not ready after {PREPARE_S_MAX:g} s; the last error was: {last}")

    async def _try_prepare(self) -> None:
        admin = await self._library.admin(self._bootstrap, PREPARER)
        try:
            if not self._has_topic:
                await self._create(admin)
                self._has_topic = True
            await self._wait_in_sync(admin)
        finally:
            await admin.aclose()
        await self._require_empty()

    async def _create(self, admin: WorkloadAdmin) -> None:
        topic = self._scenario.topic
        try:
            await admin.create_topic(TOPIC, topic.partitions, topic.replicas, topic.configs)
        except OperationFailed as failed:
            if failed.error != ErrorCode.TOPIC_ALREADY_EXISTS.name:
                raise
            if self._is_lasting:
                raise ClusterError(
                    f"topic {TOPIC} exists already at {self._bootstrap}, and may belong to another user: a run uses and"
                    f" deletes only what it has created. If it is not needed (a killed run leaves one), delete it:"
                    f" kraft topics delete {TOPIC} --bootstrap-server {self._bootstrap}"
                ) from failed

    async def _wait_in_sync(self, admin: WorkloadAdmin) -> None:
        topic = self._scenario.topic
        while True:
            found = await admin.partitions(TOPIC)
            if len(found) != topic.partitions:
                text = f"topic {TOPIC} has {len(found)} partitions, not {topic.partitions} as the scenario wants"
                raise ClusterError(text)
            if all(each.leader >= 0 and len(each.isr) == len(each.replicas) for each in found):
                return
            await trio.sleep(PREPARE_PAUSE_S)

    async def _require_empty(self) -> None:
        consumer = await self._library.consumer(self._bootstrap, PREPARER, None)
        try:
            ends = await consumer.end_offsets(self._places)
        finally:
            await consumer.aclose()
        if any(ends.values()):
            raise ClusterError(
                f"topic {TOPIC} exists already and holds records, which cannot be told from those of the run: "
                "delete it first"
            )

    # during the run

    async def run(self, until: trio.Event) -> None:
        """Run all clients until this event is set, and return when all of them are closed. Operations in progress may
        then take FINISH_S. Errors of the tasks of pykraft's client are raised."""
        context = ClientContext(self._library, self._bootstrap, self._history, until)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._producers.run, context)
            nursery.start_soon(self._members.run, context)
            nursery.start_soon(self._churn.run, context)
            for number in range(self._scenario.workload.readers):
                nursery.start_soon(read_along, context, number, self._places)
            await until.wait()
            nursery.cancel_scope.deadline = trio.current_time() + FINISH_S
        if self._scenario.workload.group_members:
            self._notes(f"members of the group were given {self.rebalances} assignments")

    async def settle(self, timeout_s: float) -> bool:
        """Wait until every producer has a successful send that begins after this call; return whether that happened in
        time."""
        with trio.move_on_after(timeout_s):
            await self._producers.wait_each(trio.current_time())
            return True
        return False

    # after the run

    async def read_everything(self, timeout_s: float, *, places: Sequence[Place] | None = None) -> bool:
        """Read all partitions (or `places`) from their beginning to their end with a new consumer, under the process
        name FINAL_READER. Return False if it did not reach the end in time."""
        context = ClientContext(self._library, self._bootstrap, self._history, trio.Event())
        wanted = self._places if places is None else list(places)
        return await FinalReader(context, wanted, self._producers.acknowledged).run(timeout_s)
