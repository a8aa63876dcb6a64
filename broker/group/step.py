"""CoordinatorStep: the work that a call of the coordinator returns to its driver. The driver does it in this order:

1. It appends `entries` to the log as one atomic batch (if there are any). A TransactionalBatch or a MarkerBatch is the
only entry of its step.
2. It sends `replies` at once, even if the append failed: they do not depend on anything uncommitted.
3. When the high watermark has passed the batch, it passes each item of `after` to `stored`. If the high watermark never
will (the append failed, the timeout passed, the partition moved), it passes each item to `failed`, with the error. Each
item is passed exactly once; `stored` and `failed` both return another step. If a step has no entries, its `after` waits
for the entries appended before.
4. It does the work in `share_states` at the share coordinators, at once: everything before is committed.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from kraft.broker.consumer_group.records import ConsumerLogEntry
from kraft.broker.consumer_group.state import ConsumerGroup
from kraft.broker.consumer_group.timers import ConsumerTimer
from kraft.broker.group.classic_group import Member
from kraft.broker.group.records import GroupLogEntry
from kraft.broker.group.requests import DeleteRequest, JoinRequest, Reply, Request, Ticket
from kraft.broker.shard.now import Now
from kraft.broker.shard.transactional import MarkerBatch, TransactionalBatch
from kraft.broker.share_group.initialization import ShareInitialization
from kraft.broker.share_group.records import ShareGroupLogEntry
from kraft.broker.share_group.state import ShareGroup
from kraft.broker.share_group.timers import ShareSessionTimer


class SendReply(NamedTuple):
    """Work after the commit: send this reply. If the write failed, `request` builds the error reply."""

    ticket: Ticket
    request: Request
    reply: Reply


class ContinueRequest(NamedTuple):
    """Work after the commit: continue this request, because its first part is committed. The first part is a new group
    that its first member may now join, or the removals of the first batch."""

    ticket: Ticket
    request: Request


class AssignmentStored(NamedTuple):
    """Work after the commit: send the assignments (member id → bytes) of this generation. `plan` is the number of this
    set of assignments, because a leader may send several."""

    group: str
    generation: int
    plan: int
    assignments: tuple[tuple[str, bytes], ...]


class StaticMemberReplaced(NamedTuple):
    """Work after the commit: answer the static member, whose new id is now valid. If the write failed, the replacement
    is undone: `old` is the replaced member, `leader` the previous leader."""

    group: str
    member_id: str
    old: Member
    leader: str
    ticket: Ticket
    request: JoinRequest


class ReadStableOffsets(NamedTuple):
    """Work after all older writes are committed: read the requested offsets."""

    ticket: Ticket
    request: Request


class ConsumerTimerFired(NamedTuple):
    """Nothing to do after the commit. If the log refused the write, the timer fires again later. `group` is the group
    before the write."""

    timer: ConsumerTimer
    group: ConsumerGroup


class GroupDowngraded(NamedTuple):
    """Work after the commit: begin the first rebalance of a consumer group that has become a classic group."""

    group: str


class ShareTimerFired(NamedTuple):
    """Nothing to do after the commit. If the log refused the write, the timer of a share group fires again later.
    `group` is the group before the write."""

    timer: ShareSessionTimer
    group: ShareGroup


class InitializeShareStates(NamedTuple):
    """Work after the commit: begin the states of these share partitions at the share coordinator."""

    initialization: ShareInitialization


class DeleteShareStates(NamedTuple):
    """Work after the commit: delete the states of these share partitions that are older than this state epoch, then
    continue the request."""

    ticket: Ticket
    request: DeleteRequest
    state_epoch: int
    partitions: tuple[tuple[UUID, int], ...]


ShareStateWork = InitializeShareStates | DeleteShareStates
Written = GroupLogEntry | ConsumerLogEntry | ShareGroupLogEntry | TransactionalBatch | MarkerBatch
After = (
    SendReply
    | ContinueRequest
    | AssignmentStored
    | StaticMemberReplaced
    | ReadStableOffsets
    | ConsumerTimerFired
    | GroupDowngraded
    | ShareTimerFired
    | InitializeShareStates
    | DeleteShareStates
)


class CoordinatorStep(NamedTuple):
    """The work that one call returns; the module docstring gives the order in which the driver does it."""

    entries: tuple[Written, ...] = ()
    replies: tuple[tuple[Ticket, Reply], ...] = ()
    after: tuple[After, ...] = ()
    share_states: tuple[ShareStateWork, ...] = ()


class CoordinatorCall:
    """One call of the coordinator, with its time. It collects the work of the call into a step."""

    __slots__ = ("after", "entries", "now", "replies", "share_states")

    def __init__(self, now: Now) -> None:
        self.now = now
        self.entries: list[Written] = []
        self.replies: list[tuple[Ticket, Reply]] = []
        self.after: list[After] = []
        self.share_states: list[ShareStateWork] = []

    def reply(self, ticket: Ticket, reply: Reply) -> None:
        """Add a reply that is sent at once."""
        self.replies.append((ticket, reply))

    def write(self, entry: Written) -> None:
        """Add this entry to the batch of the step."""
        self.entries.append(entry)

    def then(self, after: After) -> None:
        """Do this work when the step's entries are committed (or, in a step without entries, all older ones)."""
        self.after.append(after)

    def step(self) -> CoordinatorStep:
        return CoordinatorStep(tuple(self.entries), tuple(self.replies), tuple(self.after), tuple(self.share_states))
