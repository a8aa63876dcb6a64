"""One broker: its log, its role, and its state in the cluster (registration, heartbeats, unfencing, controlled
shutdown).

It is driven as `kraft.broker.node.broker_node`, `lifecycle` and `replica_roles` drive the production code. It applies
no role before it has seen its own registration, serves no request before it is unfenced, and never applies an older
image. A role that is assigned while the log is being truncated starts when the truncation is complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from kraft.broker.replica.leader import removed_from_isr
from kraft.broker.replica.role import RoleChange, decide_role
from kraft.control.commands import BrokerHeartbeat, RegisterBrokerCommand
from kraft.control.features import SUPPORTED_FEATURES
from kraft.image import Endpoint, MetadataImage, PartitionState
from kraft.image.partitions import NO_LEADER
from kraft.sim.cores.replicas.following import FollowingReplica
from kraft.sim.cores.replicas.leading import LeadingReplica
from kraft.sim.cores.replicas.links import Process
from kraft.sim.cores.replicas.log import ReplicaLog
from kraft.sim.cores.replicas.messages import Fetch, Fetched, Heartbeat, Listed, ListOffset
from kraft.wire.error_codes import ErrorCode
from kraft.wire.rpc.controller_messages import LOG_EPOCHS_MAX

if TYPE_CHECKING:
    from kraft.sim.cores.replicas.world import ReplicaWorld
    from kraft.wire.rpc.controller_messages import LogEndRow, LogEpochs

LOOK_MS = 50
"""Interval at which a broker checks its timers."""
ASK_TIMEOUT_MS = 300
"""Time in ms after which the broker abandons a request that the controller has not answered."""
LOAD_MS = (1, 30)
"""Time in ms that loading the log takes; it begins when the broker has caught up with the metadata."""
SYNC_EVERY_MS = 250
CHECKPOINT_EVERY_MS = 200
HASTY_HEARTBEAT_MS = 50
"""Interval of heartbeats that request unfencing or shutdown."""


class CoreBroker(Process):
    """One broker. `log` and `clean_epoch` survive a crash; `begin_life` resets everything else."""

    def __init__(self, world: ReplicaWorld, node_id: int, directory: UUID) -> None:
        super().__init__(node_id)
        self.world = world
        self.directory = directory
        self.log = ReplicaLog()
        self.clean_epoch = -1
        """Broker epoch that the broker stored at its last stop, if that stop was clean."""
        self.begin_life()

    def begin_life(self) -> None:
        """Start an incarnation, which has only what is on the broker's disk."""
        self.life += 1
        self.inbox.clear()
        self.paused_until = 0
        self.incarnation_id = self.world.chance.uuid()
        self.broker_epoch = self.previous_epoch = -1
        self.image: MetadataImage | None = None
        self.state: PartitionState | None = None
        """State of the partition on which the broker's current role is based; the role itself is `leading` or
        `following`."""
        self.leading: LeadingReplica | None = None
        self.following: FollowingReplica | None = None
        self.eligible: dict[int, int] = {}
        self.is_loading = self.is_loaded = self.is_released = False
        """`is_loading`: the broker's log is being opened. `is_loaded`: the broker has applied its first role.
        `is_released`: the broker was unfenced once, and so serves other brokers and clients."""
        self.is_truncating = self.is_syncing = False
        self.wants_stop = False
        self._asked: dict[str, tuple[int, int]] = {}
        """Kind of request to the controller → (token, time sent) of the request in flight."""
        self._unread: list[tuple[Any, Any]] = []
        """Requests that arrived before the broker was unfenced."""
        self._heartbeat_ms = self._lag_look_ms = self._sync_ms = self._checkpoint_ms = 0
        self._hears_that_it_is_fenced = True

    # start and end

    def start(self) -> None:
        """Start the process: the broker registers, and checks its timers from now on."""
        self.is_up = True
        self.log.reopen()
        self.previous_epoch, self.clean_epoch = self.clean_epoch, -1
        self.world.witness.on_start(self, is_clean=self.previous_epoch >= 0)
        self._register()
        self.world.after(self, LOOK_MS, self._look)

    def die(self, keep: int | None = None) -> None:
        """End the process. If `keep` is given, it ends by a power loss after which that many batches of the
        log remain."""
        self.is_up = False
        if keep is not None:
            self.world.witness.on_power_loss(self, self.log.lose_unsynced(keep))
        self.begin_life()

    def _stop(self) -> None:
        """Complete a controlled shutdown: sync, record the clean stop, and end."""
        self.log.synced = len(self.log.batches)
        self.log.checkpoint = self.log.high_watermark
        epoch = self.broker_epoch
        self.world.controller.connection_ended(self)
        self.die()
        self.clean_epoch = epoch

    def _look(self) -> None:
        now, world = self.world.now, self.world
        for what, (_, since) in list(self._asked.items()):
            if now - since >= ASK_TIMEOUT_MS:
                del self._asked[what]
                self._answered(what, None)
        pause = HASTY_HEARTBEAT_MS if self.is_loaded and self._hears_that_it_is_fenced else world.settings.heartbeat_ms
        if self.broker_epoch < 0:
            self._register()
        elif now - self._heartbeat_ms >= pause or self.wants_stop:
            self._heartbeat()
        if self.leading is not None:
            self._check_followers(self.leading)
        elif self.following is not None:
            self.following.expire()
        if now - self._sync_ms >= SYNC_EVERY_MS:
            self.request_sync()
        if now - self._checkpoint_ms >= CHECKPOINT_EVERY_MS:
            self._checkpoint_ms = now
            self.log.checkpoint = self.log.high_watermark
        world.after(self, LOOK_MS, self._look)

    def _check_followers(self, leading: LeadingReplica) -> None:
        world = self.world
        leading.expire_parked()
        if world.odds.trim and world.chance.below(1000) < world.odds.trim:
            leading.trim()
        if world.now - self._lag_look_ms >= world.settings.lag_ms_max // 2:
            self._lag_look_ms = world.now
            leading.check_lag()
            world.stepped(self, "check lag")

    # the disk

    def request_sync(self) -> None:
        """Sync the log, unless a sync is in flight."""
        if self.is_syncing or self.is_truncating or self.log.synced == len(self.log.batches):
            return
        self.is_syncing = True
        self._sync_ms = self.world.now
        world, log = self.world, self.log
        last = log.batches[-1]
        world.after(self, world.between(world.odds.sync), self._synced, last.next_offset, last.chain)

    def _synced(self, end: int, chain: int) -> None:
        """Record that the log is durable up to `end`, unless it has been truncated since the sync began."""
        self.is_syncing = False
        log = self.log
        if log.chain_at(end) == chain:
            log.synced = max(log.synced, log.position(end))
        if self.leading is not None:
            self.leading.synced()
            self.world.stepped(self, "synced")
        if self.world.odds.waits_for_disk:
            if log.synced < len(log.batches):
                self.request_sync()
            elif self.following is not None:
                self.following.synced()

    # the controller

    def is_asking(self, what: str) -> bool:
        """Return whether a request of this kind is in flight."""
        return what in self._asked

    def ask(self, what: str, command: Any) -> None:
        """Send a request to the controller. `what` is its kind; at most one request of each kind is in flight."""
        world = self.world
        token = world.next_token()
        self._asked[what] = (token, world.now)
        world.send(self, world.controller, world.controller.receive, self, self.life, what, token, command)

    def is_waiting_for(self, life: int, what: str, token: int) -> bool:
        """Return False if the request was abandoned: its connection is closed, and the request does not arrive. Return
        True also for requests of a process that has died since, because these do arrive."""
        return life != self.life or self._asked.get(what, (0, 0))[0] == token

    def receive_answer(self, what: str, token: int, reply: Any) -> None:
        """Handle the controller's answer."""
        if self._asked.get(what, (0, 0))[0] == token:
            del self._asked[what]
            self._answered(what, reply)

    def _answered(self, what: str, reply: Any) -> None:
        if what == "alter":
            if self.leading is not None:
                self.leading.answered(reply)
                self.world.stepped(self, "altered", reply)
        elif reply is None or reply.error_code != ErrorCode.NONE:
            return  # retried at the next timer check
        elif what == "register":
            self.broker_epoch = reply.broker_epoch
            self._published()
        else:
            self._hears_that_it_is_fenced = reply.is_fenced
            if reply.should_shut_down and self.wants_stop:
                self._stop()

    def _register(self) -> None:
        if not self.is_asking("register"):
            self.ask(
                "register",
                RegisterBrokerCommand(
                    cluster_id=self.world.cluster_id,
                    broker_id=self.node_id,
                    incarnation_id=self.incarnation_id,
                    endpoints=(Endpoint("PLAINTEXT", f"n{self.node_id}", 9092),),
                    log_dirs=(self.directory,),
                    features=SUPPORTED_FEATURES,
                    previous_broker_epoch=self.previous_epoch,
                ),
            )

    def _heartbeat(self) -> None:
        if self.is_asking("heartbeat"):
            return
        self._heartbeat_ms = self.world.now
        log_ends, log_epochs = self._told()
        command = BrokerHeartbeat(
            broker_id=self.node_id,
            broker_epoch=self.broker_epoch,
            metadata_offset=-1 if self.image is None else self.image.offset,
            want_fence=not self.is_loaded,
            want_shut_down=self.wants_stop,
            log_ends=tuple(row[:2] for row in log_ends),
        )
        self.ask("heartbeat", Heartbeat(command, log_ends, log_epochs))

    def _told(self) -> tuple[tuple[LogEndRow, ...], tuple[LogEpochs, ...]]:
        """Return the log ends to report to the controller, as `kraft.broker.node.log_ends` does: only while no replica
        is known to be complete, and the log does not change."""
        state, log = self.state, self.log
        if state is None or state.isr or state.elr or len(state.replicas) == 1 or self.is_truncating:
            return (), ()
        row = (self.world.topic_id, 0, state.partition_epoch, log.epochs.latest_epoch, log.log_end_offset)
        return (row,), (log.epochs.newest(LOG_EPOCHS_MAX),)

    # metadata

    def receive_image(self, image: MetadataImage) -> None:
        """Apply an image: the committed metadata up to some offset."""
        if self.image is None or image.offset > self.image.offset:
            self.image = image
            self._published()

    def _published(self) -> None:
        image = self.image
        if image is None or self.broker_epoch < 0:
            return
        if self.is_loaded:
            self._apply(image)
        elif not self.is_loading:
            own = image.brokers.get(self.node_id)
            if own is not None and own.broker_epoch == self.broker_epoch:
                self.is_loading = True
                self.world.after(self, self.world.between(LOAD_MS), self._load)
        own = image.brokers.get(self.node_id)
        if self.is_loaded and own is not None and own.broker_epoch == self.broker_epoch and not own.fenced:
            self._release()

    def _load(self) -> None:
        """Finish opening the log: apply the role of the newest image, and request unfencing."""
        assert self.image is not None
        self.is_loaded = True
        self._apply(self.image)
        self._heartbeat()

    def _release(self) -> None:
        """Serve the requests that arrived before the broker was unfenced."""
        self.is_released = True
        unread, self._unread = self._unread, []
        for handler, request in unread:
            handler(request)

    def _apply(self, image: MetadataImage) -> None:
        eligible = {
            broker_id: image.brokers[broker_id].broker_epoch
            for broker_id in image.broker_ids()
            if image.brokers[broker_id].is_active
        }
        has_changed = eligible != self.eligible
        self.eligible = eligible
        state = self.world.partition_of(image)
        if state is not self.state and state != self.state:
            self._take_role(state)
        if has_changed and self.leading is not None:
            self.leading.brokers_changed()
        self.world.stepped(self, "image", image.offset)

    def _take_role(self, state: PartitionState) -> None:
        change = decide_role(self.node_id, self.state, state)
        if change is RoleChange.IGNORE:
            return
        gone = () if self.state is None else set(self.state.isr).difference(state.isr)
        self.state = state
        if change is RoleChange.KEEP_LEADING:
            if self.leading is not None:
                self.leading.metadata_changed(state)
        elif change is RoleChange.LEAD:
            self.leading = self.following = None
            self._begin_to_lead(state, removed_from_isr(gone, state))
        elif change is RoleChange.FOLLOW:
            self.leading = self.following = None
            self._begin_to_follow(state)

    def _begin_to_lead(self, state: PartitionState, left: frozenset[int] = frozenset()) -> None:
        if not self.is_truncating:
            self.leading = LeadingReplica(self, state, left)
            self.leading.begin(state)

    def _begin_to_follow(self, state: PartitionState) -> None:
        if not self.is_truncating and state.leader != NO_LEADER:
            self.following = FollowingReplica(self, state)
            self.following.begin()

    def truncation_done(self) -> None:
        """Start the role that was assigned while the log was being truncated, if any. Called when the truncation is
        complete."""
        state = self.state
        if state is None or self.leading is not None or self.following is not None:
            return
        if state.leader == self.node_id:
            self._begin_to_lead(state)
        else:
            self._begin_to_follow(state)

    # other brokers and producers

    def on_fetch(self, fetch: Fetch) -> None:
        """Handle a follower's fetch."""
        if not self.is_released:
            self._unread.append((self.on_fetch, fetch))
            return
        leading = self.leading
        if leading is not None and fetch.leader_epoch == leading.core.leader_epoch:
            leading.fetch(fetch)
            self.world.stepped(self, "fetch", fetch)
        else:
            self.answer_fetch(Fetched(fetch, self._refusal(fetch.leader_epoch)))

    def answer_fetch(self, fetched: Fetched) -> None:
        """Send this response to the follower."""
        follower = self.world.brokers[fetched.fetch.replica_id]
        self.world.send_between_brokers(self, follower, follower.on_fetched, fetched)

    def on_fetched(self, fetched: Fetched) -> None:
        """Handle a leader's response to a fetch. A response to a request of another process is ignored, because it
        belongs to another connection."""
        if self.following is not None and fetched.fetch.broker_epoch == self.broker_epoch:
            self.following.take(fetched)
            self.world.stepped(self, "fetched", fetched)

    def on_list_offset(self, asked: ListOffset) -> None:
        """Handle a follower's request for this replica's offsets."""
        offset = None
        leading = self.leading
        if self.is_released and leading is not None and asked.leader_epoch == leading.core.leader_epoch:
            offset = self.log.log_end_offset if asked.latest is None else self.log.log_start_offset
        follower = self.world.brokers[asked.replica_id]
        self.world.send_between_brokers(self, follower, follower.on_listed, Listed(asked, offset))

    def on_listed(self, listed: Listed) -> None:
        """Handle the offsets that a leader returned."""
        if self.following is not None:
            self.following.listed(listed)
            self.world.stepped(self, "listed", listed)

    def on_produce(self, count: int, all_in_sync: bool) -> None:
        """Handle this many records of a producer."""
        if self.is_released and self.leading is not None:
            taken = self.leading.produce(count, all_in_sync=all_in_sync)
            self.world.stepped(self, "produce", count, all_in_sync, taken)

    def _refusal(self, asked: int) -> ErrorCode:
        """Return the error for a follower's request in this leader epoch; no error if it is served
        (`kraft.broker.partition.partition_checks`)."""
        epoch = -1 if self.state is None else self.state.leader_epoch
        if asked == epoch:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.FENCED_LEADER_EPOCH if asked < epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
