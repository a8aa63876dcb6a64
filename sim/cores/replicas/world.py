"""The replicas of one partition under one seed: brokers 1..n, the controller, producers, and what may be done."""

from __future__ import annotations

from collections import Counter
from collections.abc import MutableSequence
from dataclasses import dataclass
from functools import cache

from kraft.config import NodeConfig
from kraft.image import MetadataImage, PartitionState
from kraft.sim.cores.replicas.broker import Broker
from kraft.sim.cores.replicas.controller import Controller
from kraft.sim.cores.replicas.leading import Leading
from kraft.sim.cores.replicas.links import Links, Process, ReplicaOdds
from kraft.sim.cores.replicas.log import Batch
from kraft.sim.cores.replicas.witness import ReplicaWitness

CLUSTER = "sim-cluster"
TOPIC = "t"


@dataclass(frozen=True, slots=True)
class ReplicaSettings:
    """The settings that matter here, much shorter than Kafka's. Times in ms."""

    min_isr: int = 1
    lag_ms_max: int = 600
    session_timeout_ms: int = 900
    heartbeat_ms: int = 150


class ReplicaWorld(Links):
    """Everything; each input to a core is one step."""

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
        """What a schedule must bring about, or its checks have nothing to look at: elections, ISR changes …"""
        self.trace: MutableSequence[str] | None = None
        """Where every step is written down, if anywhere."""
        self._tokens = self._batches = 0
        ids = range(1, replicas + 1)
        self.brokers = {one: Broker(self, one, self.chance.uuid()) for one in ids}
        config = _config(self.settings)
        self.controller = Controller(self, config, tuple(ids))
        self._write_interval_ms = 0
        self.cut_for_good: frozenset[tuple[int, int]] = frozenset()
        """Directed pairs that `heal` leaves as they are."""

    # what the parts ask of it

    def stepped(self, process: Process, what: str, *facts: object) -> None:
        """A core of this process has taken an input, and what it asked for is done."""
        self.steps += 1
        if self.trace is not None:
            self.trace.append(f"{self.now} {process.node_id} {what} {facts}")
        if process.node_id:
            self.witness.after_step(self.brokers[process.node_id])

    def next_token(self) -> int:
        self._tokens += 1
        return self._tokens

    def make_batch(self, base_offset: int, count: int, epoch: int, chain: int) -> Batch:
        """Records that there were never before, behind a log with this chain."""
        self._batches += 1
        return Batch(base_offset, base_offset + count, epoch, hash((chain, epoch, base_offset, self._batches)))

    def acknowledged(self, leading: Leading, batch: Batch) -> None:
        """A producer is told that this batch is safe."""
        self.happened["acknowledged"] += 1
        self.witness.on_acknowledge(leading, batch)

    def partition_of(self, image: MetadataImage) -> PartitionState:
        """The one partition."""
        topic = image.topics.get(TOPIC)
        assert topic is not None
        return topic.partition(0)

    # life and death

    def start(self, *node_ids: int) -> None:
        """Start these brokers, or all."""
        for node_id in node_ids or tuple(self.brokers):
            if not self.brokers[node_id].is_up:
                self.brokers[node_id].start()

    def kill(self, node_id: int) -> None:
        """The process dies; the log stays, and its kernel closes its connections."""
        broker = self.brokers[node_id]
        if broker.is_up:
            self.controller.connection_ended(broker)
            broker.die()

    def lose_power(self, node_id: int) -> None:
        """The machine dies; a part of what is not synced goes too, and nobody is told."""
        broker = self.brokers[node_id]
        if broker.is_up:
            log = broker.log
            broker.die(log.synced + self.chance.below(len(log.batches) - log.synced + 1))

    def stop(self, node_id: int) -> None:
        """The broker is asked to stop in order."""
        self.brokers[node_id].wants_stop = True

    # the links

    def partition(self, *groups: tuple[int, ...]) -> None:
        """Nothing arrives from one group in another. The controller is 0."""
        every = (0, *self.brokers)
        self.cut = {(a, b) for a in every for b in every if a != b and not any(a in g and b in g for g in groups)}

    def heal(self) -> None:
        self.cut = set(self.cut_for_good)

    # the producers

    def write_every(self, interval_ms: int) -> None:
        """Producers that write until `stop_writing`, to whoever takes itself for the leader."""
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

    # what can be asked

    @property
    def state(self) -> PartitionState:
        """The partition as it is committed."""
        return self.partition_of(self.controller.committed)

    @property
    def leading(self) -> Leading | None:
        """The leadership that the committed metadata name, once it has begun."""
        leader = self.brokers.get(self.state.leader)
        if leader is None or leader.leading is None:
            return None
        return leader.leading if leader.leading.core.leader_epoch == self.state.leader_epoch else None

    def is_whole(self) -> bool:
        """Every replica is in sync with a leader that leads."""
        return self.leading is not None and set(self.state.isr) == set(self.brokers)

    def is_equal(self) -> bool:
        """Every log holds the same, and everyone knows that it is committed."""
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
