"""The replicas of one partition in a world that follows from one seed: brokers 1..n, the controller, producers, and the
possible faults.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import MutableSequence
from dataclasses import dataclass
from functools import cache

from kraft.config import NodeConfig
from kraft.image import MetadataImage, PartitionState
from kraft.sim.cores.replicas.broker import CoreBroker
from kraft.sim.cores.replicas.controller import CoreController
from kraft.sim.cores.replicas.leading import LeadingReplica
from kraft.sim.cores.replicas.links import Process, ReplicaLinks, ReplicaOdds
from kraft.sim.cores.replicas.log import ReplicaBatch
from kraft.sim.cores.replicas.witness import ReplicaWitness

CLUSTER = "sim-cluster"
TOPIC = "t"


@dataclass(frozen=True, slots=True)
class ReplicaSettings:
    """Settings that matter for the cores, with times much shorter than Kafka's. Times are in ms."""

    min_isr: int = 1
    lag_ms_max: int = 600
    session_timeout_ms: int = 900
    heartbeat_ms: int = 150


class ReplicaWorld(ReplicaLinks):
    """The world of the replicas of one partition: brokers, controller, producers and links. Each input to a core is one
    step."""

    def __init__(
        self,
        seed: int,
        replicas: int = 3,
        *,
        odds: ReplicaOdds | None = None,
        settings: ReplicaSettings | None = None,
        witness: ReplicaWitness | None = None,
    ) -> None:
        super().__init__(seed, odds or ReplicaOdds())
        self.settings = settings or ReplicaSettings()
        self.witness = witness or ReplicaWitness()
        self.cluster_id = CLUSTER
        self.topic_id = self.chance.uuid()
        self.steps = 0
        self.happened: Counter[str] = Counter()
        """Event → number of times that it happened: elections, ISR changes, … A schedule must cause these events,
        because the checks need them as input."""
        self.trace: MutableSequence[str] | None = None
        """Receives a record of every step; None: steps are not recorded."""
        self._tokens = self._batches = 0
        ids = range(1, replicas + 1)
        self.brokers = {one: CoreBroker(self, one, self.chance.uuid()) for one in ids}
        config = _config(self.settings)
        self.controller = CoreController(self, config, tuple(ids))
        self._write_interval_ms = 0
        self.cut_for_good: frozenset[tuple[int, int]] = frozenset()
        """(source, target) pairs that stay cut when everything else is healed."""

    # callbacks of the parts

    def stepped(self, process: Process, what: str, *facts: object) -> None:
        """Handle the end of a step: a core of this process has processed an input, and its effects are done."""
        self.steps += 1
        if self.trace is not None:
            self.trace.append(f"{self.now} {process.node_id} {what} {facts}")
        if process.node_id:
            self.witness.after_step(self.brokers[process.node_id])

    def next_token(self) -> int:
        self._tokens += 1
        return self._tokens

    def make_batch(self, base_offset: int, count: int, epoch: int, chain: int) -> ReplicaBatch:
        """Make a batch of new unique records that follows a log with this hash."""
        self._batches += 1
        return ReplicaBatch(base_offset, base_offset + count, epoch, hash((chain, epoch, base_offset, self._batches)))

    def acknowledged(self, leading: LeadingReplica, batch: ReplicaBatch) -> None:
        """Record that a producer is notified of the commit of this batch."""
        self.happened["acknowledged"] += 1
        self.witness.on_acknowledge(leading, batch)

    def partition_of(self, image: MetadataImage) -> PartitionState:
        """Return the state of the partition in an image; there is only one partition."""
        topic = image.topics.get(TOPIC)
        assert topic is not None
        return topic.partition(0)

    # starts and ends

    def start(self, *node_ids: int) -> None:
        """Start these brokers, or all."""
        for node_id in node_ids or tuple(self.brokers):
            if not self.brokers[node_id].is_up:
                self.brokers[node_id].start()

    def kill(self, node_id: int) -> None:
        """Kill a broker's process: its log stays, and the kernel of its host closes its connections."""
        broker = self.brokers[node_id]
        if broker.is_up:
            self.controller.connection_ended(broker)
            broker.die()

    def lose_power(self, node_id: int) -> None:
        """Cut the power of the machine: a part of the unsynced log is lost too, and no connection is closed."""
        broker = self.brokers[node_id]
        if broker.is_up:
            log = broker.log
            broker.die(log.synced + self.chance.below(len(log.batches) - log.synced + 1))

    def stop(self, node_id: int) -> None:
        """Request a controlled shutdown of the broker."""
        self.brokers[node_id].wants_stop = True

    # the links

    def partition(self, *groups: tuple[int, ...]) -> None:
        """Cut all links between two groups of nodes. The controller is node 0."""
        every = (0, *self.brokers)
        self.cut = {(a, b) for a in every for b in every if a != b and not any(a in g and b in g for g in groups)}

    def heal(self) -> None:
        self.cut = set(self.cut_for_good)

    # the producers

    def write_every(self, interval_ms: int) -> None:
        """Let producers write until `stop_writing`, to any broker that considers itself the leader."""
        self._write_interval_ms = interval_ms
        self.at(interval_ms, self._write)

    def stop_writing(self) -> None:
        self._write_interval_ms = 0

    def _write(self) -> None:
        interval = self._write_interval_ms
        if not interval:
            return
        leaders = [broker for broker in self.brokers.values() if broker.leading is not None]
        if not leaders:
            self.at(5 * interval, self._write)
            return
        chance = self.chance
        leader = leaders[chance.below(len(leaders))]
        all_in_sync = chance.below(8) > 0
        delay = self.between(self.odds.latency)
        self.at(delay, self._arrive, leader, leader.life, leader.on_produce, (1 + chance.below(3), all_in_sync))
        self.at(1 + chance.below(2 * interval), self._write)

    # queries

    @property
    def state(self) -> PartitionState:
        """The committed state of the partition."""
        return self.partition_of(self.controller.committed)

    @property
    def leading(self) -> LeadingReplica | None:
        """The role of the leader that the committed metadata names, once the role has started."""
        leader = self.brokers.get(self.state.leader)
        if leader is None or leader.leading is None:
            return None
        return leader.leading if leader.leading.core.leader_epoch == self.state.leader_epoch else None

    def is_whole(self) -> bool:
        """Return whether the leader leads and every replica is in sync."""
        return self.leading is not None and set(self.state.isr) == set(self.brokers)

    def is_equal(self) -> bool:
        """Return whether all logs are equal, and all replicas know that all records are committed."""
        logs = [broker.log for broker in self.brokers.values()]
        end = logs[0].log_end_offset
        return all(log.high_watermark == log.log_end_offset == end and log.chain == logs[0].chain for log in logs)


@cache
def _config(settings: ReplicaSettings) -> NodeConfig:
    return NodeConfig.parse(
        {
            "node.id": "100",
            "process.roles": "controller",
            "listeners": "CONTROLLER://localhost:9192",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "controller.quorum.voters": "100@localhost:9192",
            "log.dirs": "/data",
            "min.insync.replicas": str(settings.min_isr),
            "broker.session.timeout.ms": str(settings.session_timeout_ms),
            "broker.heartbeat.interval.ms": str(settings.heartbeat_ms),
        }
    )
