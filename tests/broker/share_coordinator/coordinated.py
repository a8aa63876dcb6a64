"""Coordinated: a share coordinator with a log, which commits each batch at once or when a test says so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from kraft.broker.shard.now import Now
from kraft.broker.share_coordinator.coordinator import ShareCoordinator, ShareCoordinatorSettings
from kraft.broker.share_coordinator.records import NO_EPOCH, ShareKey, ShareStateEntry, decode_entry, encode_entry
from kraft.broker.share_coordinator.requests import (
    DeleteStateRequest,
    InitializeStateRequest,
    ReadStateRequest,
    ReadSummaryRequest,
    Request,
    StateReply,
    WriteStateRequest,
)
from kraft.broker.share_coordinator.share_state import LoadedShareStates
from kraft.broker.share_coordinator.step import PendingReply, ShareStep
from kraft.broker.share_partition.states import StateBatch
from kraft.wire.error_codes import ErrorCode

TOPIC = UUID(int=1)
KEY = ShareKey("g", TOPIC, 0)


class Coordinated:
    def __init__(self, log: Iterable[ShareStateEntry] = (), *, base: int = 0, updates_per_snapshot: int = 500) -> None:
        self.settings = ShareCoordinatorSettings(updates_per_snapshot, 300_000)
        self.log = list(log)
        self.base = base
        loaded = LoadedShareStates().with_entries(self.log)
        self.machine = ShareCoordinator(self.settings, loaded.states, base + len(self.log))
        self.now = Now(0, 1_000_000)
        self.uncommitted: list[PendingReply] = []
        self.commits = True

    @property
    def end_offset(self) -> int:
        return self.base + len(self.log)

    def do(self, step: ShareStep) -> None:
        for entry in step.entries:
            assert decode_entry(*encode_entry(entry)) == entry
            self.log.append(entry)
        if step.entries:
            self.machine.appended(step.entries, self.end_offset)
        for ticket, reply in step.replies:
            ticket(reply)
        self.uncommitted += step.after
        if self.commits:
            self.commit()

    def commit(self) -> None:
        waiting, self.uncommitted = self.uncommitted, []
        for after in waiting:
            self.do(self.machine.stored(after, self.now))

    def fail(self, error: ErrorCode) -> None:
        waiting, self.uncommitted = self.uncommitted, []
        for after in waiting:
            self.do(self.machine.failed(after, error, self.now))

    def asked(self, request: Request) -> list[Any]:
        """Send a request. Return a list that gets the reply, now or later."""
        replies: list[Any] = []
        self.do(self.machine.handle(request, replies.append, self.now))
        return replies

    def ask(self, request: Request) -> StateReply:
        (reply,) = self.asked(request)
        assert isinstance(reply, StateReply)
        return reply

    def initialize(self, start_offset: int = -1, *, state_epoch: int = 0, key: ShareKey = KEY) -> ErrorCode:
        return self.ask(InitializeStateRequest(key, state_epoch, start_offset)).error

    def read(self, leader_epoch: int = 0, key: ShareKey = KEY) -> StateReply:
        return self.ask(ReadStateRequest(key, leader_epoch))

    def write(
        self,
        start_offset: int = -1,
        *batches: StateBatch,
        state_epoch: int = 0,
        leader_epoch: int = NO_EPOCH,
        complete: int = 0,
        key: ShareKey = KEY,
    ) -> ErrorCode:
        return self.ask(WriteStateRequest(key, state_epoch, leader_epoch, start_offset, complete, batches)).error

    def delete(self, key: ShareKey = KEY) -> ErrorCode:
        return self.ask(DeleteStateRequest(key)).error

    def summary(self, key: ShareKey = KEY) -> StateReply:
        return self.ask(ReadSummaryRequest(key))

    def failover(self) -> Coordinated:
        """Return another coordinator that has loaded the log."""
        other = Coordinated(self.log, base=self.base, updates_per_snapshot=self.settings.updates_per_snapshot)
        other.now = self.now
        return other

    def prune(self) -> None:
        """Delete the records that are redundant."""
        before = self.machine.redundant_before(self.end_offset)
        if before > self.base:
            self.log = self.log[before - self.base :]
            self.base = before
