"""A group's offsets: committing them, one request after the other, and reading them back.

Commits are sent in the order in which they were asked for, so that an older one never overtakes a newer one. A commit
that gets no answer may have been carried out. A member's commit is one of what it held when it was asked for: it is not
tried again once some of that has been given up, for it would take others back who read that by then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import structlog
import trio

from kraft.client.cluster import RETRIABLE
from kraft.client.connections import TimedOut
from kraft.client.coordinator import COMMITS, Coordinator
from kraft.client.core.assigned import Assigned, Assignment
from kraft.client.core.configs import ConsumerConfig
from kraft.client.core.membership import NO_GENERATION, Member, Reaction, reaction_to
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
class _Asked:
    """A commit in line. `held`: what was read of these partitions when it was asked for, None of those that were not
    assigned."""

    offsets: Offsets
    held: Mapping[TopicPartition, Assigned | None]


class Commits:
    """The offsets of one group. `member()` gives the member as whom to commit; `on_expelled(member, reaction)` is told
    that the coordinator does not know it any more; `is_member`: the group assigns what is read, and so may take it."""

    def __init__(
        self,
        config: ConsumerConfig,
        seam: Seam,
        coordinator: Coordinator,
        assignment: Assignment,
        member: Callable[[], Member],
        on_expelled: Callable[[Member, Reaction], None],
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
        self._line: deque[_Asked] = deque()
        """Commits that are not over, in the order in which they were asked for."""
        self._moved = trio.Event()
        self._last_automatic: dict[TopicPartition, CommittedOffset] = {}

    def ask(self, offsets: Offsets) -> Callable[[], Awaitable[None]]:
        """Stand in line for a commit of these offsets. What is given must be called once: it waits for its turn and
        does it; see `commit`."""
        return partial(self._commit_in_turn, self._stand_in_line(offsets), self._config.default_api_timeout_ms)

    async def commit(self, offsets: Offsets, *, timeout_ms: float | None = None) -> None:
        """Commit, after what was asked for before. CommitFailed if the member is not in the group any more,
        RebalanceInProgress while the group rebalances, TimedOut or KafkaError if it cannot be done."""
        await self._commit_in_turn(self._stand_in_line(offsets), timeout_ms or self._config.default_api_timeout_ms)

    def _stand_in_line(self, offsets: Offsets) -> _Asked:
        asked = _Asked(offsets, {tp: self._assignment.partitions.get(tp) for tp in offsets})
        self._line.append(asked)
        return asked

    async def _commit_in_turn(self, asked: _Asked, timeout_ms: float) -> None:
        try:
            await trio.lowlevel.checkpoint()
            # A slow answer is waited for, also when there is no time for another try; a search without end is not.
            with trio.move_on_after(max(timeout_ms, self._config.request_timeout_ms) / 1000) as waited:
                while self._line[0] is not asked:
                    await self._moved.wait()
                if asked.offsets:
                    await self._commit(asked, timeout_ms)
            if waited.cancelled_caught:
                raise TimedOut(f"offsets of group {self._coordinator.group_id} are not known to be committed in time")
        finally:
            self._line.remove(asked)
            self._moved.set()
            self._moved = trio.Event()

    async def finish(self, *, timeout_ms: float) -> None:
        """Wait until what was asked for is committed or refused, but no longer than this."""
        with trio.move_on_after(timeout_ms / 1000):
            while self._line:
                await self._moved.wait()

    async def _commit(self, asked: _Asked, timeout_ms: float) -> None:
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        pause_ms = self._config.retry_backoff_ms
        while (problem := await self._commit_once(asked)) is not None:
            if self._clock.monotonic_ms() >= deadline_ms:
                raise TimedOut(f"offsets of group {self._coordinator.group_id} are not committed: {problem}")
            await self._clock.sleep_ms(pause_ms)
            pause_ms = min(pause_ms * 2, self._config.retry_backoff_max_ms)

    def _require_held(self, asked: _Asked) -> None:
        """CommitFailed if a member is not in its group now, or has given up some of these partitions since it was
        asked. What nobody but this consumer reads is its own affair."""
        given_up = [tp for tp, held in asked.held.items() if self._assignment.partitions.get(tp) is not held]
        if self._is_member and (given_up or not self._member().is_in_group):
            lost = ", ".join(f"{topic}-{partition}" for topic, partition in given_up or asked.held)
            text = f"the group has gone on without this member since it read {lost}, which may belong to others now"
            raise CommitFailed(ErrorCode.ILLEGAL_GENERATION, text)

    async def _commit_once(self, asked: _Asked) -> str | None:
        """None if done; the reason if it may be tried again."""
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
            # a member that assigns itself must not use its name: it would be fenced as a static member
            group_instance_id=self._config.group_instance_id if member.is_in_group else None,
            topics=tuple({"name": name, "partitions": tuple(parts)} for name, parts in topics.items()),
        )
        if answer is None:
            return "the connection to the coordinator failed"
        codes = [ErrorCode.of(int(p.error_code)) for topic in answer.topics for p in topic.partitions]
        refused = [code for code in codes if code is not ErrorCode.NONE]
        return self._judge(member, refused[0]) if refused else None

    def _judge(self, member: Member, code: ErrorCode) -> str:
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
            raise CommitFailed(code, "this member is not in the group any more; its partitions belong to others now")
        if reaction is Reaction.RETRY or code in RETRIABLE:
            return code.name
        raise KafkaError(code, f"offsets of group {self._coordinator.group_id} are not committed")

    async def run_automatic(self) -> None:
        """Commit what the application has come back from, each `auto.commit.interval.ms`, until cancelled."""
        while True:
            await self._clock.sleep_ms(self._config.auto_commit_interval_ms)
            await self.commit_consumed()

    async def commit_consumed(self, *, timeout_ms: float | None = None) -> None:
        """Commit what the application has come back from, if it is new. A failure is logged: the next one covers it."""
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
        """What is committed for these partitions; None where nothing is. KafkaError if the group may not be read."""
        wanted = sorted(set(partitions))
        pause_ms = self._config.retry_backoff_ms
        deadline_ms = self._clock.monotonic_ms() + self._config.default_api_timeout_ms
        while True:
            found = await self._fetch_once(wanted)
            if found is not None:
                return found
            if self._clock.monotonic_ms() >= deadline_ms:
                raise TimedOut(f"the coordinator of group {self._coordinator.group_id} does not tell its offsets")
            await self._clock.sleep_ms(pause_ms)
            pause_ms = min(pause_ms * 2, self._config.retry_backoff_max_ms)

    async def _fetch_once(self, wanted: list[TopicPartition]) -> dict[TopicPartition, CommittedOffset | None] | None:
        topics: dict[str, list[int]] = {}
        for topic, partition in wanted:
            topics.setdefault(topic, []).append(partition)
        asked = tuple({"name": name, "partition_indexes": tuple(parts)} for name, parts in topics.items())
        answer = await self._coordinator.ask(
            ApiKey.OFFSET_FETCH,
            COMMITS,
            timeout_ms=self._config.request_timeout_ms,
            groups=({"group_id": self._coordinator.group_id, "topics": asked},),
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
        """Whether this part of an answer can be used; False: ask again. KafkaError for what asking does not cure."""
        if code is ErrorCode.NONE:
            return True
        if reaction_to(code) is Reaction.FIND_COORDINATOR:
            self._coordinator.forget()
            return False
        if reaction_to(code) is Reaction.RETRY or code in RETRIABLE:
            return False
        raise KafkaError(code, f"offsets of group {self._coordinator.group_id} cannot be read")
