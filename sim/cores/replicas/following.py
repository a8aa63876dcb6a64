"""A replica that follows, in one leader epoch: it carries out the decisions of `kraft.broker.replica.follower`.

It is driven as `kraft.broker.following.followed_partition` drives the production code. One fetch is in flight; a late
or duplicate response is passed to the core all the same. No fetching or leading happens while the log is being
truncated. Where appends wait for the disk, the next fetch, which acknowledges the appended records, is sent after the
sync.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft.broker.replica import follower
from kraft.broker.replica.follower import FollowerState, FollowerStatus, Resolution, SentFetch, StepKind
from kraft.image import PartitionState
from kraft.sim.cores.replicas.messages import Fetch, Fetched, Listed, ListOffset

if TYPE_CHECKING:
    from kraft.sim.cores.replicas.broker import CoreBroker

BACKOFF_MS_MAX = 200
REQUEST_TIMEOUT_MS = 400
"""Time after which an unanswered request is abandoned (replica.socket.timeout.ms)."""
CUT_MS = (1, 5)


class FollowingReplica:
    """A broker that follows in one leader epoch. The role has ended when `broker.following` is another object
    or None."""

    def __init__(self, broker: CoreBroker, state: PartitionState) -> None:
        log = broker.log
        latest = log.epochs.latest_epoch
        self.broker = broker
        self.core = FollowerState(state.leader, state.leader_epoch, follower.start_offset(log, latest), latest)
        self.waits_for_sync = broker.world.odds.waits_for_disk and log.synced < len(log.batches)
        self._token = 0
        """Token of the request in flight, 0 if there is none."""
        self._sent_ms = 0

    def begin(self) -> None:
        """Start following. Batches left unsynced by an earlier role are synced before they are acknowledged."""
        if self.waits_for_sync:
            self.broker.request_sync()
        self.fetch()

    @property
    def _is_over(self) -> bool:
        return self.broker.following is not self

    def fetch(self) -> None:
        """Fetch the next records, unless a fetch, a sync or a truncation is pending."""
        core, broker = self.core, self.broker
        if self._token or self.waits_for_sync or core.status is not FollowerStatus.FETCHING:
            return
        world = broker.world
        self._token, self._sent_ms = world.next_token(), world.now
        world.send_between_brokers(
            broker,
            world.brokers[core.leader_id],
            world.brokers[core.leader_id].on_fetch,
            Fetch(
                self._token,
                broker.node_id,
                broker.broker_epoch,
                core.leader_epoch,
                core.fetch_offset,
                core.last_fetched_epoch,
                broker.log.log_start_offset,
            ),
        )

    def take(self, fetched: Fetched) -> None:
        """Handle the leader's response to the fetch in flight or to an older one."""
        fetch = fetched.fetch
        if fetch.token == self._token:
            self._token = 0
        core, log = self.core, self.broker.log
        sent = SentFetch(fetch.fetch_offset, fetch.leader_epoch)
        step = follower.decide_answer(core, sent, log, fetched.error, fetched.diverging)
        kind = step.kind
        if kind is StepKind.APPEND:
            self._append(fetched)
        elif kind is StepKind.TRUNCATE:
            self._cut(step.offset, fully=False)
        elif kind is StepKind.RESOLVE:
            self._ask_offset(None)
        elif kind is StepKind.BACK_OFF:
            self._back_off()
        elif kind is StepKind.STOP:
            core.status = FollowerStatus.STOPPED
        self.fetch()

    def _append(self, fetched: Fetched) -> None:
        broker, core = self.broker, self.core
        world, log = broker.world, broker.log
        for batch in fetched.batches:
            if batch.base_offset != log.log_end_offset or batch.epoch > core.leader_epoch:
                self._back_off()
                return
            log.append(batch)
            world.witness.on_append(broker, batch)
        core.backoff_ms = 0
        self._take_marks(fetched)
        core.fetch_offset, core.last_fetched_epoch = log.log_end_offset, log.epochs.latest_epoch
        if fetched.batches and world.odds.waits_for_disk:
            self.waits_for_sync = True
            broker.request_sync()

    def _take_marks(self, fetched: Fetched) -> None:
        """Apply the offsets that the leader sent, as `kraft.broker.partition.partition_following.take_leader_marks`
        does. Records that the leader has deleted are deleted before that."""
        broker = self.broker
        log, before = broker.log, broker.log.high_watermark
        mark = follower.follower_high_watermark(fetched.high_watermark, log.log_start_offset, log.log_end_offset)
        log.high_watermark = mark
        if log.log_start_offset < fetched.log_start_offset <= mark:
            broker.world.witness.on_trim(broker, fetched.log_start_offset)
            log.advance_start(fetched.log_start_offset)
        if mark != before:
            broker.world.witness.on_high_watermark(broker, before)

    def synced(self) -> None:
        """Continue when all appended batches are durable: the next fetch may acknowledge them to the leader."""
        self.waits_for_sync = False
        self.fetch()

    # pauses

    def _back_off(self) -> None:
        world = self.broker.world
        self.core.back_off(world.now, BACKOFF_MS_MAX)
        world.after(self.broker, self.core.retry_at_ms - world.now, self._retry)

    def _retry(self) -> None:
        if not self._is_over and self.core.status is FollowerStatus.BACKOFF and not self.broker.is_truncating:
            self._resume()

    def _resume(self) -> None:
        log = self.broker.log
        self.waits_for_sync = self.waits_for_sync and log.synced < len(log.batches)
        self.core.resume(log.log_end_offset, log.epochs.latest_epoch)
        self.fetch()

    def expire(self) -> None:
        """Retry a request that was not answered in time. Called by the timer."""
        if self.broker.world.now - self._sent_ms < REQUEST_TIMEOUT_MS:
            return
        if self.core.status is FollowerStatus.RESOLVING:
            self._back_off()
        elif self._token:
            self._token = 0
            self.fetch()

    # out of range

    def _ask_offset(self, latest: int | None) -> None:
        broker = self.broker
        world, leader = broker.world, broker.world.brokers[self.core.leader_id]
        self.core.status = FollowerStatus.RESOLVING
        self._sent_ms = world.now
        asked = ListOffset(broker.node_id, self.core.leader_epoch, latest)
        world.send_between_brokers(broker, leader, leader.on_list_offset, asked)

    def listed(self, listed: Listed) -> None:
        """Handle the leader's answer to `_ask_offset`."""
        if self.core.status is not FollowerStatus.RESOLVING or listed.asked.leader_epoch != self.core.leader_epoch:
            return
        if listed.offset is None:
            self._back_off()
            return
        end, latest = self.broker.log.log_end_offset, listed.asked.latest
        if latest is None:
            decision = follower.decide_out_of_range(end, listed.offset, None)
        else:
            decision = follower.decide_out_of_range(end, latest, listed.offset)
        if decision is None:
            self._ask_offset(listed.offset)
        elif decision[0] is Resolution.CONTINUE:
            self._back_off()
        else:
            self._cut(decision[1], fully=decision[0] is Resolution.RESTART)

    # truncating

    def _cut(self, offset: int, *, fully: bool) -> None:
        broker = self.broker
        self.core.status = FollowerStatus.BACKOFF
        broker.is_truncating = True
        broker.world.after(broker, broker.world.between(CUT_MS), self._cut_now, offset, fully)

    def _cut_now(self, offset: int, fully: bool) -> None:
        broker = self.broker
        log = broker.log
        broker.world.happened["log begun anew" if fully else "truncation"] += 1
        broker.world.witness.on_truncate(broker, offset, self.core.leader_epoch)
        if fully:
            log.truncate_fully(offset)
        else:
            log.truncate_to(offset)
        log.high_watermark = max(log.log_start_offset, min(log.high_watermark, log.log_end_offset))
        broker.world.witness.on_cut(broker)
        broker.is_truncating = False
        if not self._is_over:
            self._resume()
        broker.truncation_done()
