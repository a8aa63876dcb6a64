"""The controller of a node of the metadata quorum: active while it leads, a hot standby otherwise.

It listens to the quorum (after the publisher, so that the committed image is current), turns requests into commands,
and keeps volatile state: sessions, connections, probes, timers. Decisions are in `kraft.control`.

Invariants: only the active controller decides, on an image that it alone appended to in this epoch (M13). Uncommitted
state does not survive its leadership (B32). A heartbeat counts when it arrives.
Source: KIP-631, Kafka's QuorumController, docs/decisions/11-own-events-once.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import structlog
import trio

from kraft.config import NodeConfig
from kraft.control import (
    ActivateController,
    Context,
    Decision,
    FenceBrokers,
    FenceCause,
    ShutdownOffset,
)
from kraft.control.brokers.probing import (
    BecameActive,
    BecameStandby,
    BrokerConnectionEnded,
    BrokerForgotten,
    BrokerKnown,
    HeartbeatReceived,
    Probe,
    ProbeActions,
    ProbeAnswered,
    ProbeInput,
    ProbeOutcome,
    Probing,
    TimePassed,
)
from kraft.control.commands import ShutDownBroker
from kraft.control.decision import Authorize, allow_all
from kraft.controller.broker_sessions import Sessions
from kraft.controller.command_queue import CommandQueue
from kraft.controller.own_registration import OwnRegistration
from kraft.controller.periodic_work import PeriodicWork
from kraft.controller.probes import Prober
from kraft.controller.queries import answer_failed
from kraft.controller.request_handlers import REQUESTS
from kraft.controller.voter_membership import VoterMembership
from kraft.image import ImageDelta, MetadataImage
from kraft.image.events import BrokerRegistrationChange, RegisterBroker, UnregisterBroker
from kraft.node.peers import Peers
from kraft.quorum.publisher import MetadataPublisher, PreparedImage
from kraft.quorum.quorum import CommittedBatch, Quorum
from kraft.quorum.voter_changes import NOT_LEADER, VoterChange, VoterChanges, change_failed
from kraft.raft.voter_changes import VotersRefused
from kraft.seam import CloseReason, HandleRevoked, InvariantError, Seam, WireError
from kraft.wire.messages import CannotEncode
from kraft.wire.rpc.controller_messages import LogEndRow, LogEpochs
from kraft.wire.server import Request, ServerConnection

log = structlog.get_logger("kraft.controller")


def _error_fields(problem: Exception) -> dict[str, Any]:
    """Return the log fields for an exception: with its traceback, unless its text alone explains it."""
    return {"error": repr(problem), "exc_info": None if isinstance(problem, CannotEncode) else problem}


IDLE_MS = 60_000
"""Maximum milliseconds between two runs of the timers."""

OUR_REASONS = frozenset((CloseReason.LOCAL, CloseReason.BAD_BYTES, CloseReason.IDLE, CloseReason.SHUTDOWN))
"""Close reasons with which this node itself ended the connection."""


class Controller:
    """One node's controller. `handle` serves requests; `run` drives timers, probes and plans until cancelled."""

    def __init__(
        self,
        config: NodeConfig,
        seam: Seam,
        quorum: Quorum,
        publisher: MetadataPublisher,
        peers: Peers,
        *,
        cluster_id: str,
        authorize: Authorize = allow_all,
    ) -> None:
        self.config = config
        self.cluster_id = cluster_id
        self.quorum = quorum
        self.publisher = publisher
        self.peers = peers
        self.clock = seam.clock
        self.incarnation_id = seam.random.uuid()
        self.prober = Prober(config, peers, cluster_id)
        self.sessions = Sessions(config.integer("broker.session.timeout.ms"))
        self.probing = Probing()
        self.queue = CommandQueue(quorum, self, seam.clock)
        self.registration = OwnRegistration(
            config,
            seam.clock,
            quorum,
            publisher,
            peers,
            self.queue,
            cluster_id=cluster_id,
            incarnation_id=self.incarnation_id,
        )
        self.voter_changes = VoterChanges(config, quorum, peers, seam.clock, cluster_id)
        self.membership = VoterMembership(config, seam.clock, quorum, peers, cluster_id)
        self.periodic = PeriodicWork(config, self.queue, self.sessions, lambda: self.image)
        self.registrations_probed: set[int] = set()
        self._random = seam.random.stream("controller")
        self.authorize = authorize
        self._nursery: trio.Nursery | None = None
        self._timers_changed = trio.Event()
        self._work = trio.Event()
        self._probe_deadline_ms: int | None = None
        self._timers_await_queue = False
        """Whether the timers wait for the command queue to become free."""
        publisher.subscribe(self._published)
        publisher.subscribe_leader(lambda _leader_id, _epoch: self.registration.changed())
        quorum.add_listener(self)

    # callbacks of the quorum

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        """Release replies. The publisher has replayed the batches already."""
        if batches:
            self.queue.high_watermark_reached(batches[-1].next_offset)

    def on_snapshot(self, offset: int, epoch: int, records: Iterable[bytes]) -> None:
        """Do nothing: the publisher has loaded the snapshot. A leader never loads one."""
        if self.queue.is_active:
            raise InvariantError(f"the active controller was given a snapshot at offset {offset}")

    def replay_ahead(self, batch: CommittedBatch, events_max: int) -> None:
        """Do nothing: the publisher replays."""

    def load_ahead(self, offset: int, epoch: int, records: Sequence[bytes], events_max: int) -> Iterator[None]:
        """Do nothing: the publisher loads snapshots."""
        return iter(())

    def on_leader(self, leader_id: int | None, epoch: int) -> None:
        """Do nothing: the publisher stores the leader."""

    def on_became_leader(self, epoch: int, start_offset: int) -> None:
        """Start deciding: the image contains everything before this epoch."""
        committed = self.publisher.image
        now_ms = self.clock.monotonic_ms()
        log.info("active controller", node_id=self.config.node_id, epoch=epoch, offset=committed.offset)
        self.queue.activate(committed, epoch, self.quorum.high_watermark)
        connections = {broker_id: self.probing.connection(broker_id) for broker_id in committed.broker_ids()}
        self.sessions.begin(committed, now_ms, {one: known for one, known in connections.items() if known})
        self.probe(BecameActive())
        self.periodic.begin(now_ms)
        self.queue.submit(ActivateController())
        self.registration.changed()
        self.timers_changed()

    def on_lost_leadership(self) -> None:
        """Drop uncommitted state, and state that only the active controller keeps."""
        log.info("no longer the active controller", node_id=self.config.node_id)
        self.queue.deactivate()
        self.sessions.clear()
        self.registrations_probed.clear()
        self.probe(BecameStandby())
        self.timers_changed()

    def _published(self, _old: MetadataImage, new: MetadataImage, delta: ImageDelta) -> None:
        for broker_id in delta.brokers:
            broker = new.brokers.get(broker_id)
            if broker is None:
                self.probe(BrokerForgotten(broker_id))
            else:
                endpoint = self.prober.endpoint_of(broker)
                known = BrokerKnown(broker_id, broker.broker_epoch, broker.incarnation_id, endpoint, broker.fenced)
                self.probe(known)
        if delta.controllers:
            self.registration.changed()

    # callbacks of the command queue

    @property
    def image(self) -> MetadataImage:
        """The speculative image of the active controller, else the committed one."""
        return self.queue.image if self.queue.image is not None else self.publisher.image

    def context(self) -> Context:
        """Return the context of a decision made now."""
        return Context(
            now_ms=self.clock.monotonic_ms(),
            next_offset=self.quorum.log_end_offset,
            seed=self._random.below(1 << 128),
            config=self.config,
            cluster_id=self.cluster_id,
            sessions=self.sessions.view,
            being_fenced=self.queue.brokers_being_fenced(),
            directories_going_offline=self.queue.directories_going_offline(),
            recently_fenced=self.sessions.recently_fenced,
            authorize=self.authorize,
        )

    def appended(self, prepared: PreparedImage) -> None:
        """Give the publisher the new image, so that the publisher need not replay the batch when the batch commits."""
        self.publisher.prepare(prepared)

    def decided(self, command: Any, decision: Decision) -> None:
        """Update the volatile state for the events that were just appended."""
        if not decision.events:
            return
        now_ms = self.clock.monotonic_ms()
        if isinstance(command, FenceBrokers) and command.cause is FenceCause.PROCESS_DIED:
            for target in command.targets:
                self.sessions.fenced_fast(target.broker_id, now_ms)
        for event in decision.events:
            if isinstance(event, RegisterBroker):
                if command.dead_broker_epoch is not None:
                    self.sessions.fenced_fast(event.broker_id, now_ms)
                self.sessions.registered(event.broker_id, event.broker_epoch, now_ms)
            elif isinstance(event, BrokerRegistrationChange) and event.fenced is not None:
                self._fence_changed(command, event.broker_id, fenced=event.fenced)
            elif isinstance(event, UnregisterBroker):
                self.sessions.forget(event.broker_id)
        self.timers_changed()

    def _fence_changed(self, command: Any, broker_id: int, *, fenced: bool) -> None:
        if fenced:
            cause = command.cause.value if isinstance(command, FenceBrokers) else "heartbeat"
            log.info("broker is fenced", broker_id=broker_id, cause=cause)
        else:
            log.info("broker is unfenced", broker_id=broker_id)
            self.sessions.unfenced(broker_id)

    def shutdown_offset(self, effect: ShutdownOffset) -> None:
        """Store the offset at which a broker's controlled shutdown is complete in that broker's session."""
        self.sessions.shutdown_offset(effect.broker_id, effect.broker_epoch, effect.offset)

    def work_available(self) -> None:
        """Wake `run`, which then runs the steps of the command queue."""
        self._work.set()

    def failed(self, command: Any, problem: Exception) -> None:
        """Report the failure of one command. If the command was to make this controller active, raise instead: a
        controller that cannot become active stops its node."""
        log.error("command failed", command=type(command).__name__, **_error_fields(problem))
        if isinstance(command, ActivateController):
            raise InvariantError(f"this controller cannot become active: {problem!r}") from problem
        if isinstance(command, FenceBrokers):
            self.periodic.fence_failed(self.clock.monotonic_ms())
            self.timers_changed()
        elif isinstance(command, ShutDownBroker):  # the broker repeats its request, and the plan restarts
            self.sessions.shutdown_offset(command.broker_id, command.broker_epoch, None)

    def start_voter_change(self, asked: VoterChange, answer: Callable[[VotersRefused], None]) -> None:
        """Carry out a voter change in a task, and answer with its result. The answer also comes if this controller is
        not running, or ends meanwhile."""

        async def carry_out() -> None:
            outcome = NOT_LEADER
            try:
                outcome = await self.voter_changes.change(asked)
            except (InvariantError, HandleRevoked):
                raise
            except Exception as problem:
                log.exception("change of the voters failed", asked=str(asked))
                outcome = change_failed(problem)
            finally:
                answer(outcome)

        if self._nursery is None:
            answer(NOT_LEADER)
        else:
            self._nursery.start_soon(carry_out)

    # requests and connections

    def handle(self, request: Request) -> bool:
        """Serve a request of the controller listener; return False if its key is not served here. Raises WireError if
        the request does not parse."""
        handler = REQUESTS.get(request.api_key)
        if handler is None:
            return False
        try:
            handler(self, request)
        except (WireError, InvariantError):
            raise
        except Exception as problem:  # noqa: BLE001 - one request's trouble must not end the others
            log.error("request failed", api_key=request.api_key, client_id=request.client_id, **_error_fields(problem))
            if not request.is_answered:
                answer_failed(request)
        return True

    def connection_closed(self, connection: ServerConnection, reason: CloseReason) -> None:
        """Handle the end of a connection to the controller listener."""
        self.sessions.connection_ended(connection.number)
        self.probe(BrokerConnectionEnded(connection.number, reason in OUR_REASONS))

    def record_heartbeat(
        self,
        broker_id: int,
        broker_epoch: int,
        connection_number: int,
        metadata_offset: int = -1,
        log_ends: Sequence[LogEndRow] = (),
        log_epochs: Sequence[LogEpochs] = (),
    ) -> None:
        """Record a heartbeat or registration on this connection. A standby records it too, to know which connection
        belongs to which broker."""
        self.probe(HeartbeatReceived(broker_id, broker_epoch, connection_number))
        image = self.queue.image
        broker = None if image is None else image.brokers.get(broker_id)
        if broker is not None and broker.broker_epoch == broker_epoch:
            now_ms = self.clock.monotonic_ms()
            self.sessions.record_heartbeat(
                broker_id, broker_epoch, connection_number, now_ms, metadata_offset, log_ends, log_epochs
            )

    # probes

    def probe(self, happened: ProbeInput) -> None:
        """Give an input to the failure detector, and carry out its actions."""
        actions = self.probing.step(happened, self.clock.monotonic_ms())
        self._start_probes(actions)
        if actions.fence:
            log.info("brokers are gone", broker_ids=[target.broker_id for target in actions.fence])
            self.queue.submit_first(FenceBrokers(targets=actions.fence, cause=FenceCause.PROCESS_DIED))
        if actions.deadline_ms != self._probe_deadline_ms:
            self._probe_deadline_ms = actions.deadline_ms
            self.timers_changed()

    def _start_probes(self, actions: ProbeActions) -> None:
        for probe in actions.probes:
            self._start_probe(probe)

    def _start_probe(self, probe: Probe) -> None:
        def answered(outcome: ProbeOutcome) -> None:
            self.probe(ProbeAnswered(probe.probe_id, outcome))

        self.prober.probe(probe.broker_id, probe.incarnation_id, probe.endpoint, answered)

    # timers

    def timers_changed(self) -> None:
        """Wake the timers, because a deadline may now be earlier."""
        self._timers_changed.set()

    async def run(self) -> None:
        """Drive plans, timers and this controller's registration until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                nursery.start_soon(self._run_plans)
                nursery.start_soon(self._run_timers)
                nursery.start_soon(self.registration.run)
                nursery.start_soon(self.membership.run)
                await trio.sleep_forever()
            finally:  # before the last task has ended: a closed nursery would reject later requests
                self._nursery = None

    async def _run_plans(self) -> None:
        while True:
            await self._work.wait()
            self._work = trio.Event()
            while self.queue.run_next():
                if self._timers_await_queue and not self.queue.is_held:
                    self._timers_await_queue = False
                    self.run_due_timers()  # now, because a waiting command may hold the queue again in the next step
                    self.timers_changed()
                await trio.lowlevel.checkpoint()

    async def _run_timers(self) -> None:
        while True:
            self._timers_changed = trio.Event()
            pause_ms = max(0, self.next_deadline_ms() - self.clock.monotonic_ms())
            self._timers_await_queue = self.queue.is_held
            await self.clock.wait_at_most(self._timers_changed, pause_ms)
            self.run_due_timers()

    def next_deadline_ms(self) -> int:
        """Return when `run_due_timers` must run at the latest."""
        times = [self.clock.monotonic_ms() + IDLE_MS]
        if self._probe_deadline_ms is not None:
            times.append(self._probe_deadline_ms)
        if self._may_decide:
            times += self.periodic.deadlines_ms()
        return min(times)

    @property
    def _may_decide(self) -> bool:
        """Whether the queue is free and the log would accept events. The log accepts none while a resignation waits for
        the disk. Work that is due then waits until leadership is lost."""
        return self.queue.image is not None and not self.queue.is_held and self.quorum.is_leader

    def run_due_timers(self) -> None:
        """Carry out everything that is due by now."""
        now_ms = self.clock.monotonic_ms()
        if self._probe_deadline_ms is not None and self._probe_deadline_ms <= now_ms:
            self.probe(TimePassed())
        if self._may_decide:
            self.periodic.run_due(now_ms)
