"""Observes the share partitions and share sessions of one broker, step by step.

It wraps the methods of the state machines at the instances of this broker, and changes nothing. The steps of a pass are
kept until the broker's disk and state have been observed, so that checks compare them with everything that was
committed by then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kraft.broker.api.share_fetch.led_share_partition import LedSharePartition, ShareStage
from kraft.broker.api.share_fetch.share_sessions import ShareMember, ShareSession, ShareSessionCache
from kraft.broker.node.broker import Broker
from kraft.broker.share_coordinator.requests import ReadStateRequest, StateReply
from kraft.broker.share_partition.share_partition import SharePartition
from kraft.broker.share_partition.states import (
    AcknowledgementBatch,
    AcknowledgeResult,
    AcknowledgeType,
    AcquiredBatch,
    StateWrite,
)
from kraft.sim.check.observations import Observation
from kraft.sim.check.share_groups import steps
from kraft.sim.check.share_groups.steps import NO_WRITE, AcknowledgedRange, ShareLeader
from kraft.sim.cluster.labels import TopicLabels
from kraft.wire.error_codes import ErrorCode


class ShareObserver:
    """Observes one incarnation of a broker."""

    def __init__(
        self, node_id: int, incarnation: int, broker: Broker, tell: Callable[[Observation], None], labels: TopicLabels
    ) -> None:
        self._id = node_id
        self._incarnation = incarnation
        self._tell = tell
        self._labels = labels
        self._adopted = 0
        self._steps: list[Observation] = []
        self._spy_persister(broker.share_persister)
        spy_sessions(broker.shares.sessions, node_id, incarnation, self._add)

    def report(self) -> None:
        """Report the steps since the last report."""
        if self._steps:
            taken, self._steps = self._steps, []
            for step in taken:
                self._tell(step)

    def _add(self, step: Observation) -> None:
        self._steps.append(step)

    # reading the state

    def _spy_persister(self, persister: Any) -> None:
        ask = persister.ask

        def spy(request: Any, ticket: Any) -> None:
            share = getattr(ticket, "__self__", None)
            if isinstance(request, ReadStateRequest) and isinstance(share, LedSharePartition):
                ticket = self._adopt(share, ticket)
            ask(request, ticket)

        persister.ask = spy

    def _adopt(self, share: LedSharePartition, ticket: Callable[[StateReply], None]) -> Callable[[StateReply], None]:
        """Begin to observe a share partition that reads its state. Return a function that takes the reply."""
        self._adopted += 1
        partition = share.partition
        log = (self._labels.of(partition.topic_id, partition.topic), partition.index)
        leader = ShareLeader(self._id, self._incarnation, self._adopted, share.key, log, share.leader_epoch)
        self._add(steps.StateRequested(leader))
        self._spy_share(share, leader)

        def read(reply: StateReply) -> None:
            state = reply.state
            if reply.error is ErrorCode.NONE and state is not None:
                found = (state.state_epoch, state.start_offset, state.delivery_complete_count, state.batches)
                self._add(steps.StateRead(leader, *found))
            ticket(reply)

        return read

    def _spy_share(self, share: LedSharePartition, leader: ShareLeader) -> None:
        begin, close, acknowledge = share._begin, share.close, share.acknowledge
        asking: list[list[int]] = []
        """For each call of `acknowledge` that is running, the number of its write, once that is known."""

        def spy_begin(state: SharePartition) -> None:
            self._add(steps.LeaderBegun(leader, state.start_offset))
            StateSpy(state, leader, self._add, lambda: share.settings.is_read_committed, asking)
            begin(state)

        def spy_close(error: ErrorCode) -> None:
            is_open = share.stage is not ShareStage.CLOSED
            close(error)
            if is_open:
                self._add(steps.LeaderClosed(leader))

        def spy_acknowledge(
            member: str, batches: Sequence[AcknowledgementBatch], on_acknowledged: Callable[[ErrorCode], None]
        ) -> None:
            numbers: list[int] = []

            def answered(error: ErrorCode) -> None:
                if error is ErrorCode.NONE and share.state is not None and numbers:
                    self._add(steps.AcknowledgementAnswered(leader, member, numbers[0]))
                on_acknowledged(error)

            asking.append(numbers)
            acknowledge(member, batches, answered)
            asking.pop()

        # Set attributes of the instance; the class stays unchanged.
        share._begin = spy_begin  # type: ignore[method-assign]
        share.close = spy_close  # type: ignore[method-assign]
        share.acknowledge = spy_acknowledge  # type: ignore[method-assign]


def spy_sessions(sessions: ShareSessionCache, node: int, incarnation: int, add: Callable[[Observation], None]) -> None:
    """Let `add` take each step of the share sessions of a broker."""
    opened, resume, close = sessions.open, sessions.resume, sessions.close

    def spy_open(member: ShareMember, connection: int) -> ShareSession | ErrorCode:
        found = opened(member, connection)
        if isinstance(found, ShareSession):
            add(steps.SessionOpened(node, incarnation, *member))
        return found

    def spy_resume(member: ShareMember, epoch: int) -> ShareSession | ErrorCode:
        found = resume(member, epoch)
        add(steps.SessionContinued(node, incarnation, *member, epoch, isinstance(found, ShareSession)))
        return found

    def spy_close(member: ShareMember) -> None:
        close(member)
        add(steps.SessionClosed(node, incarnation, *member))

    # Set attributes of the instance; the class stays unchanged.
    sessions.open = spy_open  # type: ignore[method-assign]
    sessions.resume = spy_resume  # type: ignore[method-assign]
    sessions.close = spy_close  # type: ignore[method-assign]


class StateSpy:
    """Lets `add` take each step of the state machine of one share partition."""

    def __init__(
        self,
        state: SharePartition,
        leader: ShareLeader,
        add: Callable[[Observation], None],
        is_read_committed: Callable[[], bool],
        asking: Sequence[list[int]] = (),
    ) -> None:
        """The number of the write of an acknowledgement is added to the last list of `asking`."""
        self._state = state
        self._leader = leader
        self._add = add
        self._is_read_committed = is_read_committed
        self._asking = asking
        self._log_start_offset = 0
        self._spy_members()
        self._spy_writes()

    def _spy_members(self) -> None:
        state, leader, add = self._state, self._leader, self._add
        acquire, acknowledge, release = state.acquire, state.acknowledge, state.release_member

        def spy_acquire(member: str, ranges: Any, records_max: int, now_ms: int, **how: Any) -> Any:
            found: tuple[AcquiredBatch, ...] = acquire(member, ranges, records_max, now_ms, **how)
            if found:
                limits, is_committed = state.limits, self._is_read_committed()
                until_ms = now_ms + limits.lock_duration_ms
                add(steps.RecordsAcquired(leader, member, found, until_ms, limits.delivery_count_max, is_committed))
            return found

        def spy_acknowledge(member: str, batches: Sequence[AcknowledgementBatch], now_ms: int) -> AcknowledgeResult:
            found = acknowledge(member, batches, now_ms)
            if found.error is ErrorCode.NONE:
                number = NO_WRITE if found.write is None else found.write.number
                until_ms = now_ms + state.limits.lock_duration_ms
                limit = state.limits.delivery_count_max
                add(steps.RecordsAcknowledged(leader, member, _items(batches), number, until_ms, limit))
                if self._asking and number != NO_WRITE:
                    self._asking[-1].append(number)
            return found

        def spy_release(member: str) -> StateWrite | None:
            write = release(member)
            if write is not None:
                limit = state.limits.delivery_count_max
                add(steps.MemberReleased(leader, member, limit, write.number))
            return write

        state.acquire = spy_acquire  # type: ignore[method-assign]
        state.acknowledge = spy_acknowledge  # type: ignore[method-assign]
        state.release_member = spy_release  # type: ignore[method-assign]

    def _spy_writes(self) -> None:
        state, leader, add = self._state, self._leader, self._add
        expire, move_start, sent_write = state.expire_locks, state.move_start, state.sent_write
        stored, failed = state.write_stored, state.write_failed

        def spy_expire(now_ms: int) -> StateWrite | None:
            write = expire(now_ms)
            if write is not None:
                limit = state.limits.delivery_count_max
                add(steps.LocksExpired(leader, now_ms, limit, write.number, state.start_offset))
            return write

        def spy_move_start(log_start_offset: int) -> None:
            move_start(log_start_offset)
            if log_start_offset > self._log_start_offset:
                self._log_start_offset = log_start_offset
                add(steps.LogStartSeen(leader, log_start_offset))

        def spy_sent(write: StateWrite) -> StateWrite:
            sent = sent_write(write)
            position = (sent.start_offset, sent.delivery_complete_count)
            add(steps.WriteSent(leader, sent.number, *position, sent.batches, self._is_read_committed()))
            return sent

        def spy_stored(number: int) -> None:
            stored(number)
            add(steps.WriteEnded(leader, number, is_stored=True))

        def spy_failed(number: int) -> None:
            failed(number)
            add(steps.WriteEnded(leader, number, is_stored=False))

        state.expire_locks = spy_expire  # type: ignore[method-assign]
        state.move_start = spy_move_start  # type: ignore[method-assign]
        state.sent_write = spy_sent  # type: ignore[method-assign]
        state.write_stored = spy_stored  # type: ignore[method-assign]
        state.write_failed = spy_failed  # type: ignore[method-assign]


def _items(batches: Sequence[AcknowledgementBatch]) -> tuple[AcknowledgedRange, ...]:
    """Return what the batches report about each run of offsets."""
    items: list[AcknowledgedRange] = []
    for batch in batches:
        if len(batch.types) == 1:
            items.append(AcknowledgedRange(batch.first_offset, batch.last_offset + 1, AcknowledgeType(batch.types[0])))
        else:
            every = enumerate(batch.types, batch.first_offset)
            items += [AcknowledgedRange(offset, offset + 1, AcknowledgeType(kind)) for offset, kind in every]
    return tuple(items)
