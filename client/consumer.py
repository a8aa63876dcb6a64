"""The consumer: reads partitions that the application assigns, or those that its group assigns to it.

    async with Consumer(bootstrap_servers="localhost:9092", group_id="billing") as consumer:
        await consumer.subscribe(["orders"])
        async for record in consumer:
            ...

Positions move when records are returned, so a cancelled `poll` loses nothing. One task at a time may poll. Offsets are
committed every `auto.commit.interval.ms`, and never for a record that the application may still be processing. A record
counts as processed when the application asks for the next one.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from types import TracebackType
from typing import Any, Self

import trio

from kraft.client.background import close_parts, open_background
from kraft.client.cluster import Cluster
from kraft.client.commits import Commits, commits_of_non_member, committed_offsets
from kraft.client.connections import TimedOut, VersionMismatch
from kraft.client.consumer_group import ConsumerGroupMembership
from kraft.client.core.assigned import Assignment, ConsumerPartition
from kraft.client.core.configs import ConsumerConfig
from kraft.client.core.fetched import FetchPosition
from kraft.client.core.membership import MemberIdentity
from kraft.client.core.records import CommittedOffset, ConsumerRecord, GroupMetadata, KafkaError, TopicPartition
from kraft.client.fetcher import Fetcher
from kraft.client.group import GroupMembership
from kraft.client.not_open import not_open, not_open_error
from kraft.client.offsets import timestamp_of, valid_offset
from kraft.client.poll_errors import PollErrors
from kraft.client.rebalancing import RebalanceListener
from kraft.client.subscription import SubscribedTopics, subscribed_topics
from kraft.seam import Seam, WireError
from kraft.wire.error_codes import ErrorCode

__all__ = ["Consumer"]

RECORDS_BETWEEN_CHECKPOINTS = 500
CLOSE_TIMEOUT_MS = 3_000


class Consumer:
    """A consumer; see the module for an example. Keyword arguments are Kafka's consumer configs (`ConsumerConfig`), for
    example `group_id="billing"`."""

    def __init__(self, *, tls: object | None = None, seam: Seam | None = None, **settings: Any) -> None:
        self.config = ConsumerConfig.of(settings)
        self._tls = tls
        self._given_seam = seam
        self._seam: Seam = not_open("Consumer")
        self._cluster: Cluster = not_open("Consumer")
        self._fetcher: Fetcher = not_open("Consumer")
        self._assignment = Assignment()
        self._group: GroupMembership | ConsumerGroupMembership | None = None
        self._commits: Commits | None = None
        self._membership: trio.CancelScope | None = None
        self._changes = 0
        """Number of `assign` and `subscribe` calls in progress."""
        self._errors = PollErrors(not_open_error("Consumer"))
        self._last: ConsumerPartition | None = None
        self._credit = 0

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            background = open_background(self._given_seam)
            self._seam, self._nursery = await stack.enter_async_context(background)
            config = self.config
            self._cluster = Cluster(
                config.addresses,
                self._seam,
                client_id=config.client_id,
                tls=self._tls,
                may_create_topics=config.allow_auto_create_topics,
            )
            stack.callback(self._cluster.close)
            self._fetcher = Fetcher(
                config, self._cluster, self._assignment, self._nursery, self._errors.announce, self._errors.report
            )
            self._nursery.start_soon(self._fetcher.run)
            self._errors.final = None
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            with trio.move_on_after(CLOSE_TIMEOUT_MS / 1000, shield=True):
                await self._leave(is_done=kind is None)
        finally:
            self._errors.log_waiting("consumer")
            self._errors.final = RuntimeError("the consumer is closed")
            self._errors.announce()
            await close_parts(self._stack, kind, error, trace)

    # subscription and assignment

    async def assign(
        self, partitions: Iterable[TopicPartition], *, at: str | int | Mapping[TopicPartition, int] | None = None
    ) -> None:
        """Read exactly these partitions, and no others that were assigned before. `at` is the place to start:
        "earliest", "latest", an offset, or one offset for each partition. Without `at`, start at the group's committed
        offset. Without a committed offset, start where `auto.offset.reset` says."""
        wanted = list(partitions)
        for offset in at.values() if isinstance(at, Mapping) else [at] if isinstance(at, int) else []:
            valid_offset(offset)
        with self._changing():
            await self.unsubscribe()
            self._need_commits()
            for topic in sorted({topic for topic, _ in wanted}):
                await self._cluster.wait_topic(topic, timeout_ms=self.config.default_api_timeout_ms)
            starts: Mapping[TopicPartition, int] = {}
            if isinstance(at, str):
                starts = await self.offsets(wanted, at=at)
            elif at is not None:
                starts = dict.fromkeys(wanted, at) if isinstance(at, int) else at
            self._assignment.replace(wanted)
            for tp, offset in starts.items():
                self._assignment.partitions[tp].seek(FetchPosition(offset))
            self._fetcher.wake()

    async def subscribe(
        self, topics: Iterable[str] | str | re.Pattern[str], *, listener: RebalanceListener | None = None
    ) -> None:
        """Join the group `group_id`, and read the partitions of these topics that the group assigns to this consumer.
        `topics` has names, or is a pattern (compiled, or a string that begins with `^`). With
        `group_protocol="consumer"`, the brokers resolve such a string, in the syntax of RE2, and a consumer that has
        subscribed before stays in the group. Return at once; partitions are assigned during `poll`."""
        if self.config.group_id is None:
            raise ValueError("subscribe needs a group_id; use assign to read without a group")
        listener = listener or RebalanceListener()
        if isinstance(self._group, ConsumerGroupMembership) and self._errors.final is None:
            self._group.subscribe(self._subscribed(topics), listener)
            await trio.lowlevel.checkpoint()
            return
        with self._changing():
            await self.unsubscribe()
        membership = ConsumerGroupMembership if self.config.is_consumer_protocol else GroupMembership
        wanted, failed = self._subscribed(topics), self._errors.report
        self._group = membership(self.config, self._cluster, self._assignment, wanted, listener, self._changed, failed)
        self._commits = self._fetcher.commits = self._group.commits
        self._membership = trio.CancelScope()
        self._nursery.start_soon(self._run_membership, self._group, self._membership)

    def _subscribed(self, topics: Iterable[str] | str | re.Pattern[str]) -> SubscribedTopics:
        failed = self._errors.begin_subscription()
        return subscribed_topics(topics, self._cluster, failed, is_re2=self.config.is_consumer_protocol)

    async def unsubscribe(self) -> None:
        """Leave the group, if this consumer is a member, and stop reading."""
        try:
            await self._leave(is_done=True)
        finally:
            # If this is cancelled, the partitions may already belong to other members, so `poll` must not return more.
            self._assignment.replace(())
            self._errors.end_subscription()
        await trio.lowlevel.checkpoint()

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Mark that the assignment is about to change, so that another task may already call `poll`."""
        self._changes += 1
        try:
            yield
        finally:
            self._changes -= 1

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this consumer reads now."""
        return frozenset(self._assignment.partitions)

    @property
    def member_id(self) -> str:
        """The id of this consumer in its group; empty outside of a group."""
        return "" if self._group is None else self._group.member.member_id

    async def _run_membership(self, group: GroupMembership | ConsumerGroupMembership, scope: trio.CancelScope) -> None:
        with scope:
            try:
                await group.run()
            except* (KafkaError, VersionMismatch, WireError) as problems:
                self._assignment.replace(())
                self._errors.end(problems)

    async def _leave(self, *, is_done: bool) -> None:
        group, self._group, self._errors.final = self._group, None, None
        if self._membership is not None:
            self._membership.cancel()
            self._membership = None
        if group is not None:
            await group.leave(is_done=is_done)
        elif self._commits is not None:
            await self._commits.finish(timeout_ms=CLOSE_TIMEOUT_MS)
            if self.config.enable_auto_commit and self._assignment.partitions:
                if is_done:
                    self._assignment.mark_consumed()
                await self._commits.commit_consumed(timeout_ms=CLOSE_TIMEOUT_MS)

    def _need_commits(self) -> None:
        """Create the object that commits, for a consumer outside of group management. With a `group_id`, it commits for
        that group without being a member."""
        if self.config.group_id is not None:
            self._commits = commits_of_non_member(self.config, self._cluster, self.config.group_id, self._assignment)
            self._fetcher.commits = self._commits
            if self.config.enable_auto_commit:
                self._membership = trio.CancelScope()
                self._nursery.start_soon(self._commit_periodically, self._commits, self._membership)

    @staticmethod
    async def _commit_periodically(commits: Commits, scope: trio.CancelScope) -> None:
        with scope:
            await commits.run_automatic()

    # reading

    async def poll(self, *, records_max: int | None = None, timeout_ms: float | None = None) -> list[ConsumerRecord]:
        """Return fetched records, at most `records_max` (`max.poll.records`). Wait until there is at least one; return
        an empty list only on timeout. Rebalances happen during this call. Raise KafkaError CORRUPT_MESSAGE if a batch
        is damaged; the batch is then fetched again. Raise RuntimeError if nothing is subscribed or assigned."""
        count = self.config.max_poll_records if records_max is None else records_max
        self._last = None
        self._credit = RECORDS_BETWEEN_CHECKPOINTS
        self._assignment.mark_consumed()
        deadline = float("inf") if timeout_ms is None else trio.current_time() + timeout_ms / 1000
        await trio.lowlevel.checkpoint()
        if self._group is None and not self._assignment.partitions and not self._changes:
            self._errors.raise_next()
            raise RuntimeError("poll has nothing to read: subscribe or assign first")
        try:
            while True:
                group = self._group  # another task may have subscribed meanwhile
                if group is not None:
                    group.poll_clock.is_polled = True
                    if group.poll_gate.is_hold_requested:
                        await group.poll_gate.wait_until_released()  # a rebalance is not bounded by the timeout
                        continue
                self._errors.raise_next()
                taken = self._assignment.take(count)
                self._fetcher.wake()
                if taken:
                    return taken
                with trio.move_on_at(deadline) as waited:
                    await self._errors.wait()
                if waited.cancelled_caught and not self._is_interrupted:
                    return []
        finally:
            if self._group is not None:
                self._group.poll_clock.is_polled = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        last = self._last
        self._credit -= 1
        if last is not None and last.records and not last.is_paused and self._credit > 0 and not self._is_interrupted:
            # Fast path of nearly every iteration: return the next record of the same batch, without a checkpoint.
            last.consumed = last.given
            if self._group is not None:
                self._group.poll_clock.is_iterated = True
            record = last.records.pop()
            last.advance(record)
            return record
        record = (await self.poll(records_max=1))[0]
        self._last = self._assignment.partitions[(record.topic, record.partition)]
        return record

    @property
    def _is_interrupted(self) -> bool:
        is_hold_requested = self._group is not None and self._group.poll_gate.is_hold_requested
        return is_hold_requested or self._errors.is_waiting

    def _changed(self) -> None:
        self._last = None
        self._errors.announce()
        self._fetcher.wake()

    # positions

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue reading at `offset` and drop the records that were fetched before. Raise ValueError if `offset` is
        not a valid offset."""
        self._of(partition).seek(FetchPosition(valid_offset(offset)))
        self._last = None
        self._fetcher.wake()

    async def seek_to(self, partitions: Iterable[TopicPartition], *, at: str | int) -> None:
        """Continue reading at "earliest", at "latest", or at the first record whose timestamp is not before `at` (in
        ms). If there is no such record, continue at the end of the log."""
        timestamp = timestamp_of(at)
        for partition in partitions:
            self._of(partition).seek_by_time(timestamp)
        self._last = None
        self._fetcher.wake()
        await trio.lowlevel.checkpoint()

    def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record that `poll` may return. Raise KafkaError if it is not known yet."""
        given = self._of(partition).given
        if given is None:
            text = f"the position of {partition[0]}-{partition[1]} is still being found: poll first"
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, text)
        return given.offset

    def lag(self, partition: TopicPartition) -> int | None:
        """Return the number of offsets between the position and the end of the log, as of the last fetch. None before
        the first fetch."""
        assigned = self._of(partition)
        end = assigned.last_stable_offset if self.config.read_committed else assigned.high_watermark
        return None if assigned.given is None or end < 0 else max(end - assigned.given.offset, 0)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these partitions until `resume` is called. Records that were fetched are kept."""
        for partition in partitions:
            self._of(partition).is_paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._of(partition).is_paused = False
        self._changed()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(tp for tp, assigned in self._assignment.partitions.items() if assigned.is_paused)

    def _of(self, partition: TopicPartition) -> ConsumerPartition:
        assigned = self._assignment.partitions.get(partition)
        if assigned is None:
            raise KeyError(f"{partition[0]}-{partition[1]} is not assigned to this consumer")
        return assigned

    async def offsets(
        self, partitions: Iterable[TopicPartition], *, at: str | int = "latest", timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset of each partition at "earliest", at "latest", or at a time in ms (-1 if no record is at or
        after the time)."""
        timestamp = timestamp_of(at)
        wanted = sorted(set(partitions))
        return await self._fetcher.lookup.find(dict.fromkeys(wanted, timestamp), timeout_ms=timeout_ms)

    # committing

    def group_metadata(self) -> GroupMetadata:
        """Return this consumer's membership in its group, for `Producer.send_offsets`. Raise ValueError without a
        `group_id`. Call it after the `poll` that returned the records: the group rejects the offsets of a member that a
        rebalance has removed."""
        if self.config.group_id is None:
            raise ValueError("group_metadata needs a group_id")
        member = MemberIdentity() if self._group is None else self._group.member
        if not member.is_in_group:
            return GroupMetadata(self.config.group_id)
        instance_id = self.config.group_instance_id
        return GroupMetadata(self.config.group_id, member.generation, member.member_id, instance_id)

    async def commit(self, offsets: Mapping[TopicPartition, int | CommittedOffset] | None = None) -> None:
        """Commit these offsets, and wait for the response. Without `offsets`, commit the position after every returned
        record. Raise CommitFailed, RebalanceInProgress, TimedOut or KafkaError if the commit fails."""
        if self._commits is None:
            raise ValueError("commit needs a group_id, and something assigned or subscribed")
        chosen = self._assignment.given() if offsets is None else committed_offsets(offsets)
        await self._commits.commit(chosen)

    def commit_nowait(self, offsets: Mapping[TopicPartition, int | CommittedOffset] | None = None) -> None:
        """Do the same as `commit`, without waiting. If the commit fails, a later `poll` raises the error. Commits keep
        their order, and finish before the consumer leaves its group or closes."""
        if self._commits is None:
            raise ValueError("commit needs a group_id, and something assigned or subscribed")
        chosen = self._assignment.given() if offsets is None else committed_offsets(offsets)
        self._nursery.start_soon(self._commit_later, self._commits.schedule(chosen))

    async def _commit_later(self, commit: Callable[[], Awaitable[None]]) -> None:
        try:
            await commit()
        except (KafkaError, TimedOut) as failure:
            self._errors.report(failure)

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset | None]:
        """Return the group's committed offsets of these partitions; None for a partition without one. Raise TimedOut or
        KafkaError if the coordinator does not return them."""
        if self._commits is None:
            self._need_commits()
        if self._commits is None:
            raise ValueError("committed needs a group_id")
        with trio.move_on_after(self.config.default_api_timeout_ms / 1000):
            return await self._commits.fetch(partitions)
        raise TimedOut(f"the committed offsets of group {self.config.group_id} were not returned in time")
