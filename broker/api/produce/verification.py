"""Verification of the transactional batches of one Produce request, before they may open a transaction (KIP-890).

A partition's first batch of a transaction waits until the transaction coordinator has confirmed that the partition is
part of that transaction, or has added it. The batch holds no lock while it waits, so its partition may move meanwhile.
When the coordinator has answered, everything is checked again, and the append step compares the batch's verification
with the log's. The answer to one request also resumes batches of other requests (`WaitingBatches`).
Source: KIP-890, docs/produce-checks.md#the-transaction, Kafka's ReplicaManager.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from kraft.broker.partition.partition_host import PendingAppend
from kraft.broker.txn.requests import AddRequest, VerifyRequest
from kraft.storage.append import AppendRefused
from kraft.storage.producers.verification import NOT_VERIFYING
from kraft.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kraft.broker.api.produce.pending_produce import PartitionProduce, ProducePorts
    from kraft.broker.partition.partition import Partition
    from kraft.storage.log import Log
    from kraft.storage.producers.verification import Verification
    from kraft.wire.records import BatchHeader
    from kraft.wire.server import Request

FIRST_WITH_ABORTABLE = 11
"""First version of Produce whose clients know TRANSACTION_ABORTABLE."""
FIRST_THAT_ADDS = 12
"""First version of Produce (transaction.version 2) in which a request adds its partitions to the transaction."""

CLIENT_ERRORS: Mapping[ErrorCode, ErrorCode] = MappingProxyType(
    {
        ErrorCode.NETWORK_EXCEPTION: ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.OPERATION_NOT_ATTEMPTED: ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ErrorCode.INVALID_TXN_STATE,
    }
)
"""Error code of the coordinator → error code that a producer gets. Producers of every version retry
NOT_ENOUGH_REPLICAS. A coordinator answers OPERATION_NOT_ATTEMPTED if its metadata lack another partition of the same
question."""
CLIENT_ERRORS_BEFORE_ABORTABLE: Mapping[ErrorCode, ErrorCode] = MappingProxyType(
    {ErrorCode.TRANSACTION_ABORTABLE: ErrorCode.INVALID_TXN_STATE}
)
CLIENT_ERRORS_BEFORE_ADDING: Mapping[ErrorCode, ErrorCode] = MappingProxyType(
    {ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.NOT_ENOUGH_REPLICAS}
)


def producer_error(error: ErrorCode, version: int) -> ErrorCode:
    """Return the error code that a producer of this Produce version gets for an error of the transaction
    coordinator."""
    if version < FIRST_WITH_ABORTABLE:
        error = CLIENT_ERRORS_BEFORE_ABORTABLE.get(error, error)
    if version < FIRST_THAT_ADDS:
        error = CLIENT_ERRORS_BEFORE_ADDING.get(error, error)
    return CLIENT_ERRORS.get(error, error)


class UnverifiedBatch:
    """A copy of a batch that waits for the transaction coordinator. `release` frees its memory."""

    __slots__ = ("data", "header", "partition", "release", "slot")

    def __init__(
        self,
        slot: PartitionProduce,
        partition: Partition,
        data: memoryview,
        header: BatchHeader,
        release: Callable[[], None],
    ) -> None:
        self.slot = slot
        self.partition = partition
        self.data = data
        self.header = header
        self.release = release

    def refuse(self, error: ErrorCode, message: str | None = None) -> None:
        self.release()
        self.slot.refuse(error, message)


def log_to_verify_in(partition: Partition) -> Log | None:
    """Return the log in which a batch that has just arrived may begin its verification. None if the log is closed, or
    if older batches wait in the partition's queue, because their verifications must begin before."""
    return None if partition.pending else partition.log


def begin_verification(
    ports: ProducePorts, version: int, slot: PartitionProduce, log: Log, header: BatchHeader
) -> bool:
    """Return whether the batch must wait for the transaction coordinator. Store its verification in `slot`. Raises
    AppendRefused if the producer's epoch is fenced."""
    adds = version >= FIRST_THAT_ADDS
    begun = log.producers.begin_verification(
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        adds=adds,
        now_ms=ports.loop.clock.wall_ms(),
    )
    is_asked = begun is not None and (adds or ports.verifies_transactions())
    slot.verification = begun if is_asked or begun is None else NOT_VERIFYING
    return is_asked


class TransactionVerification:
    """The batches of one request that wait for the transaction coordinator. `wait` adds each batch; `ask` is called
    once, after the last one."""

    def __init__(
        self, ports: ProducePorts, request: Request, transactional_id: str, resume: Callable[[UnverifiedBatch], None]
    ) -> None:
        """`resume(batch)` checks and appends a verified batch."""
        self._ports = ports
        self._request = request
        self._version = request.api_version
        self._transactional_id = transactional_id
        self._resume = resume
        self._batches: list[UnverifiedBatch] = []
        self._unready = 0

    def wait(self, batch: UnverifiedBatch) -> None:
        """Add a batch whose verification has begun, or whose partition cannot begin it yet (`log_to_verify_in`)."""
        self._batches.append(batch)
        if batch.slot.verification is not None:
            self._wait_in_order(batch, batch.slot.verification)

    def ask(self) -> None:
        """Begin the verifications that could not begin yet, once their partitions are ready. Then ask the coordinator
        about all batches."""
        unready = [batch for batch in self._batches if batch.slot.verification is None]
        self._unready = len(unready)
        for batch in unready:
            batch.partition.append_later(PendingAppend(partial(self._readied, batch)))
            self._ports.budget_may_be_full(batch.partition)
        if not unready:
            self._ask()

    def _readied(self, batch: UnverifiedBatch, error: ErrorCode) -> None:
        """Continue, because it is the turn of a batch in its partition, or the partition accepts no appends."""
        self._unready -= 1
        if error is ErrorCode.NONE:
            self._ports.finish(self._request, self._begin, batch)
        else:
            batch.refuse(error)
        if not self._unready:
            self._ports.finish(self._request, self._ask)

    def _begin(self, batch: UnverifiedBatch) -> None:
        """Begin a verification. A batch that needs none continues at once."""
        log = batch.partition.log
        if log is None:
            batch.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        try:
            must_wait = begin_verification(self._ports, self._version, batch.slot, log, batch.header)
        except AppendRefused as refused:
            batch.refuse(refused.error_code, str(refused))
            return
        if must_wait and batch.slot.verification is not None:
            self._wait_in_order(batch, batch.slot.verification)
        else:
            self._resume(batch)

    def _wait_in_order(self, batch: UnverifiedBatch, verification: Verification) -> None:
        """Queue a batch behind older batches of its producer and partition."""
        resume = partial(self._ports.finish, self._request, self._resume, batch)
        self._ports.unverified.add(verification, batch, resume)

    def _ask(self) -> None:
        asked = [batch for batch in self._batches if self._ports.unverified.has(batch.slot.verification, batch)]
        if not asked:
            return
        header = asked[0].header
        partitions = frozenset((batch.partition.topic, batch.partition.index) for batch in asked)
        kind = AddRequest if self._version >= FIRST_THAT_ADDS else VerifyRequest
        question = kind(self._transactional_id, header.producer_id, header.producer_epoch, partitions)
        self._ports.enrol(question, partial(self._ports.finish, self._request, self._answered, asked))

    def _answered(self, asked: list[UnverifiedBatch], errors: Mapping[tuple[str, int], ErrorCode]) -> None:
        """Resume or reject the batches of the request that still wait."""
        for batch in asked:
            error = errors[batch.partition.topic, batch.partition.index]
            if error is ErrorCode.NONE:
                self._ports.unverified.confirm(batch.slot.verification)
            elif self._ports.unverified.remove(batch.slot.verification, batch):
                batch.refuse(
                    producer_error(error, self._version),
                    f"the transaction coordinator of {self._transactional_id} answered {error.name} for "
                    f"{batch.partition.topic}-{batch.partition.index}",
                )
