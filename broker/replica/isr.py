"""The in-sync set of one partition at its leader: the set committed by the controller, and one pending change.

Invariants:
- at most one change is pending; it adds one replica to the committed set, or removes replicas from it;
- the *maximal* set (committed members, including those about to be removed, and the joining replica) bounds the high
  watermark, because the controller may have committed the set before or after the change; the *committed* set decides
  whether produces are admitted;
- an ambiguous response leaves the change pending until metadata decide it.
Source: KIP-497, KIP-903, Kafka's Partition.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kraft.wire.error_codes import ErrorCode


class IsrChange(Enum):
    """Reason for a proposal of a new in-sync set."""

    EXPAND = "expand"
    SHRINK = "shrink"
    RECOVER = "recover"
    """Propose the same members, because an uncleanly elected leader reports that it has recovered its log."""


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """A proposed in-sync set (one AlterPartition entry). `members` are (broker id, broker epoch or -1 if not known),
    sorted. The proposal is valid only in the leader epoch and partition epoch in which it was made."""

    change: IsrChange
    members: tuple[tuple[int, int], ...]
    leader_epoch: int
    partition_epoch: int

    @property
    def ids(self) -> frozenset[int]:
        return frozenset(broker_id for broker_id, _ in self.members)


@dataclass(frozen=True, slots=True)
class IsrAnswer:
    """One partition of an AlterPartition response. On success it has the state that the controller committed."""

    error: ErrorCode
    leader_epoch: int = -1
    partition_epoch: int = -1
    isr: tuple[int, ...] = ()


class AnswerVerdict(Enum):
    """Effect of an AlterPartition response on the pending change."""

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
    """The committed set, its partition epoch and the one pending change."""

    __slots__ = ("committed", "maximal", "partition_epoch", "pending")

    def __init__(self, committed: tuple[int, ...], partition_epoch: int) -> None:
        self.committed = frozenset(committed)
        self.partition_epoch = partition_epoch
        self.pending: IsrProposal | None = None
        self.maximal = self.committed

    def commit(self, members: tuple[int, ...], partition_epoch: int) -> None:
        """Apply a set that the controller has committed. This decides any pending change."""
        self.committed = frozenset(members)
        self.partition_epoch = partition_epoch
        self.pending = None
        self.maximal = self.committed

    def propose(self, proposal: IsrProposal) -> None:
        """Make `proposal` the pending change."""
        self.pending = proposal
        self.maximal = self.committed | proposal.ids

    def answered(self, proposal: IsrProposal, answer: IsrAnswer) -> AnswerVerdict:
        """Apply the controller's response to `proposal`. The state changes only on COMMITTED and REVERTED."""
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
