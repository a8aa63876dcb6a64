"""The share consumer: reads records that its share group delivers to it, and acknowledges them.

    async with ShareConsumer(bootstrap_servers="localhost:9092", group_id="jobs") as consumer:
        await consumer.subscribe(["orders"])
        async for record in consumer:
            ...

By default, records are acknowledged implicitly: they are accepted when the application asks for the next ones, or
commits. With `share_acknowledgement_mode="explicit"`, the application acknowledges each record itself, before it asks
for the next ones. Closing the consumer releases all other records. One task at a time may poll.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

import trio

from kraft.client.background import close_parts, open_background
from kraft.client.cluster import Cluster
from kraft.client.connections import VersionMismatch
from kraft.client.core.configs import ShareConsumerConfig
from kraft.client.core.records import KafkaError, TopicPartition
from kraft.client.core.share.acknowledging import RENEW, ShareCommit
from kraft.client.core.share.held import HeldRecords
from kraft.client.core.share.records import Acknowledgement, ShareRecord
from kraft.client.core.share.requests import ShareMemberId
from kraft.client.not_open import not_open, not_open_error
from kraft.client.poll_errors import PollErrors
from kraft.client.share.acknowledgement_results import AcknowledgementResults, OnAcknowledged
from kraft.client.share.exchanges import ShareExchanges
from kraft.client.share.membership import ShareGroupMembership
from kraft.client.subscription import SubscribedTopics
from kraft.seam import Clock, Seam, WireError
from kraft.seam.ids import encode_uuid

__all__ = ["ShareConsumer"]

RECORDS_BETWEEN_CHECKPOINTS = 500
CLOSE_TIMEOUT_MS = 4_000
NOT_SUBSCRIBED = "poll has nothing to read: subscribe first"


class ShareConsumer:
    """A share consumer; see the module for an example. Keyword arguments are Kafka's share consumer configs
    (`ShareConsumerConfig`), for example `group_id="jobs"`.

    `on_acknowledged(partition, offsets, error)` is a plain function. It is called for each result of acknowledgements,
    explicit or implicit: the offsets of the records that one request has acknowledged in one partition, and None or the
    error with which all of them failed. The calls happen one after another, only in the task that calls `poll` or
    `commit`, or ends the `async with` block: before `poll` returns or waits, after `commit` has all its results, and
    once closing has sent what was left. If it raises an exception, the other results that have arrived are still
    reported; then `poll`, `commit` or the end of the block raises the exception. After a cancellation, results are
    reported by the next of these calls."""

    def __init__(
        self,
        *,
        on_acknowledged: OnAcknowledged | None = None,
        tls: object | None = None,
        seam: Seam | None = None,
        **settings: Any,
    ) -> None:
        self.config = ShareConsumerConfig.of(settings)
        self._tls = tls
        self._given_seam = seam
        self._clock: Clock = not_open("ShareConsumer")
        self._cluster: Cluster = not_open("ShareConsumer")
        self._exchanges: ShareExchanges = not_open("ShareConsumer")
        self._is_explicit = self.config.is_explicit
        self._group: ShareGroupMembership | None = None
        self._names: frozenset[str] = frozenset()
        """The subscribed topics."""
        self._owned: frozenset[TopicPartition] = frozenset()
        """The partitions that the coordinator has assigned."""
        self._scope: trio.CancelScope | None = None
        self._errors = PollErrors(not_open_error("ShareConsumer"))
        self._results = AcknowledgementResults(on_acknowledged)
        self._is_closed = False
        self._last: HeldRecords | None = None
        self._credit = 0

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            background = open_background(self._given_seam)
            seam, self._nursery = await stack.enter_async_context(background)
            config = self.config
            self._clock = seam.clock
            self._cluster = Cluster(
                config.addresses,
                seam,
                client_id=config.client_id,
                tls=self._tls,
                may_create_topics=config.allow_auto_create_topics,
            )
            stack.callback(self._cluster.close)
            self._member_id = encode_uuid(seam.random.stream("member ids").uuid())
            member = ShareMemberId(config.group_id or "", self._member_id)
            self._exchanges = ShareExchanges(
                config,
                self._cluster,
                member,
                self._nursery,
                self._errors.announce,
                self._results.add,
                self._errors.report,
            )
            self._nursery.start_soon(self._exchanges.run)
            self._errors.final = None
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            with trio.move_on_after(CLOSE_TIMEOUT_MS / 1000, shield=True):
                await self._leave()
        finally:
            self._errors.log_waiting("share consumer")
            self._is_closed = True
            self._errors.announce()
            try:
                self._results.report()
            finally:
                await close_parts(self._stack, kind, error, trace)

    # subscription

    async def subscribe(self, topics: Iterable[str] | str) -> None:
        """Join the share group `group_id`, or change the topics of a member. Share groups have no patterns. Return at
        once; records arrive during `poll`. Without topics, do the same as `unsubscribe`."""
        self._require_open()
        names = [topics] if isinstance(topics, str) else topics
        names = sorted(set(names))
        if not names:
            await self.unsubscribe()
            return
        if self._group is not None and self._errors.final is None:
            self._names = frozenset(names)
            self._assign(self._owned)
            self._group.subscribe(self._wanted(names))
            await trio.lowlevel.checkpoint()
            return
        await self.unsubscribe()
        self._names = frozenset(names)
        self._group = ShareGroupMembership(
            self.config, self._cluster, self._member_id, self._wanted(names), self._assign, self._errors.report
        )
        self._scope = trio.CancelScope()
        self._nursery.start_soon(self._run_membership, self._group, self._scope)

    def _wanted(self, names: Iterable[str]) -> SubscribedTopics:
        return SubscribedTopics(self._cluster, names, self._errors.begin_subscription())

    async def unsubscribe(self) -> None:
        """Leave the group, if this consumer is a member. Records that are not acknowledged are released."""
        self._errors.end_subscription()
        with trio.CancelScope(shield=True):
            await self._leave()
        await trio.lowlevel.checkpoint()

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions from which this consumer gets records now. Other members may get records of them too."""
        return frozenset() if self._group is None else self._exchanges.assigned

    @property
    def member_id(self) -> str:
        """The id of this consumer in its group; empty outside of a group."""
        return "" if self._group is None else self._group.member.member_id

    @property
    def acquisition_lock_ms(self) -> int | None:
        """Duration of the lock on a record, in ms. None before the first fetch, and outside of a group."""
        return None if self._group is None else self._exchanges.lock_ms

    def _assign(self, partitions: frozenset[TopicPartition]) -> None:
        """Fetch from these partitions, as far as their topics are subscribed. The coordinator may not have the newest
        subscription yet."""
        self._last = None
        self._owned = partitions
        self._exchanges.assign(frozenset(one for one in partitions if one[0] in self._names))

    async def _run_membership(self, group: ShareGroupMembership, scope: trio.CancelScope) -> None:
        with scope:
            try:
                await group.run()
            except* (KafkaError, VersionMismatch, WireError) as problems:
                self._assign(frozenset())
                self._errors.end(problems)

    async def _leave(self) -> None:
        """Send the acknowledgements that were made, end the share sessions, and leave the group."""
        group, self._group, self._errors.final, self._last = self._group, None, None, None
        self._owned = frozenset()
        self._errors.announce()
        if self._scope is not None:
            self._scope.cancel()
            self._scope = None
        if group is None:
            return
        try:
            self._exchanges.sessions.queue_marked(self._clock.monotonic_ms())
            await self._exchanges.end_sessions()
        finally:
            await group.leave()

    # reading

    async def poll(self, *, records_max: int | None = None, timeout_ms: float | None = None) -> list[ShareRecord]:
        """Return delivered records, at most `records_max` (`max.poll.records`). Wait until there is at least one, and
        return an empty list only on timeout. The records of the last call are accepted, or have the acknowledgements
        that were made. Records whose lock was renewed are returned again, before any other.

        Raise RuntimeError if nothing is subscribed, also if `unsubscribe` ends the wait, or if an explicit
        acknowledgement is missing. Raise KafkaError CORRUPT_MESSAGE if a batch is damaged; its records are released."""
        count = self.config.max_poll_records if records_max is None else records_max
        self._finish_given()
        self._last = None
        self._credit = RECORDS_BETWEEN_CHECKPOINTS
        deadline = float("inf") if timeout_ms is None else trio.current_time() + timeout_ms / 1000
        await trio.lowlevel.checkpoint()
        group, exchanges = self._group, self._exchanges
        if group is None:
            self._report()
            raise RuntimeError(NOT_SUBSCRIBED)
        group.poll_begins()
        exchanges.is_wanted = True
        try:
            while True:
                self._report()
                if self._group is not group:
                    raise RuntimeError(NOT_SUBSCRIBED)
                taken = self._take(count)
                exchanges.wake()
                if taken:
                    return taken
                with trio.move_on_at(deadline) as waited:
                    await self._errors.wait()
                if waited.cancelled_caught and not self._is_interrupted:
                    return []
        finally:
            exchanges.is_wanted = False
            group.poll_ends()

    def _finish_given(self) -> None:
        """Queue the acknowledgements of the records that the application has, because it has finished with them. Raise
        RuntimeError if an explicit one is missing."""
        sessions = self._exchanges.sessions
        if self._is_explicit:
            missing = sessions.unacknowledged
            if missing:
                raise RuntimeError(f"{missing} records have no acknowledgement: acknowledge each before the next poll")
        else:
            sessions.accept_given()
        sessions.queue_marked(self._clock.monotonic_ms())

    def _take(self, count: int) -> list[ShareRecord]:
        sessions = self._exchanges.sessions
        renewed = sessions.take_renewed(count)
        if renewed or sessions.has_renewals:
            return renewed
        return sessions.take(count, self._clock.monotonic_ms())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ShareRecord:
        last = self._last
        self._credit -= 1
        if last is not None and last.records and self._credit > 0 and not self._is_interrupted:
            # Fast path of nearly every iteration: return the next record of the same batch, without a checkpoint.
            record = self._next_of(last)
            if record is not None:
                return record
        record = (await self.poll(records_max=1))[0]
        sessions = self._exchanges.sessions
        self._last = None if sessions.has_renewals else sessions.buffer_of((record.topic, record.partition))
        return record

    def _next_of(self, last: HeldRecords) -> ShareRecord | None:
        """Finish the last record of a batch, and return the next one. None if the batch must not go on: its locks have
        run out, or an explicit acknowledgement is missing."""
        now_ms = self._clock.monotonic_ms()
        if now_ms >= last.deadline_ms:
            return None
        if not self._is_explicit:
            last.accept_given()
        elif last.unacknowledged or RENEW in last.marked.values():
            return None
        if last.queued is None:
            self._exchanges.wake()
        last.queue_marked(now_ms)
        if self._group is not None:
            self._group.poll_clock.is_iterated = True
        return last.take_next()

    @property
    def _is_interrupted(self) -> bool:
        return self._errors.is_waiting or bool(self._results.waiting) or self._is_closed

    def _require_open(self) -> None:
        """Raise RuntimeError after the end of the `async with` block."""
        if self._is_closed:
            raise RuntimeError("the share consumer is closed")

    def _report(self) -> None:
        """Report the results of acknowledgements that have arrived, and raise the next error."""
        self._require_open()
        self._results.report()
        self._errors.raise_next()

    # acknowledging

    def acknowledge(self, record: ShareRecord, acknowledgement: Acknowledgement = Acknowledgement.ACCEPT) -> None:
        """Say what the broker is to do with a record. It is sent by the next `poll` or commit, or when the consumer
        closes; until then a second call replaces it. Needs `share_acknowledgement_mode="explicit"`.

        Raise RuntimeError in implicit mode, ValueError if this consumer does not hold the record any more, and
        KafkaError UNSUPPORTED_VERSION for RENEW if the broker does not support it."""
        if not self._is_explicit:
            raise RuntimeError('acknowledge needs share_acknowledgement_mode="explicit"')
        self._exchanges.sessions.mark(record, Acknowledgement(acknowledgement))

    async def commit(self) -> dict[TopicPartition, KafkaError | None]:
        """Send all acknowledgements, and wait for the results. In implicit mode, accept all records that were returned.
        Return the result of each partition with acknowledgements: None, or the error with which all of them failed, for
        example INVALID_RECORD_STATE if the lock of a record has run out. The broker delivers their records again.

        Failures of acknowledgements that `poll` has sent since the last commit are returned as well."""
        commit = self._begin_commit(is_awaited=True)
        results = await self._exchanges.finish_commit(commit)
        self._results.report()
        return results

    def commit_nowait(self) -> None:
        """Do the same as `commit`, without waiting. If acknowledgements fail, a later `poll` raises
        AcknowledgementFailed."""
        self._begin_commit(is_awaited=False)

    def _begin_commit(self, *, is_awaited: bool) -> ShareCommit:
        self._require_open()
        sessions = self._exchanges.sessions
        if not self._is_explicit:
            sessions.accept_given()
        sessions.queue_marked(self._clock.monotonic_ms())
        if sessions.has_renewals:
            self._last = None
        return self._exchanges.begin_commit(is_awaited=is_awaited)
