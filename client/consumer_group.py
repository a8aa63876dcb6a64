"""A member of a consumer group (KIP-848): it sends heartbeats, and reconciles the partitions that it owns with those
that the coordinator assigns.

`ConsumerMember` decides; this module waits and calls the application. One task revokes and assigns partitions while the
application is in `poll`; heartbeats continue meanwhile.
Source: Kafka's ConsumerHeartbeatRequestManager, ConsumerMembershipManager.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from kraft.client.cluster import Cluster
from kraft.client.commits import Commits
from kraft.client.core.assigned import Assignment
from kraft.client.core.configs import ConsumerConfig
from kraft.client.core.consumer_member import Reconciliation, Release
from kraft.client.core.heartbeats import ConsumerHeartbeat, MemberSettings
from kraft.client.core.membership import MemberIdentity, Reaction
from kraft.client.core.records import KafkaError
from kraft.client.heartbeating_member import LEAVE_TIMEOUT_MS, HeartbeatingMember
from kraft.client.owned_partitions import OwnedPartitions
from kraft.client.rebalancing import RebalanceListener
from kraft.client.subscription import SubscribedTopics
from kraft.wire.api_keys import ApiKey


class ConsumerGroupMembership(HeartbeatingMember):
    """This consumer's membership in its group. `member` is its identity. `changed()` is called when the assignment has
    changed, and `failed(error)` with an exception that `listener` has raised."""

    heartbeat_key = ApiKey.CONSUMER_GROUP_HEARTBEAT

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
        settings = MemberSettings(
            config.group_id,
            config.group_instance_id,
            config.client_rack or None,
            config.max_poll_interval_ms,
            config.group_remote_assignor,
        )
        member_id = str(cluster.seam.random.stream("member ids").uuid())
        super().__init__(config, cluster, settings, member_id, topics)
        self.commits = Commits(
            config, cluster.seam, self.coordinator, assignment, lambda: self.member, self._on_refused
        )
        self._owned = OwnedPartitions(config, assignment, self.commits, listener, changed, failed)
        self.poll_gate = self._owned.poll_gate
        self._commits_automatically = config.enable_auto_commit
        self._assignment = assignment

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
            if self._commits_automatically:
                nursery.start_soon(self.commits.run_automatic)
            while self._member.failure is None:
                await self._take_step()
            await self._take_step()
            nursery.cancel_scope.cancel()
        failure = self._member.failure
        await self._send_leave()
        raise failure

    def _message(self, heartbeat: ConsumerHeartbeat, version: int) -> Any:
        return heartbeat.message(version)

    def _lost(self) -> None:
        if not self._owned.is_lost:
            self._owned.lose()

    def _failed(self, error: KafkaError) -> None:
        self._owned.failed(error)

    def _on_refused(self, member: MemberIdentity, reaction: Reaction) -> None:
        """React to the error with which the coordinator rejected a commit of `member`. If it does not recognize the
        member, it also rejects the next heartbeat, which is sent now."""
        if member == self.member:
            self._member.hurry()
            self._wake()

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
