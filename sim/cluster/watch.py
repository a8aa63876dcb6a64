"""The watch: what the world shows goes through the eyes to the checks, in one order.

After each pass of a node: first its disk, then what committed metadata says, then its state, and only then what it
sends. So a message is judged by what its sender's disk would keep when it leaves. Watching draws no chance and takes
no time.
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
    TimePassed,
    TopicPartition,
)
from kraft.sim.check.suite import Suite
from kraft.sim.cluster.altered_settings import Change, changes_in
from kraft.sim.cluster.chronicle import Chronicle
from kraft.sim.cluster.disk_eye import DiskEye, StoredBatch
from kraft.sim.cluster.fold import FenceRecorded, MetadataFold
from kraft.sim.cluster.group_eye import GroupEye
from kraft.sim.cluster.labels import TopicLabels
from kraft.sim.cluster.node_eye import FenceDecided, NodeEye
from kraft.sim.cluster.shape import ClusterShape, host_name, node_of
from kraft.sim.cluster.wire_eye import ProducedBatch, WireEye
from kraft.sim.world.endpoint import Endpoint
from kraft.sim.world.world import World
from kraft.storage.log_dir import CLEAN_SHUTDOWN
from kraft.wire.rpc.controller_messages import ForwardRequest, HeartbeatRequest

STEADY_MS = 100
"""A voter has contact if its fetches of this epoch were handled for so long, on one connection that still stands."""
FETCH_GAP_MS_MAX = 1_000
"""Contact is over if the next fetch came later than this after the last one (a long poll takes half of it)."""

UNHEARD_FETCH_TIMEOUTS = 2.7
"""A leader that no majority fetches from resigns after one and a half by its own clock; it has one more, and drift."""

LOOK_MS = 100
"""Time is told so often, if anything happens at all."""

LOOKS_LATE_MS = 20
"""A session's begin may be seen this much later than its controller began to count."""


@dataclass(frozen=True, slots=True)
class _Contact:
    """A voter's fetch of `epoch`, handled by its leader."""

    leader: int
    epoch: int
    endpoint: Endpoint
    since_ms: int
    last_ms: int


class ClusterWatch:
    """Implements what the world calls (WorldObserver) and what the wire eye asks (ClusterView)."""

    def __init__(self, world: World, shape: ClusterShape, *, link_latency_ms: int) -> None:
        self.shape = shape
        self._config = shape.config(shape.broker_ids[0] if shape.broker_ids else shape.controller_ids[0])
        self.suite = Suite(
            frozenset(shape.controller_ids),
            link_latency_ms=link_latency_ms,
            unheard_ms_max=int(UNHEARD_FETCH_TIMEOUTS * self._config.integer("controller.quorum.fetch.timeout.ms")),
            is_steady=self._is_steady,
        )
        self.chronicle = Chronicle(self.suite.shadows, lambda: self.now_ms)
        self.labels = TopicLabels()
        self._lives: dict[UUID, int] = {}
        """Incarnation id of a broker → which life of its node it is."""
        self.fold = MetadataFold(
            self.tell,
            self._fence_recorded,
            self._min_isr,
            lambda: self.now_ms,
            self.labels,
            self.suite.leader_in_sync.may_take,
            self._lives,
        )
        self.nodes: dict[int, NodeEye] = {}
        self.transitions: list[Counter[Transition]] = []
        """How often the replicas of each life of each broker took which transition."""
        self.active_controller: int | None = None
        self.forwarded: dict[tuple[str, int], list[int]] = {}
        """(client id, time-out in ms) of a request that brokers handed on → the controllers that handled it while they
        led, each time that they did."""
        self.altered: Counter[Change] = Counter()
        """A change of a setting that brokers handed on → how often a controller handled it while it led."""
        self._world = world
        self._next_look_ms = 0
        self._session_timeout_ms = self._config.integer("broker.session.timeout.ms")
        self._wire = WireEye(self, self.tell, lambda: self.now_ms)
        self.group_eyes: list[GroupEye] = []
        """What else looks at what leaves a host."""
        self._disks = {
            node: DiskEye(node, world.host(host_name(node)), self.tell, self.labels, self.fold.take)
            for node in shape.node_ids
        }
        self._losing: int | None = None
        """The node of whose disk a fault takes bytes that count, right now."""
        self._roles: dict[int, RoleSeen] = {}
        self._active_since: dict[int, int] = {}
        """Epoch of the quorum → when its leader was seen to lead."""
        self._leaders: dict[int, int] = {}
        self._contacts: dict[int, _Contact] = {}
        self._heard: dict[tuple[int, int, int], int] = {}
        """(epoch of the quorum, broker, broker epoch) → when that epoch's leader heard this broker last: what the same
        controller hears after it is no word against a fence of it."""
        self._connections: dict[tuple[int, int, int], int] = {}
        self._wants_in: set[tuple[int, int]] = set()
        """(broker, epoch) whose last word was that they are ready; that they are in may not be committed yet."""
        self._asked_for_it: Counter[tuple[int, int]] = Counter()
        """(broker, epoch) → how many fences it has asked for, by a heartbeat that came late or to shut down, that are
        not committed yet."""
        self._decided: dict[tuple[int, int, int], tuple[FenceDecided, int | None]] = {}
        self._age_at_begin: dict[tuple[int, int, int], int] = {}
        """(epoch of the quorum, broker, broker epoch) → how long nothing had been heard when the newest plan of a fence
        began: a word that comes between its slices does not take it back."""
        world.watch(self)

    @property
    def now_ms(self) -> int:
        return self._world.now_ns // 1_000_000

    def tell(self, observation: Observation) -> None:
        """To the checks; what the watch itself keeps comes first."""
        if isinstance(observation, RoleSeen):
            self._role_seen(observation)
        elif isinstance(observation, LogCut) and observation.log is not None:
            node, log, damage = observation.node, observation.log, self.suite.damage
            is_shorter = observation.end_offset < self.suite.shadows.log(node, log).end_offset
            if is_shorter and (node == self._losing or damage.may_be_cut(node, log, observation.end_offset)):
                damage.lost(node, log)
        self.chronicle.observe(observation, self.fold.image)
        self.suite.observe(observation, self.now_ms)

    # lives of nodes

    def started(self, node_id: int, node: Node, incarnation: int) -> None:
        """A node has come up as far as that it can be looked at."""
        if node.broker is not None:
            self._lives[node.broker.broker.incarnation_id] = incarnation
            self.transitions.append(node.broker.broker.replicas.host.transitions)
        self.nodes[node_id] = NodeEye(node_id, incarnation, node, self.tell, self._fence_decided, self.labels)

    def restarted(self, node_id: int, incarnation: int, *, clean: bool, wiped: bool) -> None:
        is_marked = all(
            self._disks[node_id].has(f"{path}/{CLEAN_SHUTDOWN}") for path in self.shape.log_dirs_of(node_id)
        )
        self.tell(Restarted(node_id, incarnation, clean, wiped, is_marked))

    def stored_batches(self, node_id: int, log: TopicPartition) -> list[StoredBatch]:
        """The batches of a partition's log that no crash could change any more; see `DiskEye.stored_batches`."""
        return self._disks[node_id].stored_batches(log)

    def wiped(self, node_id: int) -> None:
        """The disk of a node that is down lacks folders, or is empty: what was synced is gone as well."""
        self._look_at_loss(node_id)

    def died(self, node_id: int, *, lost_power: bool, is_noticed: bool) -> None:
        """A node has crashed. `is_noticed`: others are able to notice it at once (K6). Where each record is synced, a
        power loss excuses nothing."""
        was_active = self.active_controller == node_id
        self._down(node_id)
        if lost_power and not self.shape.is_durable:
            self._losing = node_id
        if lost_power:
            self._disks[node_id].look_after_power_loss()
        else:
            self._disks[node_id].look()
        self._losing = None
        if not lost_power:
            role = "controller" if node_id in self.shape.controller_ids else "broker"
            died = ProcessDied(node_id, frozenset({role}), was_active, is_noticed, self.now_ms)
            self.tell(died)

    def stopped(self, node_id: int) -> None:
        """A node has ended in order."""
        self._down(node_id)
        self._disks[node_id].look()

    def _look_at_loss(self, node_id: int) -> None:
        """What a disk has lost since the last look is damage."""
        self._losing = node_id
        self._disks[node_id].look()
        self._losing = None

    def _down(self, node_id: int) -> None:
        """A life is over, and with it its connections."""
        self.chronicle.life_ended(node_id)
        self.tell(NodeDown(node_id))
        self.nodes.pop(node_id, None)
        self._contacts.pop(node_id, None)
        if self.active_controller == node_id:
            self.active_controller = None
        self._connections = {place: number for place, number in self._connections.items() if place[0] != node_id}

    # what the world calls

    def handled(self, node: str) -> None:
        """A pass is over, nothing has left yet."""
        if self.now_ms >= self._next_look_ms:
            self._tell_time()
        node_id = node_of(node)
        if node_id is None:
            return
        eye = self.nodes.get(node_id)
        if eye is not None:
            eye.look_for_lost_role()
        self._disks[node_id].look()
        if eye is not None:
            eye.look()

    def _tell_time(self) -> None:
        self._next_look_ms = self.now_ms + LOOK_MS
        self.tell(TimePassed(frozenset(node for node in self.nodes if self._world.is_paused(host_name(node)))))

    def sending(self, endpoint: Endpoint, data: bytes) -> None:
        self._wire.sending(endpoint, data)
        for eye in self.group_eyes:
            eye.sending(endpoint, data)

    def receiving(self, endpoint: Endpoint, count: int) -> None:
        self._wire.receiving(endpoint, count)

    def received(self, endpoint: Endpoint, count: int) -> None:
        self._wire.received(endpoint, count)

    def ended(self, endpoint: Endpoint, reason: CloseReason) -> None:
        self._wire.ended(endpoint, reason)

    def dial_failed(self, node: str, peer: Peer, outcome: DialOutcome) -> None:
        node_id = node_of(node)
        if node_id is not None:
            self._wire.dial_failed(node_id, peer, outcome)

    # what the wire eye asks and tells

    def incarnation_of(self, controller: int, broker: int) -> tuple[UUID, int] | None:
        eye = self.nodes.get(controller)
        registration = None if eye is None else eye.node.publisher.image.brokers.get(broker)
        return None if registration is None else (registration.incarnation_id, registration.broker_epoch)

    def directory_of(self, node: int) -> str:
        eye = self.nodes.get(node)
        return "" if eye is None else str(eye.node.identity.metadata.directory_id)

    def is_voter(self, node: int) -> bool:
        return node in self.shape.controller_ids

    def quorum_state_of(self, node: int) -> tuple[int, int, int]:
        eye = self.nodes.get(node)
        return (0, -1, -1) if eye is None else eye.quorum_state()

    def fetched(self, voter: int, leader: int, epoch: int, endpoint: Endpoint) -> None:
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
        eye = self.nodes.get(node)
        if eye is None or eye.node.broker is None:
            return None
        return eye.node.broker.broker.replicas.find(topic, partition)

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

    # roles, and what is committed

    @property
    def newest_leadership(self) -> tuple[int, int]:
        """(epoch, node) of the quorum's newest leader so far, whether it still runs or not."""
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
        """Whether a leader that runs has had a majority's contact for a while: nothing should raise the epoch now."""
        leader = self.active_controller
        role = self._roles.get(leader or 0)
        if leader is None or role is None or leader not in self.nodes or len(self.shape.controller_ids) == 1:
            return False
        if self.shape.dynamic_voters:
            return False  # a majority of which voters?
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
        """How many ms ago the leader of this epoch heard the broker last, or became the leader."""
        heard_ms = self._heard.get((epoch, broker, broker_epoch), 0)
        return self.now_ms - max(heard_ms, self._active_since.get(epoch, 0))

    def _session_timeout_by(self, controller: int) -> int:
        """How many of the world's ms a session lasts at least, by the controller's own clock, which drifts."""
        if controller not in self.shape.controller_ids:
            return self._session_timeout_ms - LOOKS_LATE_MS
        clock = self._world.host(host_name(controller)).clock
        return int(1000 * clock.virtual_seconds(self._session_timeout_ms)) - LOOKS_LATE_MS
