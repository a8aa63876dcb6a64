"""Checks of the members of the workload's consumer group (C2, C5, G2, G8 and L8): which records their applications
received and processed, and what the members sent to the coordinator.

A record counts as processed once the application polls again or requests a commit. At-least-once delivery of a group is
checked as two rules: no commit passes a record that no member has processed, and in the end all records are processed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kraft.sim.check.base import Check, Checks
from kraft.sim.check.observations import TopicPartition
from kraft.wire.error_codes import ErrorCode

CLOCKS_DIFFER_PERCENT = 2
"""Maximum difference in rate between the clocks of a coordinator and of the world."""


@dataclass(frozen=True, slots=True)
class PartitionsAssigned:
    """Observation: an application was notified that its member reads these partitions from now on."""

    member: str
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class PartitionsRevoked:
    """Observation: an application was notified that these partitions are revoked, and has finished its work on them."""

    member: str
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class RecordsGiven:
    """Observation: a poll returned the records at these offsets of a partition, in this order."""

    member: str
    partition: TopicPartition
    offsets: Sequence[int]


@dataclass(frozen=True, slots=True)
class RecordsProcessed:
    """Observation: an application has processed all records that its polls have returned."""

    member: str


@dataclass(frozen=True, slots=True)
class MemberEnded:
    """Observation: a member has ended. Records that its polls returned and that it has not processed must be processed
    by other members."""

    member: str


@dataclass(frozen=True, slots=True)
class MemberJoined:
    """Observation: a coordinator has notified a member that it belongs to this generation."""

    member: str
    generation: int


@dataclass(frozen=True, slots=True)
class CommitSent:
    """Observation: a member sends an OffsetCommit with these positions and this generation."""

    member: str
    generation: int
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class GroupResponseSent:
    """Observation: a coordinator answers a heartbeat or a commit of a member, which sent its request at `asked_ms`.
    `leadership` identifies the coordinator and the period in which it leads its partition."""

    member: str
    is_heartbeat: bool
    error: ErrorCode
    leadership: object
    asked_ms: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class MembershipRequested:
    """Observation: a member sends a request to join or to leave."""

    member: str


@dataclass(frozen=True, slots=True)
class FinalEndSeen:
    """Observation: the end offset of a partition after all writes have ended and the group has had time to read
    them."""

    partition: TopicPartition
    end: int


@dataclass(slots=True)
class _Holding:
    """A partition that a member owns. `first` is the offset of the first record that a poll returned since the
    assignment, `next` the offset after the last one (-1: none returned)."""

    first: int = -1
    next: int = -1


@dataclass(slots=True)
class ProcessedRecords:
    """Records that polls returned to the applications of a group, and those of them that the applications have
    processed."""

    holdings: dict[tuple[str, TopicPartition], _Holding] = field(default_factory=dict)
    given: dict[str, dict[TopicPartition, set[int]]] = field(default_factory=dict)
    """Member → partition → offsets that its polls returned and that are not processed yet."""
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    """Partition → end of the prefix in which some member has processed each record."""
    ahead: dict[TopicPartition, set[int]] = field(default_factory=dict)
    generations: dict[str, int] = field(default_factory=dict)
    """Member → its last generation."""
    let_go_in: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)
    """(member, partition that it no longer owns) → the last generation in which the member owned it. A commit of that
    generation may still be in flight."""

    def joined(self, joined: MemberJoined) -> None:
        self.generations[joined.member] = joined.generation

    def hold(self, held: PartitionsAssigned) -> None:
        for partition in held.partitions:
            self.holdings[held.member, partition] = _Holding()

    def let_go(self, gone: PartitionsRevoked) -> None:
        for partition in gone.partitions:
            self.holdings.pop((gone.member, partition), None)
            self.let_go_in[gone.member, partition] = self.generations.get(gone.member, -1)

    def give(self, given: RecordsGiven) -> None:
        pending = self.given.setdefault(given.member, {}).setdefault(given.partition, set())
        pending.update(given.offsets)
        holding = self.holdings.setdefault((given.member, given.partition), _Holding())
        if holding.first < 0:
            holding.first = given.offsets[0]
        holding.next = given.offsets[-1] + 1

    def come_back(self, member: str) -> None:
        for partition, offsets in self.given.pop(member, {}).items():
            ahead, end = self.ahead.setdefault(partition, set()), self.end(partition)
            ahead.update(offset for offset in offsets if offset >= end)
            while end in ahead:
                ahead.discard(end)
                end += 1
            self.ends[partition] = end

    def leave(self, member: str) -> None:
        self.given.pop(member, None)
        self.generations.pop(member, None)
        for key in [key for key in self.holdings if key[0] == member]:
            del self.holdings[key]

    def end(self, partition: TopicPartition) -> int:
        return self.ends.get(partition, 0)


class RecordsGivenInOrder(Check):
    """Check that the members of a group get each record, in order: no member starts after a record that no member has
    processed (C2). This check also updates the `ProcessedRecords` that all checks of the group read."""

    id = "C2"
    statement = "members of a group get each record, in order, starting after the records that the group has processed"

    def __init__(self, dealings: ProcessedRecords) -> None:
        super().__init__()
        self._dealings = dealings

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        dealings = self._dealings
        return {
            MemberJoined: dealings.joined,
            PartitionsAssigned: dealings.hold,
            PartitionsRevoked: dealings.let_go,
            RecordsGiven: self._given,
            RecordsProcessed: lambda back: dealings.come_back(back.member),
            MemberEnded: lambda gone: dealings.leave(gone.member),
        }

    def _given(self, given: RecordsGiven) -> None:
        holding = self._dealings.holdings.get((given.member, given.partition))
        due = -1 if holding is None else holding.next
        for offset in given.offsets:
            self.count()
            if due >= 0 and offset != due:
                self.fail("a member was not given the next record", **_facts(given), offset=offset, due=due)
            elif due < 0 and offset > (end := self._dealings.end(given.partition)):
                self.fail(
                    "a member starts after records that were not processed", **_facts(given), offset=offset, end=end
                )
            due = offset + 1
        self._dealings.give(given)


class CommitsOnlyProcessedRecords(Check):
    id = "C5"
    statement = "no member commits a position past a record that no application of the group has processed"

    def __init__(self, dealings: ProcessedRecords) -> None:
        super().__init__()
        self._dealings = dealings

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {CommitSent: self._sent}

    def _sent(self, sent: CommitSent) -> None:
        for partition, offset in sent.offsets.items():
            self.count()
            if offset > (end := self._dealings.end(partition)):
                self.fail(
                    "a commit passes records that were not processed",
                    member=sent.member,
                    partition=partition,
                    offset=offset,
                    processed=end,
                )


class CommitsOnlyOwnedPartitions(Check):
    """Check that a member commits only partitions that it owns (G2). A member that commits for a partition now owned by
    another member would move the group back. A coordinator rejects such late commits because of their old generation.
    So a member must not send such a commit with a newer generation."""

    id = "G2"
    statement = "a member commits only partitions that it owns in the named generation, and positions that it was given"

    def __init__(self, dealings: ProcessedRecords) -> None:
        super().__init__()
        self._dealings = dealings

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {CommitSent: self._sent}

    def _sent(self, sent: CommitSent) -> None:
        for partition, offset in sent.offsets.items():
            self.count()
            holding = self._dealings.holdings.get((sent.member, partition))
            facts = {"member": sent.member, "partition": partition, "offset": offset, "generation": sent.generation}
            had_in = self._dealings.let_go_in.get((sent.member, partition), -1)
            if sent.generation < 0:
                self.fail("a member commits as a client without membership", **facts)
            elif holding is None:
                if sent.generation > had_in:
                    self.fail("a member commits for a partition that it does not hold", **facts, had_in=had_in)
            elif holding.first >= 0 and not holding.first <= offset <= holding.next:
                since = (holding.first, holding.next)
                self.fail("a member commits a position from before it held the partition", **facts, given_since=since)


class LiveMembersAreNotExpired(Check):
    """Check that a coordinator does not expire a live member (the first half of G8). L8 covers the second half: if a
    dead member were not expired, no member would read its partitions.

    The session timeout begins with the request, as in Kafka: the reply may wait until a record is committed."""

    id = "G8"
    statement = "a coordinator does not expire a member within a session timeout of sending its last accepted heartbeat"

    def __init__(self, session_timeout_ms: int) -> None:
        super().__init__()
        self._session_ms = session_timeout_ms * (100 - CLOCKS_DIFFER_PERCENT) // 100
        self._accepted: dict[str, GroupResponseSent] = {}

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {GroupResponseSent: self._sent, MembershipRequested: self._forget, MemberEnded: self._forget}

    def _forget(self, asked: MembershipRequested | MemberEnded) -> None:
        self._accepted.pop(asked.member, None)

    def _sent(self, sent: GroupResponseSent) -> None:
        if sent.error is ErrorCode.NONE:
            if sent.is_heartbeat:
                self.count()
                self._accepted[sent.member] = sent
            return
        accepted = self._accepted.pop(sent.member, None)
        is_expired = accepted is not None and sent.error is ErrorCode.UNKNOWN_MEMBER_ID
        if accepted is None or not is_expired or accepted.leadership != sent.leadership:
            return
        after_ms = sent.at_ms - accepted.asked_ms
        if after_ms < self._session_ms:
            self.fail("a member that sends heartbeats was expired", member=sent.member, after_ms=after_ms)


class AllRecordsAreProcessed(Check):
    id = "L8"
    statement = "in the end a group has processed all records, although members have died"

    def __init__(self, dealings: ProcessedRecords) -> None:
        super().__init__()
        self._dealings = dealings

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {FinalEndSeen: self._seen}

    def _seen(self, seen: FinalEndSeen) -> None:
        self.count()
        if (end := self._dealings.end(seen.partition)) < seen.end:
            self.fail("records that no member has processed", partition=seen.partition, processed=end, end=seen.end)


def member_checks(dealings: ProcessedRecords, session_timeout_ms: int) -> Checks:
    """Return all checks of this module for one group. The check that updates the shared `ProcessedRecords` comes after
    the checks that compare each commit with it."""
    return Checks(
        [
            CommitsOnlyProcessedRecords(dealings),
            CommitsOnlyOwnedPartitions(dealings),
            RecordsGivenInOrder(dealings),
            LiveMembersAreNotExpired(session_timeout_ms),
            AllRecordsAreProcessed(dealings),
        ]
    )


def _facts(given: RecordsGiven) -> dict[str, object]:
    return {"member": given.member, "partition": given.partition}
