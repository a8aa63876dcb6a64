"""The active controller with production's decisions, image, replay and sessions. The metadata quorum behind it is
reduced to one number, the committed offset.

It is driven as `kraft.controller.controller` and `controller_commands` drive the production code. Events are replayed
at once into the speculative image, and committed later in their order. A reply is sent when all that it depends on is
committed. A new controller keeps what was committed, perhaps also what was not, and has no sessions. Dead brokers are
reported some time after their end and when they return, as the failure detector would (`kraft.control.brokers.probing`
is not part of this).
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
    from kraft.sim.cores.replicas.broker import CoreBroker
    from kraft.sim.cores.replicas.world import ReplicaWorld

LOOK_MS = 100
REBALANCE_MS = 4_000
NOTICED_MS = (60, 160)
"""Time from the death of a process to its fence: the time of two probes."""
CONNECTIONS_PER_BROKER = 1_000_000
"""Factor for numbers of connections: a connection's number is the broker's id times this, plus the broker's
incarnation."""


class _AppendedBatch(NamedTuple):
    """Appended events, with the image before and after them."""

    before: MetadataImage
    after: MetadataImage
    events: tuple[Event, ...]


class _PendingReply(NamedTuple):
    """A reply that waits, and the offset that must be committed before it is sent. `image_offset`: the end offset of
    the image from which the reply was made."""

    depends_on: int
    image_offset: int
    reply: Any
    broker: CoreBroker
    life: int
    what: str
    token: int


class CoreController(Process):
    """The active controller. `image` is speculative: it contains uncommitted events. `committed` is the image that
    brokers get."""

    def __init__(self, world: ReplicaWorld, config: NodeConfig, replicas: tuple[int, ...]) -> None:
        super().__init__(0)
        self.is_up = True
        self.world = world
        self.config = config
        self.image = self.committed = MetadataImage()
        self.sessions = Sessions(world.settings.session_timeout_ms)
        self._epoch = 1
        self._is_active = True
        self._appended: deque[_AppendedBatch] = deque()
        self._parked: deque[_PendingReply] = deque()
        self._rebalanced_ms = 0
        self._create(replicas)

    def _create(self, replicas: tuple[int, ...]) -> None:
        """Make the initial cluster, before any broker registers: a topic of one partition, to be led by its first
        replica."""
        bootstrap = decide(self.image, self._context(), ActivateController()).events
        topic_id = self.world.topic_id
        partition = Partition(topic_id, 0, replicas, replicas[:1])
        events = (*bootstrap, Topic("t", topic_id), partition)
        self.image = self.committed = replay(self.image, events, len(events), self._epoch)

    def start(self) -> None:
        """Check the timers from now on."""
        self.world.after(self, LOOK_MS, self._look)

    # requests

    def receive(self, broker: CoreBroker, life: int, what: str, token: int, command: Any) -> None:
        """Handle a broker's request."""
        if not self._is_active or not broker.is_waiting_for(life, what, token):
            return
        if isinstance(command, Heartbeat):
            self._hear(broker, life, command)
            command = command.command
        elif isinstance(command, RegisterBrokerCommand):
            command = self._probed(broker, life, command)
        self._submit(command, (broker, life, what, token))

    def _hear(self, broker: CoreBroker, life: int, heartbeat: Heartbeat) -> None:
        command, log_ends, log_epochs = heartbeat
        known = self.image.brokers.get(command.broker_id)
        if known is None or known.broker_epoch != command.broker_epoch:
            return
        number = _connection(broker.node_id, life)
        now_ms, offset = self.world.now, command.metadata_offset
        self.sessions.record_heartbeat(
            command.broker_id, command.broker_epoch, number, now_ms, offset, log_ends, log_epochs
        )
        if offset < self.committed.offset:
            self.world.send(self, broker, broker.receive_image, self.committed)

    def _probed(self, broker: CoreBroker, life: int, command: RegisterBrokerCommand) -> RegisterBrokerCommand:
        """Detect that a returning broker is a new process, while the session of its previous process is still active.
        This happens for half of the returns."""
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

    def _submit(self, command: Any, asker: tuple[CoreBroker, int, str, int] | None = None) -> None:
        """Decide the command and all commands that follow from it."""
        world, reply, depends_on = self.world, None, 0
        while command is not None:
            before = self.image
            decision = decide(before, self._context(), command)
            depends_on = max(decision.depends_on, self._append(decision))
            self._decided(command, decision)
            if isinstance(command, AlterPartition):
                self._report_accepted(command, decision, before)
            self._report_recovery(self.world.partition_of(before), self.world.partition_of(self.image))
            reply, command = decision.reply, decision.follow_up
            world.stepped(self, "decided", decision.events, reply)
        if asker is not None:
            self._parked.append(_PendingReply(depends_on, self.image.offset, reply, *asker))
            self._release()

    def _append(self, decision: Decision) -> int:
        """Append the events to the log and the speculative image; return their end offset."""
        if not decision.events:
            return 0
        before, world = self.image, self.world
        end = before.offset + len(decision.events)
        self.image = replay(before, decision.events, end, self._epoch)
        self._appended.append(_AppendedBatch(before, self.image, decision.events))
        world.at(world.between(world.odds.commit), self._commit, self._epoch, end)
        return end

    def _decided(self, command: Any, decision: Decision) -> None:
        """Update the controller's volatile state after a decision (`kraft.controller.controller.Controller.decided` in
        production)."""
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

    def _report_accepted(self, command: AlterPartition, decision: Decision, before: MetadataImage) -> None:
        rows = decision.reply.partitions
        if decision.events or (rows and rows[0].error_code == ErrorCode.NONE):
            self.world.witness.on_accepted(self.world.partition_of(before), before, command)

    def _report_recovery(self, before: PartitionState, after: PartitionState) -> None:
        """Report an election that is based on the log ends that present incarnations have reported, because ISR and ELR
        were empty."""
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
        """Commit what was appended in `epoch` up to `end`."""
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

    # dead brokers and timers

    def connection_ended(self, broker: CoreBroker) -> None:
        """Handle the end of a broker's process. `broker.life` still names the incarnation that ended."""
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
        """Remove the active controller, and with it every pending reply. The next controller is active after
        `pause_ms`; it may or may not have the uncommitted appends."""
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
