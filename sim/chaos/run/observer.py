"""The observer: takes samples of a cluster during faults, ten times a second.

It queries every broker at its direct address, which link faults do not affect. For each partition it uses the answer
with the newest leader epoch. A frozen or ended broker delays no sample: each broker is queried by a separate task, and
answers older than ANSWER_AGE_MS_MAX do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import trio

from kraft.client.admin import Admin
from kraft.client.cluster import ClusterUnreachable
from kraft.client.connections import CONNECTION_FAILURES, VersionMismatch
from kraft.client.core.records import KafkaError
from kraft.sim.chaos.run.run_folder import ClusterSample, PartitionSample
from kraft.wire.reply_policy import ONLOOKER_CLIENT_ID

SAMPLE_MS = 100
ASK_TIMEOUT_MS = 800
ANSWER_AGE_MS_MAX = 1_000
SEEING_SECONDS_MAX = 10.0
PAUSE_MS = 80
"""Pause between two rounds of queries to one broker."""
FAILURES = (*CONNECTION_FAILURES, ClusterUnreachable, VersionMismatch, KafkaError)


@dataclass(frozen=True, slots=True)
class _Answer:
    """Last answer of one broker to the observer's queries. `quorum`: leader, epoch, voters; (-1, -1, ()) if the broker
    could not describe the quorum."""

    time_ms: float
    partitions: tuple[PartitionSample, ...]
    brokers: tuple[int, ...]
    quorum: tuple[int, int, tuple[int, ...]]


@dataclass(slots=True)
class Observer:
    """Takes samples of a cluster. `brokers`: node → its direct address. `topics` returns the topics to describe,
    `running` the nodes whose processes run and are not frozen, `facts` other measurements. All three are plain calls
    that return at once."""

    brokers: Mapping[int, str]
    topics: Callable[[], Sequence[str]]
    now_ms: Callable[[], float]
    running: Callable[[], tuple[int, ...]] = tuple
    facts: Callable[[], Mapping[str, float]] = dict
    on_sample: Callable[[ClusterSample], None] = lambda sample: None
    samples: list[ClusterSample] = field(default_factory=list)
    _answers: dict[int, _Answer] = field(default_factory=dict)
    _generation: int = 0
    """Number that increases when the clock restarts, so that older answers are recognized."""
    _all_answered: trio.Event = field(default_factory=trio.Event)

    async def run(self) -> None:
        """Sample until cancelled."""
        async with trio.open_nursery() as nursery:
            for node, address in self.brokers.items():
                nursery.start_soon(self._ask_repeatedly, node, address)
            due = trio.current_time()
            while True:
                self.take()
                due += SAMPLE_MS / 1000
                await trio.sleep_until(due)

    async def wait_for_answers(self) -> None:
        """Wait until every broker has answered once, at most SEEING_SECONDS_MAX. By then all code for queries is
        loaded."""
        with trio.move_on_after(SEEING_SECONDS_MAX):
            await self._all_answered.wait()

    def reset(self) -> None:
        """Discard all samples and answers, including answers in flight, because the clock restarts."""
        self._generation += 1
        self.samples.clear()
        self._answers.clear()

    def take(self) -> ClusterSample:
        """Take a sample of the latest answers. Its time is not earlier than its information on processes, so that no
        fault's effect appears before the fault's begin."""
        running, facts = self.running(), dict(self.facts())
        now = self.now_ms()
        fresh = [answer for answer in self._answers.values() if now - answer.time_ms <= ANSWER_AGE_MS_MAX]
        partitions: dict[tuple[str, int], PartitionSample] = {}
        for answer in fresh:
            for one in answer.partitions:
                known = partitions.get((one.topic, one.partition))
                if known is None or one.leader_epoch > known.leader_epoch:
                    partitions[one.topic, one.partition] = one
        controller, epoch, voters = max(
            (answer.quorum for answer in fresh), key=lambda told: told[1], default=(-1, -1, ())
        )
        newest = max(fresh, key=lambda answer: (answer.quorum[1], answer.time_ms), default=None)
        sample = ClusterSample(
            time_ms=now,
            partitions=tuple(partitions[place] for place in sorted(partitions)),
            controller=controller,
            controller_epoch=epoch,
            voters=voters,
            brokers=() if newest is None else newest.brokers,
            running=running,
            facts=facts,
        )
        self.samples.append(sample)
        self.on_sample(sample)
        return sample

    async def _ask_repeatedly(self, node: int, address: str) -> None:
        while True:
            try:
                async with Admin(
                    bootstrap_servers=address, client_id=ONLOOKER_CLIENT_ID, timeout_ms=ASK_TIMEOUT_MS
                ) as admin:
                    while True:
                        generation = self._generation
                        answer = await self._ask(admin)
                        if generation == self._generation:
                            self._answers[node] = answer
                        if len(self._answers) == len(self.brokers):
                            self._all_answered.set()
                        await trio.sleep(PAUSE_MS / 1000)
            except FAILURES:
                await trio.sleep(PAUSE_MS / 1000)

    async def _ask(self, admin: Admin) -> _Answer:
        topics = self.topics()
        described = await admin.topics.describe(topics) if topics else ()
        cluster = await admin.nodes.cluster()
        return _Answer(
            time_ms=self.now_ms(),
            partitions=tuple(
                PartitionSample(
                    topic=one.topic,
                    partition=one.index,
                    leader=-1 if one.leader is None else one.leader,
                    leader_epoch=one.leader_epoch,
                    isr=tuple(sorted(one.isr)),
                    replicas=one.replicas,
                )
                for topic in described
                for one in topic.partitions
            ),
            brokers=tuple(broker.node_id for broker in cluster.brokers if not broker.is_fenced),
            quorum=await self._ask_quorum(admin),
        )

    @staticmethod
    async def _ask_quorum(admin: Admin) -> tuple[int, int, tuple[int, ...]]:
        """Query the quorum through a broker, which forwards the request to the active controller. Without an active
        controller there is no answer."""
        try:
            quorum = await admin.nodes.quorum()
        except FAILURES:
            return -1, -1, ()
        leader = -1 if quorum.leader is None else quorum.leader
        return leader, quorum.leader_epoch, tuple(sorted(voter.node_id for voter in quorum.voters))
