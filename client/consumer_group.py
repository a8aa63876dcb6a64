"""A member of a consumer group (KIP-848): it sends heartbeats, and reconciles the partitions that it owns with those
that the coordinator assigns.

`ConsumerMember` decides; this module sends, waits and calls the application. One task sends heartbeats, one at a time.
Another revokes and assigns partitions while the application is in `poll`; heartbeats continue meanwhile.
Source: Kafka's ConsumerHeartbeatRequestManager, ConsumerMembershipManager.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from kraft.client.cluster import Cluster, ClusterUnreachable
from kraft.client.commits import Commits
from kraft.client.connections import VersionMismatch
from kraft.client.coordinator import HEARTBEATS, Coordinator
from kraft.client.core.assigned import Assignment
from kraft.client.core.configs import ConsumerConfig
from kraft.client.core.consumer_member import ConsumerMember, Reconciliation, Release
from kraft.client.core.heartbeats import ConsumerHeartbeat, HeartbeatAnswer, MemberSettings, TopicSubscription
from kraft.client.core.membership import MemberIdentity, Reaction
from kraft.client.core.membership_errors import membership_error
from kraft.client.core.records import KafkaError
from kraft.client.owned_partitions import OwnedPartitions
from kraft.client.poll_clock import PollClock
from kraft.client.rebalancing import RebalanceListener
from kraft.client.subscription import SubscribedTopics
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

LEAVE_TIMEOUT_MS = 1_500


class ConsumerGroupMembership:
    """This consumer's membership in its group. `member` is its identity. `changed()` is called when the assignment has
    changed, and `failed(error)` with an exception that `listener` has raised."""

    def __init__(
        self,
        config: ConsumerConfig,
        cluster: Cluster,
        assignment: Assignment,
        topics: SubscribedTopics,
        listener: RebalanceListener,
        changed: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        assert config.group_id is not None
        seam = cluster.seam
        self._settings = MemberSettings(
            config.group_id,
            config.group_instance_id,
            config.client_rack or None,
            config.max_poll_interval_ms,
            config.group_remote_assignor,
        )
        self._member = ConsumerMember(
            self._settings,
            str(seam.random.stream("member ids").uuid()),
            TopicSubscription(),
            backoff_ms=config.retry_backoff_ms,
            backoff_ms_max=config.retry_backoff_max_ms,
        )
        self.coordinator = Coordinator(config, cluster, config.group_id)
        self.commits = Commits(config, seam, self.coordinator, assignment, lambda: self.member, self._on_refused)
        self.poll_clock = PollClock(seam.clock, config.max_poll_interval_ms)
        self._owned = OwnedPartitions(config, assignment, self.commits, listener, changed, failed)
        self.poll_gate = self._owned.poll_gate
        self._config = config
        self._cluster = cluster
        self._clock = seam.clock
        self._assignment = assignment
        self._topics = topics
        self._woken = trio.Event()
        """Set after each change of the member's state, and then replaced."""
        self._subscribed = trio.Event()
        self._sending = trio.CancelScope()

    @property
    def member(self) -> MemberIdentity:
        """The member as its commits and transactions name it."""
        return self._member.identity

    def subscribe(self, topics: SubscribedTopics, listener: RebalanceListener) -> None:
        """Change the subscription without leaving the group."""
        self._topics = topics
        self._owned.listener = listener
        self._subscribed.set()

    async def run(self) -> None:
        """Keep this consumer a member of the group until cancelled. Raise KafkaError if the group rejects this
        member."""
        self._member.subscribe(await self._topics.for_coordinator())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._send_heartbeats)
            nursery.start_soon(self._learn_topics)
            nursery.start_soon(self._follow_subscription)
            if self._config.enable_auto_commit:
                nursery.start_soon(self.commits.run_automatic)
            while self._member.failure is None:
                await self._take_step()
            await self._take_step()
            nursery.cancel_scope.cancel()
        failure = self._member.failure
        await self._send_leave()
        raise failure

    def _wake(self) -> None:
        """Let each task look at the member's new state."""
        if self._member.is_lost and not self._owned.is_lost:
            self._owned.lose()
        self._member.learn_topics(self._cluster.names_of(self._member.unknown_topics))
        self._woken.set()
        self._woken = trio.Event()

    def _on_refused(self, member: MemberIdentity, reaction: Reaction) -> None:
        """React to the error with which the coordinator rejected a commit of `member`. If it does not recognize the
        member, it also rejects the next heartbeat, which is sent now."""
        if member == self.member:
            self._member.hurry()
            self._wake()

    # heartbeats

    async def _send_heartbeats(self) -> None:
        while True:
            if self.poll_clock.is_exceeded() and self._member.must_poll:
                self._member.expire_poll()
                self._wake()
            now_ms = self._clock.monotonic_ms()
            heartbeat = self._member.next_heartbeat(now_ms)
            if heartbeat is None:
                deadline_ms = self.poll_clock.deadline_ms if self._member.must_poll else float("inf")
                wait_ms = min(self._member.due_ms(), deadline_ms) - now_ms
                with trio.move_on_after(max(wait_ms, 0) / 1000):
                    await self._woken.wait()
            elif heartbeat.is_leave:
                self._wake()
                await self._send_last(heartbeat)
            else:
                await self._send(heartbeat)
                self._wake()

    async def _send(self, heartbeat: ConsumerHeartbeat) -> None:
        """Send a heartbeat, and give the response to the member."""

        def build(version: int) -> object:
            # Without the response, the member would not know its id, and could not leave.
            self._sending.shield = heartbeat.requests_member_id(version)
            return heartbeat.message(version)

        try:
            with trio.CancelScope() as self._sending:
                answer = await self.coordinator.ask_in_version(
                    ApiKey.CONSUMER_GROUP_HEARTBEAT, HEARTBEATS, build, timeout_ms=self._config.request_timeout_ms
                )
        except trio.Cancelled:
            # `leave` continues with heartbeats.
            self._member.lose(heartbeat, self._clock.monotonic_ms())
            self._wake()
            raise
        except VersionMismatch as mismatch:
            self._member.fail(membership_error(ErrorCode.UNSUPPORTED_VERSION, str(mismatch), self._settings))
        except KafkaError as failure:
            self._member.fail(failure)
        else:
            if answer is None:
                self._member.lose(heartbeat, self._clock.monotonic_ms())
            else:
                self._accept(heartbeat, HeartbeatAnswer.of(answer))
        finally:
            self._sending.shield = False

    def _accept(self, heartbeat: ConsumerHeartbeat, answer: HeartbeatAnswer) -> None:
        if answer.code is ErrorCode.NONE:
            self._member.accept(heartbeat, answer)
            return
        reaction = self._member.refuse(heartbeat, answer, self._clock.monotonic_ms())
        if reaction is Reaction.FIND_COORDINATOR:
            self.coordinator.forget()
        elif answer.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self._owned.failed(membership_error(answer.code, answer.message, self._settings))

    async def _send_last(self, heartbeat: ConsumerHeartbeat) -> None:
        """Send the heartbeat with which the member leaves, once. If no response comes in time, the coordinator removes
        the member when its session expires. A cancellation does not prevent it."""
        with trio.move_on_after(LEAVE_TIMEOUT_MS / 1000, shield=True):
            try:
                await self.coordinator.ask_in_version(
                    ApiKey.CONSUMER_GROUP_HEARTBEAT, HEARTBEATS, heartbeat.message, timeout_ms=LEAVE_TIMEOUT_MS
                )
            except (KafkaError, VersionMismatch):
                return  # the coordinator does not accept this client, so there is no member

    # subscription and metadata

    async def _follow_subscription(self) -> None:
        """Tell the member its subscription: after each change, and every `metadata.max.age.ms` for the names that match
        a pattern."""
        while True:
            self._subscribed = trio.Event()
            self._member.subscribe(await self._topics.for_coordinator())
            self._wake()
            with trio.move_on_after(self._config.metadata_max_age_ms / 1000):
                await self._subscribed.wait()
            if not self._subscribed.is_set():
                await self._topics.refresh()

    async def _learn_topics(self) -> None:
        """Request metadata of assigned topics while their names are not known."""
        pause_ms = self._config.retry_backoff_ms
        while True:
            unknown = self._member.unknown_topics
            if not unknown:
                pause_ms = self._config.retry_backoff_ms
                await self._woken.wait()
                continue
            try:
                await self._cluster.refresh_ids(unknown)
            except ClusterUnreachable:
                continue
            self._wake()
            if self._member.unknown_topics:
                await self._clock.sleep_ms(pause_ms)
                pause_ms = min(pause_ms * 2, self._config.retry_backoff_max_ms)

    # partitions

    async def _take_step(self) -> None:
        """Do what the member has to do with its partitions now, or wait until its state changes."""
        step = self._member.next_step()
        if step is None:
            await self._woken.wait()
        elif isinstance(step, Release):
            await self._release(step)
        elif step.needs_poll:
            await self._reconcile()
        else:
            self._member.reconciled(step)
            self._wake()

    async def _release(self, step: Release) -> None:
        """Stop reading partitions that are lost, and call the listener."""
        if self._owned.all or step.needs_poll:
            async with self.poll_gate.application_held():
                if self._owned.all:
                    await self._owned.revoke(self._owned.all)
        self._owned.is_lost = False
        self._member.released(step)
        self._wake()

    async def _reconcile(self) -> None:
        """Revoke and assign partitions once the application is in `poll`. The coordinator may have changed the
        assignment, or removed the member, before that and during each call of the listener."""
        async with self.poll_gate.application_held():
            step = self._member.next_step()
            if not isinstance(step, Reconciliation):
                return
            self._member.begin(step)
            if step.revoked:
                await self._owned.revoke(step.revoked)
            if not self._member.is_current(step):
                return
            await self._owned.assign(self._member.partitions_after(step), step.added)
            self._member.reconciled(step)
        self._wake()

    # leaving

    async def leave(self, *, is_done: bool) -> None:
        """Commit, call the listener, and leave; heartbeats continue meanwhile. `is_done` says that the application has
        processed the last records that it received. An exception of the listener is raised after leaving. A
        cancellation does not prevent the member from leaving. Call it after `run` was cancelled."""
        self._member.prepare_leaving()
        if is_done:
            self._assignment.mark_consumed()
        failures: list[Exception] = []
        self._owned.failed = failures.append
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._send_heartbeats)
                await self.commits.finish(timeout_ms=LEAVE_TIMEOUT_MS)
                if self._owned.all:
                    await self._owned.revoke(self._owned.all, commit_ms=LEAVE_TIMEOUT_MS)
                nursery.cancel_scope.cancel()
        finally:
            await self._send_leave()
        if failures:
            raise failures[0]

    async def _send_leave(self) -> None:
        """Leave the group, unless the coordinator does not have this member."""
        with trio.move_on_after(LEAVE_TIMEOUT_MS / 1000, shield=True):
            while self._sending.shield:
                await self._woken.wait()
        self._sending.shield = False
        self._member.leave()
        heartbeat = self._member.next_heartbeat(self._clock.monotonic_ms())
        if heartbeat is not None:
            await self._send_last(heartbeat)
