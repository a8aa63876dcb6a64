"""The observer: samples of a cluster while it is broken, ten times a second.

It asks every broker at its direct address, which no fault of links reaches, and believes per partition the answer with
the newest leader epoch. A broker that is frozen or gone delays no sample: each is asked by a task of its own, and
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
from kraft.sim.chaos.run.run_folder import PartitionSample, Sample
from kraft.wire.reply_policy import ONLOOKER_CLIENT_ID

SAMPLE_MS = 100
ASK_TIMEOUT_MS = 800
ANSWER_AGE_MS_MAX = 1_000
SEEING_SECONDS_MAX = 10.0
PAUSE_MS = 80
"""Between two rounds of questions to one broker."""
FAILURES = (*CONNECTION_FAILURES, ClusterUnreachable, VersionMismatch, KafkaError)


@dataclass(frozen=True, slots=True)
class _Answer:
    """What one broker said last. Of the quorum: leader, epoch, voters; (-1, -1, ()) if it could not say."""

    time_ms: float
    partitions: tuple[PartitionSample, ...]
    brokers: tuple[int, ...]
    quorum: tuple[int, int, tuple[int, ...]]


@dataclass(slots=True)
class Observer:
    """`brokers`: node → its direct address. `topics` gives the topics to ask for, `running` the nodes whose processes
    run and are not frozen, `facts` other measurements; all three are plain calls that return at once."""

    brokers: Mapping[int, str]
    topics: Callable[[], Sequence[str]]
    now_ms: Callable[[], float]
    running: Callable[[], tuple[int, ...]] = tuple
    facts: Callable[[], Mapping[str, float]] = dict
    on_sample: Callable[[Sample], None] = lambda sample: None
    samples: list[Sample] = field(default_factory=list)
    _answers: dict[int, _Answer] = field(default_factory=dict)
    _generation: int = 0
    """Rises when the clock begins anew."""
    _all_answered: trio.Event = field(default_factory=trio.Event)

    async def run(self) -> None:
        """Sample until cancelled."""
        async with trio.open_nursery() as nursery:
            for node, address in self.brokers.items():
                nursery.start_soon(self._ask_on_and_on, node, address)
            due = trio.current_time()
            while True:
                self.take()
                due += SAMPLE_MS / 1000
                await trio.sleep_until(due)

    async def wait_seeing(self) -> None:
        """Until every broker has answered once, but no longer than SEEING_SECONDS_MAX: what the questions need is
        loaded then."""
        with trio.move_on_after(SEEING_SECONDS_MAX):
            await self._all_answered.wait()

    def forget(self) -> None:
        """Drop all samples and answers, also those on their way: the clock begins anew."""
        self._generation += 1
        self.samples.clear()
        self._answers.clear()

    def take(self) -> Sample:
        """Compose a sample of what is known now. Its time is not before what it says of processes, so that no fault has
        its effect before its begin."""
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
        sample = Sample(
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

    async def _ask_on_and_on(self, node: int, address: str) -> None:
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
        """Brokers hand this question on to the active controller: while there is none, there is no answer."""
        try:
            quorum = await admin.nodes.quorum()
        except FAILURES:
            return -1, -1, ()
        leader = -1 if quorum.leader is None else quorum.leader
        return leader, quorum.leader_epoch, tuple(sorted(voter.node_id for voter in quorum.voters))
