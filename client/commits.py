"""A group's offsets: committing them, one request at a time, and fetching them.

Commits are sent in the order in which they were requested, so an older commit never overwrites a newer one. If there is
no response to a commit, it may have been carried out.

A group member commits offsets of the partitions that it was assigned when the commit was requested. If one of them has
been revoked since, the commit is not retried: a retry would reset the offset of that partition's new owner.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import structlog
import trio

from kraft.client.cluster import RETRIABLE, Cluster
from kraft.client.connections import TimedOut
from kraft.client.coordinator import COMMITS, Coordinator
from kraft.client.core.assigned import Assignment, ConsumerPartition
from kraft.client.core.configs import ConsumerConfig
from kraft.client.core.membership import NO_GENERATION, MemberIdentity, Reaction, reaction_to
from kraft.client.core.records import (
    CommitFailed,
    CommittedOffset,
    KafkaError,
    RebalanceInProgress,
    TopicPartition,
)
from kraft.seam import Seam
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

Offsets = Mapping[TopicPartition, CommittedOffset]

log = structlog.get_logger("kraft.client")


@dataclass(frozen=True, slots=True, eq=False)
class PendingCommit:
    """A queued commit. `held` has the assignment of each of its partitions when the commit was requested; None for a
    partition that was not assigned then."""

    offsets: Offsets
    held: Mapping[TopicPartition, ConsumerPartition | None]


class Commits:
    """The committed offsets of one group. `member()` returns the member that commits. `on_expelled(member, reaction)`
    is called when the coordinator rejects a commit because it does not recognize the member. `is_member` is true if the
    group assigns the partitions, and so may revoke them."""

    def __init__(
        self,
        config: ConsumerConfig,
        seam: Seam,
        coordinator: Coordinator,
        assignment: Assignment,
        member: Callable[[], MemberIdentity],
        on_expelled: Callable[[MemberIdentity, Reaction], None],
        *,
        is_member: bool = True,
    ) -> None:
        self._config = config
        self._clock = seam.clock
        self._coordinator = coordinator
        self._assignment = assignment
        self._member = member
        self._on_expelled = on_expelled
        self._is_member = is_member
        self._queue: deque[PendingCommit] = deque()
        """Commits that are not finished, in the order in which they were requested."""
        self._moved = trio.Event()
        self._last_automatic: dict[TopicPartition, CommittedOffset] = {}

    def schedule(self, offsets: Offsets) -> Callable[[], Awaitable[None]]:
        """Queue a commit of these offsets, and return a function that must be called once. The function waits for
        earlier commits, then does this commit; see `commit`."""
        return partial(self._commit_in_turn, self._enqueue(offsets), self._config.default_api_timeout_ms)

    async def commit(self, offsets: Offsets, *, timeout_ms: float | None = None) -> None:
        """Commit these offsets, after all commits that were requested before. Raise CommitFailed if the member is no
        longer in the group, RebalanceInProgress while the group rebalances, TimedOut or KafkaError if the commit fails
        otherwise."""
        await self._commit_in_turn(self._enqueue(offsets), timeout_ms or self._config.default_api_timeout_ms)

    def _enqueue(self, offsets: Offsets) -> PendingCommit:
        asked = PendingCommit(offsets, {tp: self._assignment.partitions.get(tp) for tp in offsets})
        self._queue.append(asked)
        return asked

    async def _commit_in_turn(self, asked: PendingCommit, timeout_ms: float) -> None:
        try:
            await trio.lowlevel.checkpoint()
            # Even if no time is left for a retry, wait for a slow response, but do not search endlessly for the
            # coordinator.
            with trio.move_on_after(max(timeout_ms, self._config.request_timeout_ms) / 1000) as waited:
                while self._queue[0] is not asked:
                    await self._moved.wait()
                if asked.offsets:
                    await self._commit(asked, timeout_ms)
            if waited.cancelled_caught:
                raise TimedOut(f"offsets of group {self._coordinator.group_id} were not confirmed as committed in time")
        finally:
            self._queue.remove(asked)
            self._moved.set()
            self._moved = trio.Event()

    async def finish(self, *, timeout_ms: float) -> None:
        """Wait until every requested commit has succeeded or failed, but no longer than `timeout_ms`."""
        with trio.move_on_after(timeout_ms / 1000):
            while self._queue:
                await self._moved.wait()

    async def _commit(self, asked: PendingCommit, timeout_ms: float) -> None:
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        pause_ms = self._config.retry_backoff_ms
        while (problem := await self._commit_once(asked)) is not None:
            if self._clock.monotonic_ms() >= deadline_ms:
                raise TimedOut(f"offsets of group {self._coordinator.group_id} are not committed: {problem}")
            await self._clock.sleep_ms(pause_ms)
            pause_ms = min(pause_ms * 2, self._config.retry_backoff_max_ms)

    def _require_held(self, asked: PendingCommit) -> None:
        """Raise CommitFailed if the member is not in its group now, or if one of these partitions has been revoked
        since the commit was requested. A consumer outside of group management is not checked."""
        given_up = [tp for tp, held in asked.held.items() if self._assignment.partitions.get(tp) is not held]
        if self._is_member and (given_up or not self._member().is_in_group):
            lost = ", ".join(f"{topic}-{partition}" for topic, partition in given_up or asked.held)
            text = f"the group rebalanced without this member since it read {lost}, which may belong to others now"
            raise CommitFailed(ErrorCode.ILLEGAL_GENERATION, text)

    async def _commit_once(self, asked: PendingCommit) -> str | None:
        """Send the commit once. Return None if it succeeded; else the reason, if the commit may be retried."""
        self._require_held(asked)
        member = self._member()
        topics: dict[str, list[dict[str, object]]] = {}
        for (topic, partition), entry in sorted(asked.offsets.items()):
            topics.setdefault(topic, []).append(
                {
                    "partition_index": partition,
                    "committed_offset": entry.offset,
                    "committed_leader_epoch": entry.leader_epoch,
                    "committed_metadata": entry.metadata,
                }
            )
        answer = await self._coordinator.ask(
            ApiKey.OFFSET_COMMIT,
            COMMITS,
            timeout_ms=self._config.request_timeout_ms,
            group_id=self._coordinator.group_id,
            generation_id_or_member_epoch=member.generation,
            member_id=member.member_id if member.is_in_group else "",
            # a consumer outside of group management must not send its instance id: it would be fenced as a static
            # member
            group_instance_id=self._config.group_instance_id if member.is_in_group else None,
            topics=tuple({"name": name, "partitions": tuple(parts)} for name, parts in topics.items()),
        )
        if answer is None:
            return "the connection to the coordinator failed"
        codes = [ErrorCode.of(int(p.error_code)) for topic in answer.topics for p in topic.partitions]
        refused = [code for code in codes if code is not ErrorCode.NONE]
        return self._judge(member, refused[0]) if refused else None

    def _judge(self, member: MemberIdentity, code: ErrorCode) -> str:
        reaction = reaction_to(code)
        if reaction is Reaction.FIND_COORDINATOR:
            self._coordinator.forget()
            return code.name
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._on_expelled(member, Reaction.REJOIN)
            raise RebalanceInProgress(code, "the group is rebalancing; poll first")
        if reaction in (Reaction.FORGET_GENERATION, Reaction.FORGET_ID) or code is ErrorCode.FENCED_INSTANCE_ID:
            if member.generation != NO_GENERATION:
                self._on_expelled(member, reaction)
            raise CommitFailed(code, "this member is no longer in the group; its partitions belong to others now")
        if reaction is Reaction.RETRY or code in RETRIABLE:
            return code.name
        raise KafkaError(code, f"offsets of group {self._coordinator.group_id} are not committed")

    async def run_automatic(self) -> None:
        """Commit the consumed positions every `auto.commit.interval.ms`, until cancelled."""
        while True:
            await self._clock.sleep_ms(self._config.auto_commit_interval_ms)
            await self.commit_consumed()

    async def commit_consumed(self, *, timeout_ms: float | None = None) -> None:
        """Commit the consumed positions that have changed since the last automatic commit. A failure is only logged,
        because the next commit includes the same positions."""
        consumed = self._assignment.consumed()
        fresh = {tp: entry for tp, entry in consumed.items() if self._last_automatic.get(tp) != entry}
        if not fresh:
            return
        try:
            await self.commit(fresh, timeout_ms=timeout_ms or self._config.auto_commit_interval_ms)
            self._last_automatic = consumed
        except (KafkaError, TimedOut) as problem:
            log.warning("offsets were not committed", group=self._coordinator.group_id, problem=str(problem))

    async def fetch(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset | None]:
        """Return the committed offsets of these partitions; None for a partition without one. Raise KafkaError if the
        client may not read the group's offsets."""
        wanted = sorted(set(partitions))
        pause_ms = self._config.retry_backoff_ms
        deadline_ms = self._clock.monotonic_ms() + self._config.default_api_timeout_ms
        while True:
            found = await self._fetch_once(wanted)
            if found is not None:
                return found
            if self._clock.monotonic_ms() >= deadline_ms:
                raise TimedOut(
                    f"the coordinator of group {self._coordinator.group_id} did not return its offsets in time"
                )
            await self._clock.sleep_ms(pause_ms)
            pause_ms = min(pause_ms * 2, self._config.retry_backoff_max_ms)

    async def _fetch_once(self, wanted: list[TopicPartition]) -> dict[TopicPartition, CommittedOffset | None] | None:
        topics: dict[str, list[int]] = {}
        for topic, partition in wanted:
            topics.setdefault(topic, []).append(partition)
        asked = tuple({"name": name, "partition_indexes": tuple(parts)} for name, parts in topics.items())
        member = self._member()
        as_member = {"member_id": member.member_id, "member_epoch": member.generation} if member.is_member_epoch else {}
        answer = await self._coordinator.ask(
            ApiKey.OFFSET_FETCH,
            COMMITS,
            timeout_ms=self._config.request_timeout_ms,
            groups=({"group_id": self._coordinator.group_id, "topics": asked, **as_member},),
            require_stable=True,
        )
        if answer is None:
            return None
        group = answer.groups[0]
        if not self._is_good(ErrorCode.of(int(group.error_code))):
            return None
        found: dict[TopicPartition, CommittedOffset | None] = dict.fromkeys(wanted)
        for topic in group.topics:
            for part in topic.partitions:
                if not self._is_good(ErrorCode.of(int(part.error_code))):
                    return None
                offset = int(part.committed_offset)
                if offset >= 0:
                    entry = CommittedOffset(offset, int(part.committed_leader_epoch), part.metadata or "")
                    found[(str(topic.name), int(part.partition_index))] = entry
        return found

    def _is_good(self, code: ErrorCode) -> bool:
        """Whether this part of a response can be used. If False, the offsets must be requested again. Raise KafkaError
        for an error that is not transient."""
        if code is ErrorCode.NONE:
            return True
        if reaction_to(code) is Reaction.FIND_COORDINATOR:
            self._coordinator.forget()
            return False
        if reaction_to(code) is Reaction.RETRY or code in RETRIABLE:
            return False
        if self._config.is_consumer_protocol and reaction_to(code) in (Reaction.FORGET_GENERATION, Reaction.FORGET_ID):
            return False  # the member joins again, or has left
        raise KafkaError(code, f"offsets of group {self._coordinator.group_id} cannot be read")


def commits_of_non_member(config: ConsumerConfig, cluster: Cluster, group_id: str, assignment: Assignment) -> Commits:
    """Return the commits of a consumer that chooses its partitions itself and is not a member of the group."""
    coordinator = Coordinator(config, cluster, group_id)
    return Commits(
        config, cluster.seam, coordinator, assignment, MemberIdentity, lambda _member, _reaction: None, is_member=False
    )


def committed_offsets(offsets: Mapping[TopicPartition, int | CommittedOffset]) -> dict[TopicPartition, CommittedOffset]:
    """Return the offsets of an application as offsets to commit."""
    return {tp: CommittedOffset(entry) if isinstance(entry, int) else entry for tp, entry in offsets.items()}
