"""TransactionalCommits: verify the transaction of a TxnOffsetCommit, then pass its offsets to the group coordinator.

The partition of `__consumer_offsets` must be part of the transaction, like every other partition that the transaction
writes to. Up to version 4 of the request, the producer has added the partition before, with AddOffsetsToTxn. From
version 5 on, the broker adds it when it handles the TxnOffsetCommit.
Source: TxnOffsetCommitRequest 0 to 5, KIP-98, KIP-890.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from kraft.broker.coordinator.internal_topics import OFFSETS_TOPIC
from kraft.broker.txn.requests import AddRequest, VerifyRequest
from kraft.storage.append import AppendRefused
from kraft.storage.producers.verification import NOT_VERIFYING, Verification
from kraft.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kraft.broker.coordinator.group_coordinators import GroupCoordinators
    from kraft.broker.coordinator.partition_enrolment import EnrolmentErrors, EnrolmentRequest, OnEnrolled
    from kraft.broker.group.requests import CommitReply, TxnCommitRequest
    from kraft.broker.partition.partition import Partition
    from kraft.broker.serving.loop import Loop

NO_SEQUENCE = -1

CLIENT_ERRORS: Mapping[ErrorCode, ErrorCode] = MappingProxyType(
    {
        ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.OPERATION_NOT_ATTEMPTED: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ErrorCode.INVALID_TXN_STATE,
    }
)
"""Error code of the transaction coordinator → error code that the client gets.

A coordinator error such as NOT_COORDINATOR would make the client look up its group coordinator again, although the
transaction coordinator failed. With COORDINATOR_LOAD_IN_PROGRESS the client just retries."""


class CommitClient(NamedTuple):
    """Abilities of the client of a TxnOffsetCommit, by request version. `adds` (from version 5): the broker adds the
    partition to the transaction. `knows_abortable` (from version 4): the client knows TRANSACTION_ABORTABLE."""

    adds: bool
    knows_abortable: bool

    def error(self, error: ErrorCode) -> ErrorCode:
        """Return the error code that this client gets for an error of the transaction coordinator."""
        if error is ErrorCode.TRANSACTION_ABORTABLE and not self.knows_abortable:
            return ErrorCode.INVALID_TXN_STATE
        if error is ErrorCode.CONCURRENT_TRANSACTIONS and not self.adds:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return CLIENT_ERRORS.get(error, error)


class TransactionalCommits:
    """The TxnOffsetCommit requests that one broker is processing. No method is a coroutine."""

    def __init__(
        self,
        loop: Loop,
        groups: GroupCoordinators,
        enrol: Callable[[EnrolmentRequest, OnEnrolled], None],
        verifies: Callable[[], bool],
    ) -> None:
        """`enrol` is `PartitionEnrolment.ask`. `verifies` returns transaction.partition.verification.enable. If it is
        False, partitions are not verified; with version 5 they are added nevertheless."""
        self._clock = loop.clock
        self._groups = groups
        self._enrol = enrol
        self._verifies = verifies

    def submit(
        self,
        transactional_id: str,
        commit: TxnCommitRequest,
        client: CommitClient,
        ticket: Callable[[CommitReply], None],
    ) -> None:
        """Answer the commit by calling `ticket(reply)`, now or later."""
        partition = self._groups.partition_of(commit.group)
        if partition is None:
            ticket(commit.refused(ErrorCode.NOT_COORDINATOR))
        elif partition.log is None:
            partition.when_open(partial(self._verify, transactional_id, commit, client, ticket, partition))
        else:
            self._verify(transactional_id, commit, client, ticket, partition)

    def _verify(
        self,
        transactional_id: str,
        commit: TxnCommitRequest,
        client: CommitClient,
        ticket: Callable[[CommitReply], None],
        partition: Partition,
    ) -> None:
        """Begin to verify the commit at the log and at the transaction coordinator. `_commit` continues when it is
        verified."""
        log = partition.log
        if log is None or not partition.leads:
            ticket(commit.refused(ErrorCode.NOT_COORDINATOR))
            return
        producer = (commit.producer_id, commit.producer_epoch)
        now_ms = self._clock.wall_ms()
        try:
            begun = log.producers.begin_verification(*producer, NO_SEQUENCE, adds=client.adds, now_ms=now_ms)
        except AppendRefused as refused:
            ticket(commit.refused(refused.error_code))
            return
        if begun is None:
            self._commit(commit, None, ticket)
        elif not client.adds and not self._verifies():
            self._commit(commit, NOT_VERIFYING, ticket)
        else:
            key = (OFFSETS_TOPIC, partition.index)

            def answered(errors: EnrolmentErrors) -> None:
                error = errors[key]
                if error is ErrorCode.NONE:
                    self._commit(commit, begun, ticket)
                else:
                    ticket(commit.refused(client.error(error)))

            kind = AddRequest if client.adds else VerifyRequest
            self._enrol(kind(transactional_id, *producer, frozenset((key,))), answered)

    def _commit(
        self, commit: TxnCommitRequest, verification: Verification | None, ticket: Callable[[CommitReply], None]
    ) -> None:
        """Pass the offsets to the group coordinator, which may have moved to another broker meanwhile."""
        self._groups.submit(commit._replace(verification=verification), ticket)
