"""Passes what happens in the simulated world through the observers to the checks, in one order.

After each pass of a node's event loop its disk is observed first, then the committed metadata, then its state, and only
then what it sends. So a message is compared with what its sender's disk would keep when it is sent. Watching draws no
random numbers and takes no virtual time.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from uuid import UUID

from kraft.broker.node.serve import Node
from kraft.broker.partition.partition import Partition
from kraft.broker.partition.partition_states import Transition
from kraft.config import topic_value
from kraft.image import ConfigResourceType, MetadataImage
from kraft.seam import CloseReason, DialOutcome, Peer
from kraft.sim.check.observations import (
    BrokerFenced,
    HeartbeatHandled,
    LogCut,
    NodeDown,
    Observation,
    PreVoteAnswered,
    ProcessDied,
    ProduceAcknowledged,
    ProduceAnswered,
    Restarted,
    RoleSeen,
    TimeElapsed,
    TopicPartition,
)
from kraft.sim.check.suite import Suite
from kraft.sim.cluster.altered_settings import SettingChange, changes_in
from kraft.sim.cluster.chronicle import Chronicle
from kraft.sim.cluster.disk_observer import DiskObserver, StoredBatch
from kraft.sim.cluster.fold import FenceRecorded, MetadataFold
from kraft.sim.cluster.group_observer import GroupObserver
from kraft.sim.cluster.labels import TopicLabels
from kraft.sim.cluster.node_observer import FenceDecided, NodeObserver
from kraft.sim.cluster.shape import ClusterShape, host_name, node_of
from kraft.sim.cluster.wire_observer import ProducedBatch, WireObserver
from kraft.sim.world.endpoint import FakeEndpoint
from kraft.sim.world.world import World
from kraft.storage.log_dir import CLEAN_SHUTDOWN
from kraft.wire.rpc.controller_messages import ForwardRequest, HeartbeatRequest

STEADY_MS = 100
"""Time for which the leader must have handled a voter's fetches of its epoch, on one connection that is still open,
until the leader and the voter count as in contact."""
FETCH_GAP_MS_MAX = 1_000
"""Maximum time between two fetches of a voter that is in contact. A fetch that waits for records takes half of it."""

WITHOUT_FETCHES_TIMEOUTS = 2.7
"""Number of fetch timeouts until a leader from which no majority fetches must have resigned. It resigns after 1.5
timeouts by its own clock; one timeout more is allowed, because clocks drift."""

LOOK_MS = 100
"""Minimum interval in ms between two observations (TimeElapsed) that time has passed."""

LOOKS_LATE_MS = 20
"""Maximum delay with which the begin of a session may be observed, after its controller started to count."""


@dataclass(frozen=True, slots=True)
class _Contact:
    """A voter's fetch of `epoch`, handled by its leader."""

    leader: int
    epoch: int
    endpoint: FakeEndpoint
    since_ms: int
    last_ms: int


class ClusterWatch:
    """Implements the callbacks of the world (WorldObserver) and the queries of the network observer
    (ObservedCluster)."""

    def __init__(self, world: World, shape: ClusterShape, *, link_latency_ms: int) -> None:
        self.shape = shape
        self._config = shape.config(shape.broker_ids[0] if shape.broker_ids else shape.controller_ids[0])
        self.suite = Suite(
            frozenset(shape.controller_ids),
            link_latency_ms=link_latency_ms,
            unheard_ms_max=int(WITHOUT_FETCHES_TIMEOUTS * self._config.integer("controller.quorum.fetch.timeout.ms")),
            is_steady=self._is_steady,
        )
        self.chronicle = Chronicle(self.suite.shadows, lambda: self.now_ms)
        self.labels = TopicLabels()
        self._lives: dict[UUID, int] = {}
        """Incarnation id of a broker → number of that incarnation, counted from its node's first start."""
        self.fold = MetadataFold(
            self.tell,
            self._fence_recorded,
            self._min_isr,
            lambda: self.now_ms,
            self.labels,
            self.suite.leader_in_sync.may_take,
            self._lives,
        )
        self.nodes: dict[int, NodeObserver] = {}
        self.transitions: list[Counter[Transition]] = []
        """Count of each replica state transition, for each incarnation of each broker."""
        self.active_controller: int | None = None
        self.forwarded: dict[tuple[str, int], list[int]] = {}
        """(client id, timeout in ms) of a forwarded request → the controllers that handled it while they were active,
        once for each time."""
        self.altered: Counter[SettingChange] = Counter()
        """A forwarded change of a setting → number of times that a controller handled it while it was active."""
        self._world = world
        self._next_look_ms = 0
        self._session_timeout_ms = self._config.integer("broker.session.timeout.ms")
        self._wire = WireObserver(self, self.tell, lambda: self.now_ms)
        self.group_observers: list[GroupObserver] = []
        """Further observers of what a host sends."""
        self._disks = {
            node: DiskObserver(node, world.host(host_name(node)), self.tell, self.labels, self.fold.take)
            for node in shape.node_ids
        }
        self._losing: int | None = None
        """The node whose disk is just now losing bytes by a fault, if that loss counts as damage."""
        self._roles: dict[int, RoleSeen] = {}
        self._active_since: dict[int, int] = {}
        """Epoch of the quorum → time when its leader was first observed to lead."""
        self._leaders: dict[int, int] = {}
        self._contacts: dict[int, _Contact] = {}
        self._heard: dict[tuple[int, int, int], int] = {}
        """(epoch of the quorum, broker, broker epoch) → time when the leader of that epoch last received a message from
        this broker. Messages that the same controller receives in a later epoch are no evidence against an earlier
        fence."""
        self._connections: dict[tuple[int, int, int], int] = {}
        self._wants_in: set[tuple[int, int]] = set()
        """(broker, epoch) pairs whose last heartbeat requested to be unfenced; the unfencing may not be committed yet.
        """
        self._asked_for_it: Counter[tuple[int, int]] = Counter()
        """(broker, epoch) → number of uncommitted fences that the broker requested, by a late heartbeat or by a
        shutdown request."""
        self._decided: dict[tuple[int, int, int], tuple[FenceDecided, int | None]] = {}
        self._age_at_begin: dict[tuple[int, int, int], int] = {}
        """(epoch of the quorum, broker, broker epoch) → age of the last message when the newest decision to fence
        began. A heartbeat between two slices of the decision does not revoke it."""
        world.watch(self)

    @property
    def now_ms(self) -> int:
        return self._world.now_ns // 1_000_000

    def tell(self, observation: Observation) -> None:
        """Pass an observation to the checks, after updating the state of this object."""
        if isinstance(observation, RoleSeen):
            self._role_seen(observation)
        elif isinstance(observation, LogCut) and observation.log is not None:
            node, log, damage = observation.node, observation.log, self.suite.damage
            is_shorter = observation.end_offset < self.suite.shadows.log(node, log).end_offset
            if is_shorter and (node == self._losing or damage.may_be_cut(node, log, observation.end_offset)):
                damage.lost(node, log)
        self.chronicle.observe(observation, self.fold.image)
        self.suite.observe(observation, self.now_ms)

    # starts and ends of nodes

    def started(self, node_id: int, node: Node, incarnation: int) -> None:
        """Begin to observe a node that has started."""
        if node.broker is not None:
            self._lives[node.broker.broker.incarnation_id] = incarnation
            self.transitions.append(node.broker.broker.replicas.host.transitions)
        self.nodes[node_id] = NodeObserver(node_id, incarnation, node, self.tell, self._fence_decided, self.labels)

    def restarted(self, node_id: int, incarnation: int, *, clean: bool, wiped: bool) -> None:
        is_marked = all(
            self._disks[node_id].has(f"{path}/{CLEAN_SHUTDOWN}") for path in self.shape.log_dirs_of(node_id)
        )
        self.tell(Restarted(node_id, incarnation, clean, wiped, is_marked))

    def stored_batches(self, node_id: int, log: TopicPartition) -> list[StoredBatch]:
        """Return the batches of a partition's log that no crash can change any more; see
        `DiskObserver.stored_batches`."""
        return self._disks[node_id].stored_batches(log)

    def wiped(self, node_id: int) -> None:
        """Record that the disk of a node that is down lost folders or was emptied, so that synced records are lost as
        well."""
        self._observe_loss(node_id)

    def died(self, node_id: int, *, lost_power: bool, is_noticed: bool) -> None:
        """Record that a node has crashed. `is_noticed`: other nodes can notice it at once, so the time limits of
        failure detection (K6) apply. Where each record is synced, a power loss excuses no lost record."""
        was_active = self.active_controller == node_id
        self._down(node_id)
        if lost_power and not self.shape.is_durable:
            self._losing = node_id
        if lost_power:
            self._disks[node_id].observe_after_power_loss()
        else:
            self._disks[node_id].observe()
        self._losing = None
        if not lost_power:
            role = "controller" if node_id in self.shape.controller_ids else "broker"
            died = ProcessDied(node_id, frozenset({role}), was_active, is_noticed, self.now_ms)
            self.tell(died)

    def stopped(self, node_id: int) -> None:
        """Record that a node has stopped cleanly."""
        self._down(node_id)
        self._disks[node_id].observe()

    def _observe_loss(self, node_id: int) -> None:
        """Record what a disk has lost since the last observation as damage."""
        self._losing = node_id
        self._disks[node_id].observe()
        self._losing = None

    def _down(self, node_id: int) -> None:
        """Drop an incarnation that has ended, and its connections."""
        self.chronicle.incarnation_ended(node_id)
        self.tell(NodeDown(node_id))
        self.nodes.pop(node_id, None)
        self._contacts.pop(node_id, None)
        if self.active_controller == node_id:
            self.active_controller = None
        self._connections = {place: number for place, number in self._connections.items() if place[0] != node_id}

    # callbacks of the world

    def handled(self, node: str) -> None:
        """Observe a node after a pass of its event loop, before anything that it sends is passed on."""
        if self.now_ms >= self._next_look_ms:
            self._report_time()
        node_id = node_of(node)
        if node_id is None:
            return
        observer = self.nodes.get(node_id)
        if observer is not None:
            observer.observe_lost_role()
        self._disks[node_id].observe()
        if observer is not None:
            observer.observe()

    def _report_time(self) -> None:
        self._next_look_ms = self.now_ms + LOOK_MS
        self.tell(TimeElapsed(frozenset(node for node in self.nodes if self._world.is_paused(host_name(node)))))

    def sending(self, endpoint: FakeEndpoint, data: bytes) -> None:
        self._wire.sending(endpoint, data)
        for observer in self.group_observers:
            observer.sending(endpoint, data)

    def receiving(self, endpoint: FakeEndpoint, count: int) -> None:
        self._wire.receiving(endpoint, count)

    def received(self, endpoint: FakeEndpoint, count: int) -> None:
        self._wire.received(endpoint, count)

    def ended(self, endpoint: FakeEndpoint, reason: CloseReason) -> None:
        self._wire.ended(endpoint, reason)

    def dial_failed(self, node: str, peer: Peer, outcome: DialOutcome) -> None:
        node_id = node_of(node)
        if node_id is not None:
            self._wire.dial_failed(node_id, peer, outcome)

    # queries and reports of the network observer (WireObserver)

    def incarnation_of(self, controller: int, broker: int) -> tuple[UUID, int] | None:
        observer = self.nodes.get(controller)
        registration = None if observer is None else observer.node.publisher.image.brokers.get(broker)
        return None if registration is None else (registration.incarnation_id, registration.broker_epoch)

    def directory_of(self, node: int) -> str:
        observer = self.nodes.get(node)
        return "" if observer is None else str(observer.node.identity.metadata.directory_id)

    def is_voter(self, node: int) -> bool:
        return node in self.shape.controller_ids

    def quorum_state_of(self, node: int) -> tuple[int, int, int]:
        observer = self.nodes.get(node)
        return (0, -1, -1) if observer is None else observer.quorum_state()

    def fetched(self, voter: int, leader: int, epoch: int, endpoint: FakeEndpoint) -> None:
        now_ms, before = self.now_ms, self._contacts.get(voter)
        goes_on = (
            before is not None
            and (before.leader, before.epoch, before.endpoint) == (leader, epoch, endpoint)
            and now_ms - before.last_ms <= FETCH_GAP_MS_MAX
        )
        since_ms = before.since_ms if before is not None and goes_on else now_ms
        self._contacts[voter] = _Contact(leader, epoch, endpoint, since_ms, now_ms)

    def heartbeat_handled(self, controller: int, request: HeartbeatRequest, connection: int) -> None:
        place = (controller, request.broker_id, request.broker_epoch)
        if not (request.want_fence or request.want_shut_down):
            self._wants_in.add(place[1:])
        elif place[1:] in self._wants_in and controller == self.active_controller:
            self._wants_in.discard(place[1:])
            self._asked_for_it[place[1:]] += 1
        self._hear(*place, connection)
        self.tell(HeartbeatHandled(*place, self.now_ms))

    def forward_handled(self, controller: int, request: ForwardRequest) -> None:
        role = self._roles.get(controller)
        if role is not None and role.is_leader:
            self.forwarded.setdefault((request.client_id, request.timeout_ms), []).append(controller)
            self.altered.update(changes_in(request))

    def registered(self, controller: int, broker: int, broker_epoch: int, connection: int) -> None:
        place = (controller, broker, broker_epoch)
        self._hear(*place, connection)

    def _hear(self, controller: int, broker: int, broker_epoch: int, connection: int) -> None:
        self._connections[controller, broker, broker_epoch] = connection
        role = self._roles.get(controller)
        if role is not None and role.is_leader:
            self._heard[role.epoch, broker, broker_epoch] = self.now_ms

    def _replica(self, node: int, topic: str | UUID, partition: int) -> Partition | None:
        observer = self.nodes.get(node)
        if observer is None or observer.node.broker is None:
            return None
        return observer.node.broker.broker.replicas.find(topic, partition)

    def hosted_log(self, node: int, topic: str | UUID, partition: int) -> TopicPartition | None:
        replica = self._replica(node, topic, partition)
        return None if replica is None else (self.labels.of(replica.topic_id, replica.topic), partition)

    def led_log(self, node: int, topic: str | UUID, partition: int) -> tuple[TopicPartition, int] | None:
        replica = self._replica(node, topic, partition)
        if replica is None or replica.leader is None:
            return None
        return (self.labels.of(replica.topic_id, replica.topic), partition), replica.leader.leader_epoch

    def log_end(self, node: int, log: TopicPartition) -> int:
        return self.suite.shadows.log(node, log).end_offset

    def produce_answered(self, node: int, base_offset: int, batch: ProducedBatch) -> None:
        log = batch.log
        replica = self._replica(node, log[0].partition("@")[0], log[1])
        if replica is None or replica.leader is None or self.labels.of(replica.topic_id, replica.topic) != log[0]:
            return
        next_offset = base_offset + batch.count
        written = self.suite.shadows.log(node, log).at_end(next_offset)
        is_new = written is not None and base_offset >= batch.log_end_then
        epoch_now = replica.leader.leader_epoch
        self.tell(
            ProduceAnswered(
                node,
                log,
                next_offset,
                replica.high_watermark,
                written.epoch if written is not None and is_new else epoch_now,
                epoch_now,
                len(replica.leader.isr.maximal),
                replica.leader.effective_min_isr,
            )
        )

    def produce_acknowledged(self, base_offset: int, batch: ProducedBatch) -> None:
        self.tell(ProduceAcknowledged(batch.log, base_offset, base_offset + batch.count))

    def prevote_answered(self, node: int, before: tuple[int, int, int]) -> None:
        self.tell(PreVoteAnswered(node, before, self.quorum_state_of(node)))

    # roles and committed metadata

    @property
    def newest_leadership(self) -> tuple[int, int]:
        """(epoch, node) of the newest leader of the quorum so far, whether or not that node still runs."""
        return max(self._leaders.items(), default=(0, 0))

    def _role_seen(self, seen: RoleSeen) -> None:
        self._roles[seen.node] = seen
        if seen.is_leader:
            self._leaders[seen.epoch] = seen.node
        if seen.is_leader and self.active_controller != seen.node:
            current = self._roles.get(self.active_controller or 0)
            if current is None or not current.is_leader or current.epoch < seen.epoch:
                self.active_controller = seen.node
                self._active_since[seen.epoch] = self.now_ms
        elif not seen.is_leader and self.active_controller == seen.node:
            self.active_controller = None
        if seen.high_watermark > self.fold.end_offset:
            self.fold.take(self._disks[seen.node].metadata_batches(self.fold.end_offset, seen.high_watermark))

    def _is_steady(self) -> bool:
        """Return whether a running leader has had contact with a majority for a while, so that no epoch should rise
        now."""
        leader = self.active_controller
        role = self._roles.get(leader or 0)
        if leader is None or role is None or leader not in self.nodes or len(self.shape.controller_ids) == 1:
            return False
        if self.shape.dynamic_voters:
            return False  # it is unknown which voters form the majority
        keeping = sum(
            (contact.leader, contact.epoch) == (leader, role.epoch) and self._keeps_contact(voter, contact)
            for voter, contact in self._contacts.items()
            if voter != leader and voter in self.nodes
        )
        return 2 * (keeping + 1) > len(self.shape.controller_ids)

    def _keeps_contact(self, voter: int, contact: _Contact) -> bool:
        there, here = host_name(voter), host_name(contact.leader)
        is_open = not (contact.endpoint.ended or self._world.is_cut(there, here) or self._world.is_cut(here, there))
        is_fresh = self.now_ms - contact.last_ms <= FETCH_GAP_MS_MAX
        return is_open and is_fresh and self.now_ms - contact.since_ms >= STEADY_MS

    def _min_isr(self, image: MetadataImage, topic: str) -> int:
        dynamic = image.configs_of(ConfigResourceType.BROKER, "")
        return int(str(topic_value("min.insync.replicas", image.topic_configs(topic), dynamic, self._config)))

    def _fence_decided(self, controller: int, decided: FenceDecided) -> None:
        role = self._roles.get(controller)
        if role is None:
            return
        place = (role.epoch, decided.broker, decided.broker_epoch)
        if decided.is_first:
            self._age_at_begin[place] = self._session_age(*place)
        if decided.is_fast:
            first = self._decided.get(place)
            connection = self._connections.get((controller, *place[1:])) if first is None else first[1]
            self._decided[place] = (decided, connection)

    def _fence_recorded(self, fence: FenceRecorded) -> None:
        broker, epoch = fence.broker.broker_id, fence.broker.broker_epoch
        controller = self._leaders.get(fence.epoch, 0)
        if self._asked_for_it[broker, epoch] and not fence.superseded:
            self._asked_for_it[broker, epoch] -= 1
            return
        place = (fence.epoch, broker, epoch)
        decided = self._decided.pop(place, None)
        age_at_begin = self._age_at_begin.pop(place, 0)
        self.tell(
            BrokerFenced(
                controller,
                broker,
                None if decided is None else decided[0].broker_epoch,
                epoch,
                None if decided is None else decided[0].connection,
                None if decided is None else decided[1],
                max(self._session_age(*place), age_at_begin),
                self._session_timeout_by(controller),
                fence.superseded,
                self.now_ms,
            )
        )

    def _session_age(self, epoch: int, broker: int, broker_epoch: int) -> int:
        """Return the time in ms since the leader of this epoch last received a message from the broker, or, if it has
        received none, since it became the leader."""
        heard_ms = self._heard.get((epoch, broker, broker_epoch), 0)
        return self.now_ms - max(heard_ms, self._active_since.get(epoch, 0))

    def _session_timeout_by(self, controller: int) -> int:
        """Return the minimum session timeout in virtual ms: the controller measures the timeout by its own clock, which
        drifts."""
        if controller not in self.shape.controller_ids:
            return self._session_timeout_ms - LOOKS_LATE_MS
        clock = self._world.host(host_name(controller)).clock
        return int(1000 * clock.virtual_seconds(self._session_timeout_ms)) - LOOKS_LATE_MS
