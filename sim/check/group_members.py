"""What our own consumers of a group do, judged by what their applications were given and dealt with, and by what left
them for the coordinator: C2, C5, G2, G8 and L8.

A record is dealt with once the application has come back for more, or asks for a commit. At-least-once of a group is
that no commit ever passes a record that no member has dealt with, and that in the end all records are dealt with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kraft.sim.check.base import Check, Checks
from kraft.sim.check.observations import TopicPartition
from kraft.wire.error_codes import ErrorCode

CLOCKS_DIFFER_PERCENT = 2
"""By so much the clocks of a coordinator and of the world go apart, at most."""


@dataclass(frozen=True, slots=True)
class Held:
    """An application was told that its member reads these partitions from now on."""

    member: str
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class LetGo:
    """An application was told that these go, and has done with them what it wanted."""

    member: str
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Given:
    """A poll has given these offsets of a partition, in its order."""

    member: str
    partition: TopicPartition
    offsets: Sequence[int]


@dataclass(frozen=True, slots=True)
class CameBack:
    """An application has dealt with all that it was given."""

    member: str


@dataclass(frozen=True, slots=True)
class Gone:
    """A member's life is over: what it was given and has not dealt with, others must."""

    member: str


@dataclass(frozen=True, slots=True)
class Joined:
    """A coordinator tells a member that it is in this generation."""

    member: str
    generation: int


@dataclass(frozen=True, slots=True)
class CommitSent:
    """A commit of these positions leaves a member, which says that it is in this generation."""

    member: str
    generation: int
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AnswerSent:
    """A coordinator answers a heartbeat or a commit of a member. `office` stands for the coordinator and its term."""

    member: str
    is_heartbeat: bool
    error: ErrorCode
    office: object
    at_ms: int


@dataclass(frozen=True, slots=True)
class MembershipAsked:
    """A member asks to join, or to leave."""

    member: str


@dataclass(frozen=True, slots=True)
class EndSeen:
    """When nobody writes any more and the group has had its time: where a partition ends."""

    partition: TopicPartition
    end: int


@dataclass(slots=True)
class _Holding:
    """A partition that a member reads: the first offset that it was given since then, and the next one (-1: none)."""

    first: int = -1
    next: int = -1


@dataclass(slots=True)
class Dealings:
    """What the applications of a group were given, and dealt with."""

    holdings: dict[tuple[str, TopicPartition], _Holding] = field(default_factory=dict)
    given: dict[str, dict[TopicPartition, set[int]]] = field(default_factory=dict)
    """Member → partition → offsets that it was given and has not come back from."""
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    """All below was dealt with by somebody."""
    ahead: dict[TopicPartition, set[int]] = field(default_factory=dict)
    generations: dict[str, int] = field(default_factory=dict)
    """Member → the last that it was told of."""
    let_go_in: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)
    """The last generation in which a member had a partition that it holds no more: a commit of that one may be late."""

    def joined(self, joined: Joined) -> None:
        self.generations[joined.member] = joined.generation

    def hold(self, held: Held) -> None:
        for partition in held.partitions:
            self.holdings[held.member, partition] = _Holding()

    def let_go(self, gone: LetGo) -> None:
        for partition in gone.partitions:
            self.holdings.pop((gone.member, partition), None)
            self.let_go_in[gone.member, partition] = self.generations.get(gone.member, -1)

    def give(self, given: Given) -> None:
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


class GivesEachInOrder(Check):
    """C2, across members: nobody begins behind a record that no member has dealt with. It is the one that keeps the
    dealings, which the others look at."""

    id = "C2"
    statement = "members of a group are given each record, in order, from where the group has dealt with all before"

    def __init__(self, dealings: Dealings) -> None:
        super().__init__()
        self._dealings = dealings

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        dealings = self._dealings
        return {
            Joined: dealings.joined,
            Held: dealings.hold,
            LetGo: dealings.let_go,
            Given: self._given,
            CameBack: lambda back: dealings.come_back(back.member),
            Gone: lambda gone: dealings.leave(gone.member),
        }

    def _given(self, given: Given) -> None:
        holding = self._dealings.holdings.get((given.member, given.partition))
        due = -1 if holding is None else holding.next
        for offset in given.offsets:
            self.count()
            if due >= 0 and offset != due:
                self.fail("a member was not given the next record", **_facts(given), offset=offset, due=due)
            elif due < 0 and offset > (end := self._dealings.end(given.partition)):
                self.fail("a member begins behind what was dealt with", **_facts(given), offset=offset, end=end)
            due = offset + 1
        self._dealings.give(given)


class CommitsWhatWasDealtWith(Check):
    id = "C5"
    statement = "no member commits a position behind a record that no application of the group has dealt with"

    def __init__(self, dealings: Dealings) -> None:
        super().__init__()
        self._dealings = dealings

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {CommitSent: self._sent}

    def _sent(self, sent: CommitSent) -> None:
        for partition, offset in sent.offsets.items():
            self.count()
            if offset > (end := self._dealings.end(partition)):
                self.fail(
                    "a commit passes what was dealt with",
                    member=sent.member,
                    partition=partition,
                    offset=offset,
                    dealt_with=end,
                )


class CommitsWhatItHolds(Check):
    """G2 for positions: who commits what others hold by now takes the group back to where it once was. A coordinator
    refuses what comes late, by its generation; so a member must not send it as if it were of a newer one."""

    id = "G2"
    statement = "a member commits for partitions that it has in the generation it names, and what it was given there"

    def __init__(self, dealings: Dealings) -> None:
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
                self.fail("a member commits as if it were none", **facts)
            elif holding is None:
                if sent.generation > had_in:
                    self.fail("a member commits for a partition that it does not hold", **facts, had_in=had_in)
            elif holding.first >= 0 and not holding.first <= offset <= holding.next:
                since = (holding.first, holding.next)
                self.fail("a member commits a position from before it held the partition", **facts, given_since=since)


class LiveMembersStay(Check):
    """The first half of G8; that a dead one is expired is L8: otherwise nobody reads what it held."""

    id = "G8"
    statement = "a coordinator does not expire a member within a session of the last heartbeat that it has accepted"

    def __init__(self, session_timeout_ms: int) -> None:
        super().__init__()
        self._session_ms = session_timeout_ms * (100 - CLOCKS_DIFFER_PERCENT) // 100
        self._accepted: dict[str, AnswerSent] = {}

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {AnswerSent: self._sent, MembershipAsked: self._forget, Gone: self._forget}

    def _forget(self, asked: MembershipAsked | Gone) -> None:
        self._accepted.pop(asked.member, None)

    def _sent(self, sent: AnswerSent) -> None:
        if sent.error is ErrorCode.NONE:
            if sent.is_heartbeat:
                self.count()
                self._accepted[sent.member] = sent
            return
        accepted = self._accepted.pop(sent.member, None)
        is_expired = accepted is not None and sent.error is ErrorCode.UNKNOWN_MEMBER_ID
        if accepted is None or not is_expired or accepted.office != sent.office:
            return
        if sent.at_ms - accepted.at_ms < self._session_ms:
            after_ms = sent.at_ms - accepted.at_ms
            self.fail("a member that sends heartbeats was expired", member=sent.member, after_ms=after_ms)


class AllIsDealtWith(Check):
    id = "L8"
    statement = "in the end a group has dealt with all that there is, whoever of its members has died"

    def __init__(self, dealings: Dealings) -> None:
        super().__init__()
        self._dealings = dealings

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {EndSeen: self._seen}

    def _seen(self, seen: EndSeen) -> None:
        self.count()
        if (end := self._dealings.end(seen.partition)) < seen.end:
            self.fail("records that no member has dealt with", partition=seen.partition, dealt_with=end, end=seen.end)


def member_checks(dealings: Dealings, session_timeout_ms: int) -> Checks:
    """All of these, of one group. The one that keeps the dealings is the last to look at a commit."""
    return Checks(
        [
            CommitsWhatWasDealtWith(dealings),
            CommitsWhatItHolds(dealings),
            GivesEachInOrder(dealings),
            LiveMembersStay(session_timeout_ms),
            AllIsDealtWith(dealings),
        ]
    )


def _facts(given: Given) -> dict[str, object]:
    return {"member": given.member, "partition": given.partition}
