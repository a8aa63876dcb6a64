"""The active controller over a metadata quorum that is one number: production's decisions, image, replay and sessions.

Driven as `kraft.controller.controller` and `controller_commands` drive them: events are replayed at once into the
speculative image, and committed a while later in their order; a reply leaves when all that it rests on is committed;
whoever takes over keeps what was committed and perhaps what was not, and knows no session. The dead are told of as the
failure detector would tell (`kraft.control.brokers.probing` is no part of this): some time after their end, and when
they return.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from kraft.config import NodeConfig
from kraft.control import AlterPartition, Context, Decision, ShutdownOffset, decide
from kraft.control.commands import (
    ActivateController,
    ElectLeaderless,
    FenceBrokers,
    FenceCause,
    FenceTarget,
    RebalanceLeaders,
    RegisterBrokerCommand,
)
from kraft.controller.broker_sessions import Sessions
from kraft.image import MetadataImage, PartitionState, replay
from kraft.image.events import BrokerRegistrationChange, Event, Partition, RegisterBroker, Topic
from kraft.image.partitions import NO_LEADER
from kraft.sim.cores.replicas.links import Process
from kraft.sim.cores.replicas.messages import Heartbeat
from kraft.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kraft.sim.cores.replicas.broker import Broker
    from kraft.sim.cores.replicas.world import ReplicaWorld

LOOK_MS = 100
REBALANCE_MS = 4_000
NOTICED_MS = (60, 160)
"""From the death of a process to its fence: two probes."""
CONNECTIONS_PER_BROKER = 1_000_000
"""A connection's number is the broker's id times this, and its life."""


class _Batch(NamedTuple):
    """Events that are appended: what the image is with them, what it was before."""

    before: MetadataImage
    after: MetadataImage
    events: tuple[Event, ...]


class _Parked(NamedTuple):
    """A reply, and the offset that must be committed before it leaves. `image_offset`: the end of the image that it was
    made from."""

    depends_on: int
    image_offset: int
    reply: Any
    broker: Broker
    life: int
    what: str
    token: int


class Controller(Process):
    """Whoever is active. `image` is speculative, `committed` is what brokers are told."""

    def __init__(self, world: ReplicaWorld, config: NodeConfig, replicas: tuple[int, ...]) -> None:
        super().__init__(0)
        self.is_up = True
        self.world = world
        self.config = config
        self.image = self.committed = MetadataImage()
        self.sessions = Sessions(world.settings.session_timeout_ms)
        self._epoch = 1
        self._is_active = True
        self._appended: deque[_Batch] = deque()
        self._parked: deque[_Parked] = deque()
        self._rebalanced_ms = 0
        self._create(replicas)

    def _create(self, replicas: tuple[int, ...]) -> None:
        """The cluster as it is when all brokers are still to come: a topic of one partition, which its first replica is
        to lead."""
        bootstrap = decide(self.image, self._context(), ActivateController()).events
        topic_id = self.world.topic_id
        partition = Partition(topic_id, 0, replicas, replicas[:1])
        events = (*bootstrap, Topic("t", topic_id), partition)
        self.image = self.committed = replay(self.image, events, len(events), self._epoch)

    def start(self) -> None:
        """Look at the timers from now on."""
        self.world.after(self, LOOK_MS, self._look)

    # requests

    def receive(self, broker: Broker, life: int, what: str, token: int, command: Any) -> None:
        """A broker asks."""
        if not self._is_active or not broker.is_waiting_for(life, what, token):
            return
        if isinstance(command, Heartbeat):
            self._hear(broker, life, command)
            command = command.command
        elif isinstance(command, RegisterBrokerCommand):
            command = self._probed(broker, life, command)
        self._submit(command, (broker, life, what, token))

    def _hear(self, broker: Broker, life: int, heartbeat: Heartbeat) -> None:
        command, log_ends, log_epochs = heartbeat
        known = self.image.brokers.get(command.broker_id)
        if known is None or known.broker_epoch != command.broker_epoch:
            return
        number = _connection(broker.node_id, life)
        now_ms, offset = self.world.now, command.metadata_offset
        self.sessions.heard(command.broker_id, command.broker_epoch, number, now_ms, offset, log_ends, log_epochs)
        if offset < self.committed.offset:
            self.world.send(self, broker, broker.receive_image, self.committed)

    def _probed(self, broker: Broker, life: int, command: RegisterBrokerCommand) -> RegisterBrokerCommand:
        """Half of those that return are found to be another process than the one whose session is live."""
        old = self.image.brokers.get(command.broker_id)
        if old is None or life != broker.life or old.incarnation_id == command.incarnation_id:
            return command
        if self.world.chance.below(2):
            return command
        return replace(command, dead_broker_epoch=old.broker_epoch)

    # deciding

    def _context(self) -> Context:
        return Context(
            now_ms=self.world.now,
            next_offset=self.image.offset,
            seed=self.world.chance.getrandbits(32),
            config=self.config,
            cluster_id=self.world.cluster_id,
            sessions=self.sessions.view,
            recently_fenced=self.sessions.recently_fenced,
        )

    def _submit(self, command: Any, asker: tuple[Broker, int, str, int] | None = None) -> None:
        """Decide it and all that follows from it."""
        world, reply, depends_on = self.world, None, 0
        while command is not None:
            before = self.image
            decision = decide(before, self._context(), command)
            depends_on = max(decision.depends_on, self._append(decision))
            self._decided(command, decision)
            if isinstance(command, AlterPartition):
                self._tell_accepted(command, decision, before)
            self._tell_recovery(self.world.partition_of(before), self.world.partition_of(self.image))
            reply, command = decision.reply, decision.follow_up
            world.stepped(self, "decided", decision.events, reply)
        if asker is not None:
            self._parked.append(_Parked(depends_on, self.image.offset, reply, *asker))
            self._release()

    def _append(self, decision: Decision) -> int:
        """The events into the log and the speculative image; where they end."""
        if not decision.events:
            return 0
        before, world = self.image, self.world
        end = before.offset + len(decision.events)
        self.image = replay(before, decision.events, end, self._epoch)
        self._appended.append(_Batch(before, self.image, decision.events))
        world.at(world.between(world.odds.commit), self._commit, self._epoch, end)
        return end

    def _decided(self, command: Any, decision: Decision) -> None:
        """The volatile side (`kraft.controller.controller.Controller.decided`)."""
        now = self.world.now
        if isinstance(command, FenceBrokers) and command.cause is FenceCause.PROCESS_DIED and decision.events:
            for target in command.targets:
                self.sessions.fenced_fast(target.broker_id, now)
        for event in decision.events:
            if isinstance(event, RegisterBroker) and command.dead_broker_epoch is not None:
                self.sessions.fenced_fast(event.broker_id, now)
            if isinstance(event, BrokerRegistrationChange) and event.fenced is False:
                self.sessions.unfenced(event.broker_id)
        for effect in decision.effects:
            if isinstance(effect, ShutdownOffset):
                self.sessions.shutdown_offset(effect.broker_id, effect.broker_epoch, effect.offset)

    def _tell_accepted(self, command: AlterPartition, decision: Decision, before: MetadataImage) -> None:
        rows = decision.reply.partitions
        if decision.events or (rows and rows[0].error_code == ErrorCode.NONE):
            self.world.witness.on_accepted(self.world.partition_of(before), before, command)

    def _tell_recovery(self, before: PartitionState, after: PartitionState) -> None:
        """With ISR and ELR empty a leader is taken by what the brokers of now have told of the partition as it is."""
        if before.isr or before.elr or after.leader_epoch == before.leader_epoch or after.leader == NO_LEADER:
            return
        world, told, waited_ms = self.world, [], 0
        for broker_id, session in self.sessions.view.items():
            end = session.log_ends.get((world.topic_id, 0))
            known = self.image.brokers[broker_id]
            if end is None or end.partition_epoch != before.partition_epoch:
                continue
            if known.is_active and session.broker_epoch == known.broker_epoch:
                told.append(world.brokers[broker_id])
                if broker_id in before.last_known_elr:
                    waited_ms = world.now - end.since_ms
        world.witness.on_recovery(told, world.brokers[after.leader], after.leader_epoch, waited_ms)

    # committing

    def _commit(self, epoch: int, end: int) -> None:
        """What was appended in `epoch` is committed up to `end`."""
        if epoch == self._epoch:
            self._commit_up_to(end)
            self._release()
            self._publish()

    def _commit_up_to(self, end: int) -> None:
        appended = self._appended
        while appended and appended[0].after.offset <= end:
            before, after, events = appended.popleft()
            self.committed = after
            self._count(self.world.partition_of(before), self.world.partition_of(after))
            self.world.witness.on_commit(self.world, before, after, events)

    def _count(self, before: PartitionState, after: PartitionState) -> None:
        happened = self.world.happened
        if after.leader != NO_LEADER and after.leader_epoch != before.leader_epoch:
            kind = "election"
            if after.leader not in before.isr:
                kind = "election from the ELR" if after.leader in before.elr else "election of the furthest"
            happened[kind] += 1
        happened["ISR shrink"] += not set(before.isr) <= set(after.isr)
        happened["ISR expansion"] += not set(after.isr) <= set(before.isr)

    def _release(self) -> None:
        parked, committed = self._parked, self.committed.offset
        while parked and parked[0].depends_on <= committed:
            _, image_offset, reply, broker, life, what, token = parked.popleft()
            self.world.witness.on_reply(image_offset, committed)
            if broker.life == life:
                self.world.send(self, broker, broker.receive_answer, what, token, reply)

    def _publish(self) -> None:
        for broker in self.world.brokers.values():
            if broker.is_up:
                self.world.send(self, broker, broker.receive_image, self.committed)

    # brokers that die, and timers

    def connection_ended(self, broker: Broker) -> None:
        """The process is gone; `broker.life` is still that of it."""
        number, known = _connection(broker.node_id, broker.life), self.image.brokers.get(broker.node_id)
        self.sessions.connection_ended(number)
        if known is not None and known.incarnation_id == broker.incarnation_id:
            target = FenceTarget(broker.node_id, known.broker_epoch, number)
            self.world.after(self, self.world.between(NOTICED_MS), self._fence, target)

    def _fence(self, target: FenceTarget) -> None:
        if self._is_active:
            self._submit(FenceBrokers(targets=(target,), cause=FenceCause.PROCESS_DIED))

    def _look(self) -> None:
        now = self.world.now
        self.world.after(self, LOOK_MS, self._look)
        if not self._is_active:
            return
        expired = self.sessions.expired(self.image, now)
        if expired:
            self._submit(FenceBrokers(targets=expired, cause=FenceCause.SESSION_EXPIRED))
        if self.sessions.end_recent_fences(now):
            self._submit(ElectLeaderless())
        if now - self._rebalanced_ms >= REBALANCE_MS:
            self._rebalanced_ms = now
            self._submit(RebalanceLeaders())

    def fail_over(self, pause_ms: int, *, keeps_appended: bool) -> None:
        """The active controller is gone, and with it every reply that waits. The next one is active in `pause_ms`, and
        has what was appended and not committed, or has it not."""
        if keeps_appended:
            self._commit_up_to(self.image.offset)
        self._appended.clear()
        self._parked.clear()
        self.image = self.committed
        self._epoch += 1
        self._is_active = False
        self.sessions.clear()
        self.world.after(self, pause_ms, self._activate, self._epoch)

    def _activate(self, epoch: int) -> None:
        if epoch == self._epoch:
            self._is_active = True
            connections = {
                broker.node_id: (_connection(broker.node_id, broker.life), broker.is_up)
                for broker in self.world.brokers.values()
            }
            self.sessions.begin(self.image, self.world.now, connections)
            self._publish()


def _connection(node_id: int, life: int) -> int:
    return node_id * CONNECTIONS_PER_BROKER + life
