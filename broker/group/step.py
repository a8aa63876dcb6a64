"""Step: all that a call of the coordinator asks of its driver, and in which order.

1. `entries` are appended to the log as one atomic batch (nothing if it is empty).
2. `replies` leave now, also if that failed: they promise nothing that is not committed.
3. When the high watermark has passed the batch, each of `after` goes back into `stored`; when it never will (the append
   failed, the time was over, the partition moved) into `failed` with the error. Each exactly once; both give a Step.
Without entries, `after` waits for what was appended before.
"""

from __future__ import annotations

from typing import NamedTuple

from kraft.broker.group.classic_group import Member
from kraft.broker.group.records import Entry
from kraft.broker.group.requests import JoinRequest, Reply, Request, Ticket


class Now(NamedTuple):
    """The time of a call: `monotonic_ms` drives time-outs, `wall_ms` is what stands in records."""

    monotonic_ms: int
    wall_ms: int


class Answer(NamedTuple):
    """After: give this reply. On failure `request` says what to answer instead."""

    ticket: Ticket
    request: Request
    reply: Reply


class GoOn(NamedTuple):
    """After: go on with this request, of which a first part is safe: a group that its founder may join now, or as much
    of a removal as a batch holds."""

    ticket: Ticket
    request: Request


class AssignmentStored(NamedTuple):
    """After: the assignments (member id → bytes) of this generation are safe, and may be told. `plan`: their number."""

    group: str
    generation: int
    plan: int
    assignments: tuple[tuple[str, bytes], ...]


class StaticMemberReplaced(NamedTuple):
    """After: the new incarnation of a static member is in force. On failure it is undone: `old` is what it replaced,
    `leader` who led before."""

    group: str
    member_id: str
    old: Member
    leader: str
    ticket: Ticket
    request: JoinRequest


class ReadStable(NamedTuple):
    """After: nothing older is waiting for the high watermark; read what is asked for."""

    ticket: Ticket
    request: Request


After = Answer | GoOn | AssignmentStored | StaticMemberReplaced | ReadStable


class Step(NamedTuple):
    """See the module."""

    entries: tuple[Entry, ...] = ()
    replies: tuple[tuple[Ticket, Reply], ...] = ()
    after: tuple[After, ...] = ()


class Turn:
    """A step in the making: one call of the coordinator, at one time."""

    __slots__ = ("after", "entries", "now", "replies")

    def __init__(self, now: Now) -> None:
        self.now = now
        self.entries: list[Entry] = []
        self.replies: list[tuple[Ticket, Reply]] = []
        self.after: list[After] = []

    def reply(self, ticket: Ticket, reply: Reply) -> None:
        """Answer now."""
        self.replies.append((ticket, reply))

    def write(self, entry: Entry) -> None:
        """Append this with the rest of the step."""
        self.entries.append(entry)

    def then(self, after: After) -> None:
        """Go on with this when the step's entries (or, without any, all older ones) are committed."""
        self.after.append(after)

    def step(self) -> Step:
        return Step(tuple(self.entries), tuple(self.replies), tuple(self.after))
