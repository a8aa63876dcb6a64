"""A member of a classic consumer group: it joins, is assigned partitions, sends heartbeats, and leaves.

One task joins the group again and again, as often as it rebalances. Another task sends heartbeats while the member is
in the group. An error in the response to a request of an older generation is ignored. With `cooperative` assignors,
members keep their partitions during a rebalance. Partitions that are to move are revoked after that rebalance, which
makes a second one necessary. With other assignors, a member gives up all partitions before it joins.
Source: Kafka's AbstractCoordinator, ConsumerCoordinator, KIP-345, KIP-429.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from kraft.client.cluster import Cluster
from kraft.client.commits import Commits
from kraft.client.coordinator import HEARTBEATS, Coordinator
from kraft.client.core.assigned import Assignment
from kraft.client.core.assignors import assignors_named, is_cooperative
from kraft.client.core.configs import ConsumerConfig
from kraft.client.core.consumer_protocol import decode_assignment
from kraft.client.core.membership import MemberIdentity, Reaction, reaction_to
from kraft.client.core.records import KafkaError, TopicPartition
from kraft.client.joining import JoinRequests
from kraft.client.owned_partitions import OwnedPartitions
from kraft.client.poll_clock import PollClock
from kraft.client.rebalancing import RebalanceListener
from kraft.client.subscription import SubscribedTopics
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

LEAVE_TIMEOUT_MS = 1_500


class GroupMembership:
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
        self.member = MemberIdentity()
        self.coordinator = Coordinator(config, cluster, config.group_id)
        self.commits = Commits(config, seam, self.coordinator, assignment, lambda: self.member, self._on_refused)
        self.poll_clock = PollClock(seam.clock, config.max_poll_interval_ms)
        self._owned = OwnedPartitions(config, assignment, self.commits, listener, changed, failed)
        self.poll_gate = self._owned.poll_gate
        self._config = config
        self._clock = seam.clock
        self._assignment = assignment
        self._topics = topics
        assignors = assignors_named(config.assignors)
        self._is_cooperative = is_cooperative(assignors)
        self._joining = JoinRequests(config, cluster, self.coordinator, assignment, assignors)
        self._must_join = trio.Event()
        self._is_joining = False
        self._last_assigned: tuple[TopicPartition, ...] = ()
        """The partitions of the last assignment, including those that were given up since then in order to rejoin."""
        self._joined_topics: list[str] = []
        """The subscribed topics in the last JoinGroup request."""

    # membership

    async def run(self) -> None:
        """Keep this consumer a member of the group until cancelled. Raise KafkaError if the group rejects this
        member."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._send_heartbeats)
            nursery.start_soon(self._watch_metadata)
            if self._config.enable_auto_commit:
                nursery.start_soon(self.commits.run_automatic)
            while True:
                self._must_join = trio.Event()
                await self._give_up_before_join()
                assigned = await self._join()
                if assigned is not None:
                    await self._apply_assignment(assigned)
                    await self._must_join.wait()

    def rejoin(self) -> None:
        """Join again, because the group or this member's subscription has changed."""
        self._must_join.set()

    def _react(self, reaction: Reaction, code: ErrorCode, text: str) -> None:
        """Apply the reaction to an error. Raise KafkaError if the reaction is to give up."""
        was_in_group = self.member.is_in_group
        self.member = self.member.after(reaction)
        if reaction is Reaction.GIVE_UP:
            raise KafkaError(code, f"group {self.coordinator.group_id}: {text}")
        if reaction is Reaction.FIND_COORDINATOR:
            self.coordinator.forget()
        if was_in_group and not self.member.is_in_group:
            self._owned.lose()

    def _on_refused(self, member: MemberIdentity, reaction: Reaction) -> None:
        """React to the error with which the coordinator rejected a commit of `member`."""
        if member == self.member and not self._is_joining:
            # otherwise the coordinator would return the same error for the next join
            if reaction is not Reaction.GIVE_UP:
                self._react(reaction, ErrorCode.NONE, "")
            self.rejoin()

    # joining

    async def _give_up_before_join(self) -> None:
        """Give up partitions before a join. With cooperative assignors, these are only the partitions of topics that
        are no longer subscribed; otherwise, all partitions."""
        revoked = self._owned.all
        if self._is_cooperative and not self._owned.is_lost:
            wanted = set(await self._topics.names())
            revoked = frozenset(tp for tp in revoked if tp[0] not in wanted)
        if revoked:
            async with self.poll_gate.application_held():
                await self._owned.revoke(revoked)
        self._owned.is_lost = False

    async def _join(self) -> frozenset[TopicPartition] | None:
        """Send JoinGroup and SyncGroup once. Return this member's partitions, or None if it must join again."""
        self._is_joining = True
        try:
            self._joined_topics = await self._topics.names()
            answer = await self._joining.join(self.member, self._joined_topics, self._last_assigned)
            if answer is None or not self._is_accepted(answer, "JoinGroup"):
                return None
            self.member = MemberIdentity(answer.member_id, int(answer.generation_id), answer.protocol_name)
            synced = await self._joining.sync(self.member, answer)
            if synced is None or not self._is_accepted(synced, "SyncGroup"):
                return None
            return frozenset(decode_assignment(synced.assignment).partitions)
        finally:
            self._is_joining = False

    def _is_accepted(self, answer: Any, name: str) -> bool:
        code = ErrorCode.of(int(answer.error_code))
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member = MemberIdentity(answer.member_id)
        reaction = reaction_to(code)
        self._react(reaction, code, f"{name} was rejected")
        return reaction is Reaction.NONE

    # assignment

    async def _apply_assignment(self, assigned: frozenset[TopicPartition]) -> None:
        """Apply a new assignment. If it revokes partitions that the member kept during the rebalance (cooperative),
        join again, so that other members get these partitions in a second rebalance."""
        self._last_assigned = tuple(sorted(assigned))
        member = self.member
        revoked, added = self._owned.all - assigned, assigned - self._owned.all
        async with self.poll_gate.application_held():
            if revoked:
                await self._owned.revoke(revoked)
            if self.member != member:
                return  # the member was expelled during the commit or the listener's call, and is about to join again
            await self._owned.assign(assigned, added)
        if revoked:
            self.rejoin()

    # heartbeats

    async def _send_heartbeats(self) -> None:
        while True:
            await self._clock.sleep_ms(self._config.heartbeat_interval_ms)
            if not self.member.is_in_group or self._is_joining:
                continue
            if self.poll_clock.is_exceeded():
                await self._leave_idle_group()
                continue
            asked = self.member
            answer = await self.coordinator.ask(
                ApiKey.HEARTBEAT,
                HEARTBEATS,
                timeout_ms=self._config.session_timeout_ms,
                group_id=self.coordinator.group_id,
                generation_id=asked.generation,
                member_id=asked.member_id,
                group_instance_id=self._config.group_instance_id,
            )
            if answer is None or asked != self.member or self._is_joining:
                continue
            code = ErrorCode.of(int(answer.error_code))
            reaction = reaction_to(code)
            self._react(reaction, code, "the member was expelled")
            if reaction in (Reaction.REJOIN, Reaction.FORGET_GENERATION, Reaction.FORGET_ID):
                self.rejoin()

    async def _leave_idle_group(self) -> None:
        """Leave the group because `max.poll.interval.ms` has passed, so that other members get the partitions. Join
        again when the application polls."""
        await self._send_leave_group()
        self.member = self.member.after(Reaction.FORGET_ID)
        self._owned.lose()
        self.rejoin()

    async def _watch_metadata(self) -> None:
        """Check every `metadata.max.age.ms` whether topics were created, deleted or got more partitions."""
        while True:
            await self._clock.sleep_ms(self._config.metadata_max_age_ms)
            await self._topics.refresh()
            if await self._topics.names() != self._joined_topics or await self._joining.is_outdated():
                self.rejoin()

    # leaving

    async def leave(self, *, is_done: bool) -> None:
        """Commit, call the listener, and leave. `is_done` says that the application has processed the last records that
        it received. An exception of the listener is raised after leaving. A cancellation does not prevent the member
        from leaving."""
        if is_done:
            self._assignment.mark_consumed()
        failures: list[Exception] = []
        self._owned.failed = failures.append
        try:
            await self.commits.finish(timeout_ms=LEAVE_TIMEOUT_MS)
            if self._owned.all:
                await self._owned.revoke(self._owned.all, commit_ms=LEAVE_TIMEOUT_MS)
        finally:
            with trio.move_on_after(LEAVE_TIMEOUT_MS / 1000, shield=True):
                await self._send_leave_group()
        if failures:
            raise failures[0]

    async def _send_leave_group(self) -> None:
        """Send LeaveGroup. Do nothing for a static member, which is expected to return under its instance id."""
        if not self.member.member_id or self._config.group_instance_id is not None or self.coordinator.node is None:
            return
        await self.coordinator.ask(
            ApiKey.LEAVE_GROUP,
            HEARTBEATS,
            timeout_ms=LEAVE_TIMEOUT_MS,
            group_id=self.coordinator.group_id,
            members=({"member_id": self.member.member_id},),
        )
