"""The consumer: reads partitions that it is told to, or those that its group assigns to it.

    async with Consumer(bootstrap_servers="localhost:9092", group_id="billing") as consumer:
        await consumer.subscribe(["orders"])
        async for record in consumer:
            ...

Positions move when records are handed out, so a cancelled `poll` loses nothing. One task at a time may poll. Offsets
are committed each `auto.commit.interval.ms`, and never for a record that the application may still be working on: it
counts as done when the application asks for the next one.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Self

import structlog
import trio

from kraft.client.background import open_background
from kraft.client.cluster import Cluster
from kraft.client.commits import Commits
from kraft.client.connections import TimedOut, VersionMismatch
from kraft.client.coordinator import Coordinator
from kraft.client.core.assigned import Assigned, Assignment
from kraft.client.core.configs import ConsumerConfig
from kraft.client.core.fetched import FetchPosition
from kraft.client.core.membership import Member
from kraft.client.core.records import CommittedOffset, ConsumerRecord, KafkaError, TopicPartition
from kraft.client.fetcher import Fetcher
from kraft.client.group import Group
from kraft.client.not_open import not_open, not_open_error
from kraft.client.offsets import timestamp_of
from kraft.client.rebalancing import RebalanceListener
from kraft.client.subscription import Topics
from kraft.seam import Seam, WireError, sole_error
from kraft.wire.error_codes import ErrorCode

__all__ = ["Consumer"]

log = structlog.get_logger("kraft.client")

RECORDS_BETWEEN_CHECKPOINTS = 500
CLOSE_TIMEOUT_MS = 3_000


class Consumer:
    """See the module. Keyword arguments are Kafka's consumer configs (`ConsumerConfig`): `group_id="billing"`."""

    def __init__(self, *, tls: object | None = None, seam: Seam | None = None, **settings: Any) -> None:
        self.config = ConsumerConfig.of(settings)
        self._tls = tls
        self._given_seam = seam
        self._seam: Seam = not_open("Consumer")
        self._cluster: Cluster = not_open("Consumer")
        self._fetcher: Fetcher = not_open("Consumer")
        self._assignment = Assignment()
        self._group: Group | None = None
        self._commits: Commits | None = None
        self._membership: trio.CancelScope | None = None
        self._failures: dict[str, Exception] = {}
        """What the application has not been told of, in order; of those in the same words the first."""
        self._topic_failures: dict[str, Exception] = {}
        """The same of the topics that are subscribed: with the subscription it is given up."""
        self._changes = 0
        """So many calls are about to subscribe or assign something else."""
        self._end: Exception | None = not_open_error("Consumer")
        """Why nothing can come any more, unless something else is subscribed or assigned."""
        self._arrived = trio.Event()
        self._last: Assigned | None = None
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
            self._fetcher = Fetcher(config, self._cluster, self._assignment, self._nursery, self._announce, self._fail)
            self._nursery.start_soon(self._fetcher.run)
            self._end = None
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            with trio.move_on_after(CLOSE_TIMEOUT_MS / 1000, shield=True):
                await self._leave(is_done=kind is None)
        finally:
            for failure in [*self._failures.values(), *self._topic_failures.values()]:
                log.warning("the consumer has ended before its application was told", problem=str(failure))
            self._end = RuntimeError("the consumer is closed")
            self._announce()
            try:
                await self._stack.__aexit__(kind, error, trace)
            except BaseExceptionGroup as group:
                if error is None or sole_error(group) is not sole_error(error):
                    raise
                # What the application raised goes on as it is, not wrapped by our nursery: `except KafkaError` works.

    # what is read

    async def assign(
        self, partitions: Iterable[TopicPartition], *, at: str | int | Mapping[TopicPartition, int] | None = None
    ) -> None:
        """Read exactly these partitions, from `at`: "earliest", "latest", an offset, or one for each; without it: where
        the group committed, and failing that where `auto.offset.reset` says. Replaces what was assigned before."""
        wanted = list(partitions)
        for offset in at.values() if isinstance(at, Mapping) else [at] if isinstance(at, int) else []:
            _checked(offset)
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
            self._fetcher.kick()

    async def subscribe(
        self, topics: Iterable[str] | str | re.Pattern[str], *, listener: RebalanceListener | None = None
    ) -> None:
        """Read, as a member of the group `group_id`, what it assigns of these topics: names, or a pattern (a compiled
        one, or a text that begins with `^`). Returns at once; partitions come during `poll`."""
        if self.config.group_id is None:
            raise ValueError("subscribe needs a group_id; use assign to read without a group")
        if isinstance(topics, str):
            topics = re.compile(topics) if topics.startswith("^") else [topics]
        with self._changing():
            await self.unsubscribe()
        wanted = Topics(self._cluster, topics, partial(self._keep, self._topic_failures))
        self._group = Group(self.config, self._seam, self._cluster, self._assignment, wanted, self._changed, self._fail)
        self._group.listener = listener or RebalanceListener()
        self._commits = self._fetcher.commits = self._group.commits
        self._membership = trio.CancelScope()
        self._nursery.start_soon(self._be_member, self._group, self._membership)

    async def unsubscribe(self) -> None:
        """Leave the group, if in one, and read nothing any more."""
        await self._leave(is_done=True)
        self._assignment.replace(())
        self._topic_failures = {}
        await trio.lowlevel.checkpoint()

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """In here something else is about to be read: another task may poll meanwhile."""
        self._changes += 1
        try:
            yield
        finally:
            self._changes -= 1

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """What is read now."""
        return frozenset(self._assignment.partitions)

    @property
    def member_id(self) -> str:
        """Who this consumer is in its group; empty outside of one."""
        return "" if self._group is None else self._group.member.member_id

    async def _be_member(self, group: Group, scope: trio.CancelScope) -> None:
        with scope:
            try:
                await group.run()
            except* (KafkaError, VersionMismatch, WireError) as problems:
                self._assignment.replace(())
                error = sole_error(problems)
                self._end = error if isinstance(error, Exception) else problems
                self._announce()

    async def _leave(self, *, is_done: bool) -> None:
        group, self._group, self._end = self._group, None, None
        if self._membership is not None:
            self._membership.cancel()
            self._membership = None
        if group is not None:
            await group.leave(is_done=is_done)
        elif self._commits is not None:
            await self._commits.finish(timeout_ms=CLOSE_TIMEOUT_MS)
            if self.config.enable_auto_commit and self._assignment.partitions:
                if is_done:
                    self._assignment.come_back()
                await self._commits.commit_consumed(timeout_ms=CLOSE_TIMEOUT_MS)

    def _need_commits(self) -> None:
        """A consumer that assigns itself commits for its group too, as nobody in particular."""
        if self.config.group_id is not None:
            coordinator = Coordinator(self.config, self._cluster, self.config.group_id)
            self._commits = Commits(
                self.config,
                self._seam,
                coordinator,
                self._assignment,
                Member,
                lambda _member, _reaction: None,
                is_member=False,
            )
            self._fetcher.commits = self._commits
            if self.config.enable_auto_commit:
                self._membership = trio.CancelScope()
                self._nursery.start_soon(self._commit_on_and_on, self._commits, self._membership)

    @staticmethod
    async def _commit_on_and_on(commits: Commits, scope: trio.CancelScope) -> None:
        with scope:
            await commits.run_automatic()

    # reading

    async def poll(self, *, records_max: int | None = None, timeout_ms: float | None = None) -> list[ConsumerRecord]:
        """Records that have come, at most `records_max` (`max.poll.records`); waits for the first. Empty only when the
        time is over. Rebalances happen in here. KafkaError CORRUPT_MESSAGE: a batch is damaged, and asked for again.
        RuntimeError if nothing is subscribed or assigned."""
        count = self.config.max_poll_records if records_max is None else records_max
        self._last = None
        self._credit = RECORDS_BETWEEN_CHECKPOINTS
        self._assignment.come_back()
        deadline = float("inf") if timeout_ms is None else trio.current_time() + timeout_ms / 1000
        await trio.lowlevel.checkpoint()
        group = self._group
        if group is not None:
            group.is_polled = True
        elif not self._assignment.partitions and not self._changes:
            self._raise_failure()
            raise RuntimeError("poll has nothing to read: subscribe or assign first")
        try:
            while True:
                if group is not None and group.turnstile.is_wanted:
                    await group.turnstile.pass_through()  # a rebalance takes the time that it takes
                    continue
                self._raise_failure()
                taken = self._assignment.take(count)
                self._fetcher.kick()
                if taken:
                    return taken
                with trio.move_on_at(deadline) as waited:
                    await self._arrived.wait()
                if waited.cancelled_caught and not self._is_interrupted:
                    return []
        finally:
            if group is not None:
                group.is_polled = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        last = self._last
        self._credit -= 1
        if last is not None and last.records and not last.is_paused and self._credit > 0 and not self._is_interrupted:
            # The next record of the same batch, with no checkpoint: what a loop over records does nearly always.
            last.consumed = last.given
            if self._group is not None:
                self._group.is_iterated = True
            record = last.records.pop()
            last.give(record)
            return record
        record = (await self.poll(records_max=1))[0]
        self._last = self._assignment.partitions[(record.topic, record.partition)]
        return record

    @property
    def _is_interrupted(self) -> bool:
        is_wanted = self._group is not None and self._group.turnstile.is_wanted
        return is_wanted or bool(self._failures or self._topic_failures) or self._end is not None

    def _raise_failure(self) -> None:
        for failures in (self._failures, self._topic_failures):
            if failures:
                raise failures.pop(next(iter(failures)))
        if self._end is not None:
            raise self._end

    def _fail(self, failure: Exception) -> None:
        self._keep(self._failures, failure)

    def _keep(self, failures: dict[str, Exception], failure: Exception) -> None:
        failures.setdefault(repr(failure), failure)
        self._announce()

    def _announce(self) -> None:
        self._arrived.set()
        self._arrived = trio.Event()

    def _changed(self) -> None:
        self._last = None
        self._announce()
        self._fetcher.kick()

    # positions

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read on at `offset`; what was fetched before is dropped. ValueError for what is no offset."""
        self._of(partition).seek(FetchPosition(_checked(offset)))
        self._last = None
        self._fetcher.kick()

    async def seek_to(self, partitions: Iterable[TopicPartition], *, at: str | int) -> None:
        """Read on at "earliest", "latest", or the first record of a time in ms or later (the end if there is none)."""
        timestamp = timestamp_of(at)
        for partition in partitions:
            self._of(partition).seek_by_time(timestamp)
        self._last = None
        self._fetcher.kick()
        await trio.lowlevel.checkpoint()

    def position(self, partition: TopicPartition) -> int:
        """The offset of the next record that `poll` may give. KafkaError if it is still being found."""
        given = self._of(partition).given
        if given is None:
            text = f"the position of {partition[0]}-{partition[1]} is still being found: poll first"
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, text)
        return given.offset

    def lag(self, partition: TopicPartition) -> int | None:
        """How many offsets the position is behind the end, as the last fetch told it; None if there was none."""
        assigned = self._of(partition)
        end = assigned.last_stable_offset if self.config.read_committed else assigned.high_watermark
        return None if assigned.given is None or end < 0 else max(end - assigned.given.offset, 0)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Give nothing of these until `resume`; what is fetched is kept."""
        for partition in partitions:
            self._of(partition).is_paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._of(partition).is_paused = False
        self._changed()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(tp for tp, assigned in self._assignment.partitions.items() if assigned.is_paused)

    def _of(self, partition: TopicPartition) -> Assigned:
        assigned = self._assignment.partitions.get(partition)
        if assigned is None:
            raise KeyError(f"{partition[0]}-{partition[1]} is not assigned to this consumer")
        return assigned

    async def offsets(
        self, partitions: Iterable[TopicPartition], *, at: str | int = "latest", timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset of each partition at "earliest", "latest" or a time in ms (-1 if there is no later record)."""
        timestamp = timestamp_of(at)
        wanted = sorted(set(partitions))
        return await self._fetcher.lookup.find(dict.fromkeys(wanted, timestamp), timeout_ms=timeout_ms)

    # committing

    async def commit(self, offsets: Mapping[TopicPartition, int | CommittedOffset] | None = None) -> None:
        """Commit these offsets, or the position after every record that was given, and wait until that is done.
        CommitFailed, RebalanceInProgress, TimedOut or KafkaError if it is not."""
        if self._commits is None:
            raise ValueError("commit needs a group_id, and something assigned or subscribed")
        chosen = self._assignment.given() if offsets is None else _committed(offsets)
        await self._commits.commit(chosen)

    def commit_nowait(self, offsets: Mapping[TopicPartition, int | CommittedOffset] | None = None) -> None:
        """The same without waiting: a failure is raised by a later `poll`. Commits keep their order, and are done
        before the consumer leaves its group or ends."""
        if self._commits is None:
            raise ValueError("commit needs a group_id, and something assigned or subscribed")
        chosen = self._assignment.given() if offsets is None else _committed(offsets)
        self._nursery.start_soon(self._commit_later, self._commits.ask(chosen))

    async def _commit_later(self, commit: Callable[[], Awaitable[None]]) -> None:
        try:
            await commit()
        except (KafkaError, TimedOut) as failure:
            self._fail(failure)

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset | None]:
        """What the group has committed; None where it has nothing. TimedOut or KafkaError if nobody tells."""
        if self._commits is None:
            self._need_commits()
        if self._commits is None:
            raise ValueError("committed needs a group_id")
        with trio.move_on_after(self.config.default_api_timeout_ms / 1000):
            return await self._commits.fetch(partitions)
        raise TimedOut(f"what group {self.config.group_id} has committed was not told in time")


def _committed(offsets: Mapping[TopicPartition, int | CommittedOffset]) -> dict[TopicPartition, CommittedOffset]:
    return {tp: CommittedOffset(entry) if isinstance(entry, int) else entry for tp, entry in offsets.items()}


def _checked(offset: int) -> int:
    """An offset that a log can have. ValueError for others."""
    if not 0 <= offset < 1 << 63:
        raise ValueError(f"offset {offset}: expected 0 or more, in 63 bits; see seek_to for earliest and latest")
    return offset
