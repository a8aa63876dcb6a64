"""The in-sync set of one partition at its leader: the set that the controller has committed, and a pending change of
it.

Invariants:
- at most one change is pending, and it differs from the committed set by one joining replica or by those that leave;
- the *maximal* set (committed and joining; leavers still in) bounds the high watermark, because the controller may have
  committed either set; the *committed* set admits produces;
- an ambiguous answer keeps the change pending until metadata decides.
Source: KIP-497, KIP-903, Kafka's Partition.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kraft.wire.error_codes import ErrorCode


class IsrChange(Enum):
    """Why a new in-sync set is proposed."""

    EXPAND = "expand"
    SHRINK = "shrink"
    RECOVER = "recover"
    """The same members: an uncleanly elected leader says that it has dealt with its log."""


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """What to ask of the controller (one AlterPartition entry). `members` are (broker id, broker epoch or -1 if not
    known), sorted; both epochs are those that the proposal was made under and make it void when they move on."""

    change: IsrChange
    members: tuple[tuple[int, int], ...]
    leader_epoch: int
    partition_epoch: int

    @property
    def ids(self) -> frozenset[int]:
        return frozenset(broker_id for broker_id, _ in self.members)


@dataclass(frozen=True, slots=True)
class IsrAnswer:
    """One partition of an AlterPartition response. On success: the state that the controller has committed."""

    error: ErrorCode
    leader_epoch: int = -1
    partition_epoch: int = -1
    isr: tuple[int, ...] = ()


class AnswerVerdict(Enum):
    """What an answer means for the pending change."""

    COMMITTED = "the answer's set is committed"
    REVERTED = "the change is refused: back to the committed set"
    AWAIT_METADATA = "our view is old: stay pending until metadata arrives"
    RETRY = "nothing is known: ask again"
    STALE = "the change is no longer pending"


REVERTING = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
AWAITING = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)


class InSyncSet:
    """Committed set, partition epoch and the one pending change."""

    __slots__ = ("committed", "maximal", "partition_epoch", "pending")

    def __init__(self, committed: tuple[int, ...], partition_epoch: int) -> None:
        self.committed = frozenset(committed)
        self.partition_epoch = partition_epoch
        self.pending: IsrProposal | None = None
        self.maximal = self.committed

    def commit(self, members: tuple[int, ...], partition_epoch: int) -> None:
        """The controller has committed this set; whatever was pending is decided by it."""
        self.committed = frozenset(members)
        self.partition_epoch = partition_epoch
        self.pending = None
        self.maximal = self.committed

    def propose(self, proposal: IsrProposal) -> None:
        """Make `proposal` the pending change."""
        self.pending = proposal
        self.maximal = self.committed | proposal.ids

    def answered(self, proposal: IsrProposal, answer: IsrAnswer) -> AnswerVerdict:
        """Take the controller's answer to `proposal`; the state changes only on COMMITTED and REVERTED."""
        if self.pending is not proposal:
            return AnswerVerdict.STALE
        if answer.error == ErrorCode.NONE:
            if answer.leader_epoch != proposal.leader_epoch or answer.partition_epoch < self.partition_epoch:
                return AnswerVerdict.AWAIT_METADATA
            self.commit(answer.isr, answer.partition_epoch)
            return AnswerVerdict.COMMITTED
        if answer.error in REVERTING:
            self.pending = None
            self.maximal = self.committed
            return AnswerVerdict.REVERTED
        return AnswerVerdict.AWAIT_METADATA if answer.error in AWAITING else AnswerVerdict.RETRY
