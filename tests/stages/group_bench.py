"""A group coordinator under test: a log in memory, a clock that tests advance, and members that send requests.

After each step, the state of the coordinator must equal a replay of its log.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from kraft.broker.group.coordinator import GroupCoordinator
from kraft.broker.group.durable import EMPTY_STATE, DurableState
from kraft.broker.group.records import decode_entry, encode_entry
from kraft.broker.group.requests import (
    CommitRequest,
    FetchOffsetsRequest,
    GroupHeartbeatRequest,
    JoinRequest,
    Leaver,
    LeaveRequest,
    MarkerRequest,
    OffsetToCommit,
    Protocols,
    Request,
    SyncRequest,
    TxnCommitRequest,
)
from kraft.broker.group.shard import GroupSettings
from kraft.broker.group.step import After, CoordinatorStep, Written
from kraft.broker.shard.now import Now
from kraft.broker.shard.transactional import MarkerBatch, StagedEntry, TransactionalBatch, TransactionEnd
from kraft.wire.error_codes import ErrorCode

GROUP = "group"
WALL_MS = 1_700_000_000_000
SESSION_MS = 10_000
REBALANCE_MS = 30_000
RANGE: Protocols = (("range", b"\0\0\0\0\0\1\0\6orders\0\0\0\0"),)


class LoggedRecord(NamedTuple):
    """A record in the log. `producer_id` is set in a transactional batch and in a marker; `commits` is set only in a
    marker."""

    key: bytes
    value: bytes | None
    producer_id: int = -1
    commits: bool | None = None


def logged(written: Written) -> list[LoggedRecord]:
    """Return the records in the log for one entry of a step."""
    if isinstance(written, MarkerBatch):
        return [LoggedRecord(b"", None, written.producer_id, written.is_commit)]
    if isinstance(written, TransactionalBatch):
        return [LoggedRecord(*encode_entry(entry), written.producer_id) for entry in written.entries]
    return [LoggedRecord(*encode_entry(written))]


def replay(state: DurableState, records: Iterable[LoggedRecord], first_offset: int = 0) -> DurableState:
    """Return the state after these records, which are decoded from their bytes."""
    for offset, record in enumerate(records, first_offset):
        if record.commits is not None:
            state = state.with_entry(TransactionEnd(record.producer_id, record.commits))
            continue
        entry = decode_entry(record.key, record.value)
        if entry is not None:
            state = state.with_entry(
                entry if record.producer_id < 0 else StagedEntry(record.producer_id, offset, entry)
            )
    return state


class PendingRequest:
    """A request, and its reply once there is one."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.replies: list[Any] = []

    @property
    def is_parked(self) -> bool:
        return not self.replies

    @property
    def reply(self) -> Any:
        (reply,) = self.replies
        return reply

    @property
    def error(self) -> ErrorCode:
        error: ErrorCode = self.reply.error
        return error


class Bench:
    """A group coordinator with its log, clock and members. With `commits_at_once`, the high watermark follows each
    append. Otherwise the test calls `commit` or `lose` for the appended entries."""

    def __init__(self, *, commits_at_once: bool = True, **settings: Any) -> None:
        self.settings = GroupSettings(**{"initial_rebalance_delay_ms": 0, **settings})
        self.log: list[LoggedRecord] = []
        self.as_read = EMPTY_STATE
        """The state that a replay of the log's bytes gives."""
        self.commits_at_once = commits_at_once
        self.refuses_appends: ErrorCode | None = None
        self.now_ms = 1_000
        self.waiting: list[tuple[int, After]] = []
        self.drawn = 0
        self.machine = self.load()

    @property
    def now(self) -> Now:
        return Now(self.now_ms, WALL_MS + self.now_ms)

    # requests

    def ask(self, request: Request) -> PendingRequest:
        asked = PendingRequest(request)

        def answered(reply: Any) -> None:
            assert not asked.replies, "answered twice"
            asked.replies.append(reply)
            self.on_reply(reply)

        self.take(self.machine.handle(request, answered, self.now))
        return asked

    def on_reply(self, reply: Any) -> None:
        """Called with each reply; a test replaces it to check the order of replies."""

    def join(self, member_id: str = "", **fields: Any) -> PendingRequest:
        self.drawn += 1
        return self.ask(
            JoinRequest(
                **{
                    "group": GROUP,
                    "member_id": member_id,
                    "instance_id": None,
                    "client_id": "client",
                    "client_host": "/host",
                    "session_timeout_ms": SESSION_MS,
                    "rebalance_timeout_ms": REBALANCE_MS,
                    "protocol_type": "consumer",
                    "protocols": RANGE,
                    "fresh_id": str(self.drawn),
                    "requires_known_id": False,
                    **fields,
                }
            )
        )

    def sync(self, member_id: str, generation: int, *assignments: tuple[str, bytes], **fields: Any) -> PendingRequest:
        return self.ask(SyncRequest(GROUP, generation, member_id, assignments=assignments, **fields))

    def heartbeat(self, member_id: str, generation: int, instance_id: str | None = None) -> ErrorCode:
        return self.ask(GroupHeartbeatRequest(GROUP, generation, member_id, instance_id)).error

    def leave(self, *members: str | Leaver) -> list[ErrorCode]:
        leavers = tuple(Leaver(member) if isinstance(member, str) else member for member in members)
        return [row.error for row in self.ask(LeaveRequest(GROUP, leavers)).reply.members]

    def commit_offset(
        self, offset: int, member_id: str = "", generation: int = -1, *, topic: str = "orders", **fields: Any
    ) -> PendingRequest:
        rows = (OffsetToCommit(topic, 0, offset, 3, "", None),)
        return self.ask(
            CommitRequest(**{"group": GROUP, "instance_id": None, "offsets": rows, **fields}, generation=generation,
                          member_id=member_id)
        )  # fmt: skip

    def committed(self, topic: str = "orders", *, stable: bool = False) -> int:
        (row,) = self.ask(FetchOffsetsRequest(GROUP, [(topic, 0)], stable)).reply.rows
        offset: int = row.offset
        return offset

    # transactions

    def stage(
        self, offset: int, producer_id: int = 7, *, topic: str = "orders", generation: int = -1, **fields: Any
    ) -> PendingRequest:
        """Commit an offset in the open transaction of a producer."""
        rows = (OffsetToCommit(topic, 0, offset, 3, "", None),)
        return self.ask(
            TxnCommitRequest(
                **{
                    "group": GROUP,
                    "producer_id": producer_id,
                    "producer_epoch": 0,
                    "generation": generation,
                    "member_id": "",
                    "instance_id": None,
                    "offsets": rows,
                    **fields,
                }
            )
        )

    def end(self, producer_id: int = 7, *, commit: bool = True) -> ErrorCode:
        """Write the marker of a producer's transaction."""
        return self.ask(MarkerRequest(producer_id, 0, 1, commit)).error

    def stable_error(self, topic: str = "orders") -> ErrorCode:
        """Return the error of an OffsetFetch that requires stable offsets."""
        (row,) = self.ask(FetchOffsetsRequest(GROUP, [(topic, 0)], require_stable=True)).reply.rows
        error: ErrorCode = row.error
        return error

    # time, commits and moves

    def sleep(self, duration_ms: int) -> None:
        """Advance the clock. Timers that are due fire."""
        end_ms = self.now_ms + duration_ms
        while (due_ms := self.machine.next_timer_ms) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            while (step := self.machine.fire(self.now)) is not None:
                self.take(step)
        self.now_ms = end_ms

    def commit(self) -> None:
        """Commit every append."""
        self.machine.advance(self.machine.end_offset)
        waiting, self.waiting = self.waiting, []
        for _, after in waiting:
            self.take(self.machine.stored(after, self.now))

    def lose(self, error: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE) -> None:
        """Let all uncommitted appends time out."""
        waiting, self.waiting = self.waiting, []
        for _, after in waiting:
            self.take(self.machine.failed(after, error, self.now))

    def move(self) -> None:
        """Let another broker become the coordinator, which loads its state from the log. Requests that are pending here
        get an error."""
        self.take(self.machine.unload(self.now))
        self.lose(ErrorCode.NOT_COORDINATOR)
        self.machine = self.load()
        self.take(self.machine.begin(self.now))

    def load(self) -> GroupCoordinator:
        """Return a coordinator with the state of the log."""
        return GroupCoordinator(self.settings, replay(EMPTY_STATE, self.log), len(self.log))

    def take(self, step: CoordinatorStep) -> None:
        """Carry out the effects of a step in order, as a driver does."""
        error = self.refuses_appends
        if step.entries and error is None:
            records = [record for entry in step.entries for record in logged(entry)]
            self.as_read = replay(self.as_read, records, len(self.log))
            self.log += records
            self.machine.appended(step.entries, len(self.log))
            assert self.machine.newest == self.as_read
        if self.commits_at_once:
            self.machine.advance(self.machine.end_offset)
        for ticket, reply in step.replies:
            ticket(reply)
        for after in step.after:
            if step.entries and error is not None:
                self.take(self.machine.failed(after, error, self.now))
            elif self.commits_at_once:
                self.take(self.machine.stored(after, self.now))
            else:
                self.waiting.append((self.machine.end_offset, after))

    # usual groups

    def stable(self, *instance_ids: str | None, **fields: Any) -> list[str]:
        """Create a stable group of members with these instance ids (None: a dynamic member), and return the member ids.
        The first member is the leader."""
        members = [self.join(instance_id=instance_id, **fields) for instance_id in instance_ids]
        for asked in members[:-1]:
            if not asked.is_parked:
                self.rejoin(asked.reply.member_id, **fields)
        ids = [asked.reply.member_id for asked in members]
        return self.settle(ids)

    def rejoin(self, member_id: str, **fields: Any) -> PendingRequest:
        instance_id = self.group.members[member_id].instance_id
        return self.join(member_id, instance_id=instance_id, **fields)

    def settle(self, ids: Iterable[str]) -> list[str]:
        """Complete a rebalance: all members join, the leader assigns, and all members sync."""
        ids = list(ids)
        leader = self.group.leader
        assert leader is not None
        for member_id in [one for one in ids if one != leader]:
            self.sync(member_id, self.group.generation)
        self.sync(leader, self.group.generation, *((one, one.encode()) for one in ids))
        return ids

    @property
    def group(self) -> Any:
        return self.machine.groups[GROUP]

    @property
    def state(self) -> str:
        state: str = self.group.state.value
        return state
