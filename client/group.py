"""A member of a classic consumer group: joins, is assigned partitions, stays by heartbeats, and leaves.

One task carries a member from join to join. Another sends heartbeats as long as it is in the group. An error that
answers a request of an older generation is ignored. With `cooperative` assignors members keep their partitions through
a rebalance. Partitions that are to move are given up after it, which needs a second rebalance. With other assignors a
member gives up everything before a join.
Source: Kafka's AbstractCoordinator, ConsumerCoordinator, KIP-345, KIP-429.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio

from kraft.client.cluster import Cluster
from kraft.client.commits import Commits
from kraft.client.coordinator import HEARTBEATS, Coordinator
from kraft.client.core.assigned import Assignment
from kraft.client.core.assignors import assignors_named, is_cooperative
from kraft.client.core.configs import ConsumerConfig
from kraft.client.core.consumer_protocol import decode_assignment
from kraft.client.core.membership import Member, Reaction, reaction_to
from kraft.client.core.records import KafkaError, TopicPartition
from kraft.client.joining import Joining
from kraft.client.rebalancing import RebalanceListener, Turnstile
from kraft.client.subscription import Topics
from kraft.seam import Seam
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

LEAVE_TIMEOUT_MS = 1_500


class Group:
    """This consumer's membership. `member` is who it is; `changed()` is called when the assignment has changed,
    `failed(error)` with what a listener raised."""

    def __init__(
        self,
        config: ConsumerConfig,
        seam: Seam,
        cluster: Cluster,
        assignment: Assignment,
        topics: Topics,
        changed: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        assert config.group_id is not None
        self.member = Member()
        self.listener = RebalanceListener()
        self.turnstile = Turnstile(changed)
        self.coordinator = Coordinator(config, cluster, config.group_id)
        self.commits = Commits(config, seam, self.coordinator, assignment, lambda: self.member, self._on_refused)
        self._config = config
        self._clock = seam.clock
        self._assignment = assignment
        self._topics = topics
        self._changed = changed
        self._failed = failed
        assignors = assignors_named(config.assignors)
        self._is_cooperative = is_cooperative(assignors)
        self._joining = Joining(config, cluster, self.coordinator, assignment, assignors)
        self._must_join = trio.Event()
        self._has_lost = False
        self._is_joining = False
        self._had: tuple[TopicPartition, ...] = ()
        """What was assigned last, also when it has been given up to join again."""
        self._polled_ms: int | None = seam.clock.monotonic_ms()
        self.is_iterated = False
        """The application has asked for a record, beside `poll`, since this was last looked at."""
        self._told: list[str] = []
        """The topics that the last join named."""

    # the life of a member

    async def run(self) -> None:
        """Be a member until cancelled. KafkaError if the group does not take this member."""
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
                    await self._take(assigned)
                    await self._must_join.wait()

    def rejoin(self) -> None:
        """What this member tells the group has changed: join again."""
        self._must_join.set()

    def _react(self, reaction: Reaction, code: ErrorCode, text: str) -> None:
        """Draw the consequence of an error. KafkaError if there is nothing else to do."""
        was_in_group = self.member.is_in_group
        self.member = self.member.after(reaction)
        if reaction is Reaction.GIVE_UP:
            raise KafkaError(code, f"group {self.coordinator.group_id}: {text}")
        if reaction is Reaction.FIND_COORDINATOR:
            self.coordinator.forget()
        if was_in_group and not self.member.is_in_group:
            self._lose()

    def _lose(self) -> None:
        """What this member reads may belong to others already: give the application nothing more of it."""
        self._has_lost = True
        if self._assignment.partitions:
            self.turnstile.announce()

    def _on_refused(self, member: Member, reaction: Reaction) -> None:
        """A commit of `member` was refused."""
        if member == self.member and not self._is_joining:
            if reaction is not Reaction.GIVE_UP:  # the coordinator says it again to the join that follows
                self._react(reaction, ErrorCode.NONE, "")
            self.rejoin()

    # joining

    async def _give_up_before_join(self) -> None:
        """What must go before a join: everything, or for cooperative members only what is not subscribed any more."""
        going = frozenset(self._assignment.partitions)
        if self._is_cooperative and not self._has_lost:
            wanted = set(await self._topics.names())
            going = frozenset(tp for tp in going if tp[0] not in wanted)
        if going:
            async with self.turnstile.meeting():
                await self._part_with(going)
        self._has_lost = False

    async def _part_with(self, going: frozenset[TopicPartition], *, commit_ms: float | None = None) -> None:
        """Commit, let the application act, and stop to read. A member that was expelled, which may have come out only
        now, has lost all that it held."""
        if self._config.enable_auto_commit and not self._has_lost:
            await self.commits.commit_consumed(timeout_ms=commit_ms)
        owned = frozenset(self._assignment.partitions)
        if self._has_lost:
            self._hold(frozenset())
            await self._tell(self.listener.on_partitions_lost, owned)
        else:
            await self._tell(self.listener.on_partitions_revoked, going)
            self._hold(owned - going)

    async def _tell(
        self, hear: Callable[[frozenset[TopicPartition]], Awaitable[None]], partitions: frozenset[TopicPartition]
    ) -> None:
        """Let the application act. What it raises, such as CommitFailed for what it wanted to commit, is for the
        application too: it does not keep the member from going on."""
        try:
            await hear(partitions)
        except Exception as failure:  # noqa: BLE001 - `poll` raises it
            self._failed(failure)

    def _hold(self, partitions: frozenset[TopicPartition]) -> None:
        self._assignment.replace(sorted(partitions))
        self._changed()

    async def _join(self) -> frozenset[TopicPartition] | None:
        """Join and sync once. What this member is to read; None if it must join again."""
        self._is_joining = True
        try:
            self._told = await self._topics.names()
            answer = await self._joining.join(self.member, self._told, self._had)
            if answer is None or not self._is_accepted(answer, "JoinGroup"):
                return None
            self.member = Member(answer.member_id, int(answer.generation_id), answer.protocol_name)
            synced = await self._joining.sync(self.member, answer)
            if synced is None or not self._is_accepted(synced, "SyncGroup"):
                return None
            return frozenset(decode_assignment(synced.assignment).partitions)
        finally:
            self._is_joining = False

    def _is_accepted(self, answer: Any, name: str) -> bool:
        code = ErrorCode.of(int(answer.error_code))
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member = Member(answer.member_id)
        reaction = reaction_to(code)
        self._react(reaction, code, f"{name} was refused")
        return reaction is Reaction.NONE

    # being assigned

    async def _take(self, assigned: frozenset[TopicPartition]) -> None:
        """Go over to what was assigned. What is given up only now lets the others have it in a further rebalance."""
        self._had = tuple(sorted(assigned))
        member = self.member
        owned = frozenset(self._assignment.partitions)
        going, coming = owned - assigned, assigned - owned
        async with self.turnstile.meeting():
            if going:
                await self._part_with(going)
            if self.member != member:
                return  # expelled meanwhile, and about to join again
            self._hold(assigned)
            await self._tell(self.listener.on_partitions_assigned, coming)
            self._changed()
        if going:
            self.rejoin()

    # staying

    async def _send_heartbeats(self) -> None:
        while True:
            await self._clock.sleep_ms(self._config.heartbeat_interval_ms)
            if not self.member.is_in_group or self._is_joining:
                continue
            if self._is_deserted():
                await self._step_out()
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

    @property
    def is_polled(self) -> bool:
        """Whether the application waits in `poll` now; the time since it left counts."""
        return self._polled_ms is None

    @is_polled.setter
    def is_polled(self, value: bool) -> None:
        self._polled_ms = None if value else self._clock.monotonic_ms()

    def _is_deserted(self) -> bool:
        if self.is_iterated and not self.is_polled:
            self.is_polled = False  # since now
        self.is_iterated = False
        last_ms = self._polled_ms
        return last_ms is not None and self._clock.monotonic_ms() - last_ms > self._config.max_poll_interval_ms

    async def _step_out(self) -> None:
        """The application does not come back: leave, so that others get the partitions, and join when it comes."""
        await self._send_leave()
        self.member = self.member.after(Reaction.FORGET_ID)
        self._lose()
        self.rejoin()

    async def _watch_metadata(self) -> None:
        """Look now and then whether topics came, went or grew."""
        while True:
            await self._clock.sleep_ms(self._config.metadata_max_age_ms)
            await self._topics.refresh()
            if await self._topics.names() != self._told or await self._joining.is_outdated():
                self.rejoin()

    # leaving

    async def leave(self, *, is_done: bool) -> None:
        """Commit, let the application act, and leave. `is_done`: what the application was given last is dealt with.
        Raises what the listener raised, when it has left."""
        if is_done:
            self._assignment.come_back()
        failures: list[Exception] = []
        self._failed = failures.append
        await self.commits.finish(timeout_ms=LEAVE_TIMEOUT_MS)
        owned = frozenset(self._assignment.partitions)
        if owned:
            await self._part_with(owned, commit_ms=LEAVE_TIMEOUT_MS)
        await self._send_leave()
        if failures:
            raise failures[0]

    async def _send_leave(self) -> None:
        """A static member stays: it is expected back under its name."""
        if not self.member.member_id or self._config.group_instance_id is not None or self.coordinator.node is None:
            return
        await self.coordinator.ask(
            ApiKey.LEAVE_GROUP,
            HEARTBEATS,
            timeout_ms=LEAVE_TIMEOUT_MS,
            group_id=self.coordinator.group_id,
            members=({"member_id": self.member.member_id},),
        )
