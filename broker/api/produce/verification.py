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
        self._opening = 0

    def wait(self, batch: UnverifiedBatch) -> None:
        """Add a batch. If the log of its partition is open, `begin_verification` was already called."""
        self._batches.append(batch)
        self._wait_in_order(batch)

    def _wait_in_order(self, batch: UnverifiedBatch) -> None:
        """Queue a batch whose verification has begun behind older batches of its producer and partition."""
        if batch.slot.verification is not None:
            resume = partial(self._ports.finish, self._request, self._resume, batch)
            self._ports.unverified.add(batch.slot.verification, batch, resume)

    def ask(self) -> None:
        """Open the logs of all waiting batches, then ask the coordinator about the batches."""
        closed = [batch for batch in self._batches if batch.partition.log is None]
        self._opening = len(closed)
        for batch in closed:
            batch.partition.append_later(PendingAppend(partial(self._opened, batch)))
        if not closed:
            self._ask()

    def _opened(self, batch: UnverifiedBatch, error: ErrorCode) -> None:
        """Continue, because the log of a partition is open or cannot be opened."""
        self._opening -= 1
        if error is not ErrorCode.NONE:
            self._batches.remove(batch)
            batch.refuse(error)
        if not self._opening:
            self._ports.finish(self._request, self._ask)

    def _ask(self) -> None:
        asked = [batch for batch in self._batches if self._must_ask(batch)]
        if not asked:
            return
        header = asked[0].header
        partitions = frozenset((batch.partition.topic, batch.partition.index) for batch in asked)
        kind = AddRequest if self._version >= FIRST_THAT_ADDS else VerifyRequest
        question = kind(self._transactional_id, header.producer_id, header.producer_epoch, partitions)
        self._ports.enrol(question, partial(self._ports.finish, self._request, self._answered, asked))

    def _must_ask(self, batch: UnverifiedBatch) -> bool:
        """Return whether the coordinator must verify a batch. If its log has just been opened, begin the verification;
        a batch that needs none continues at once."""
        if batch.slot.verification is not None:
            return self._ports.unverified.has(batch.slot.verification, batch)
        log = batch.partition.log
        if log is None:
            batch.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return False
        try:
            if begin_verification(self._ports, self._version, batch.slot, log, batch.header):
                self._wait_in_order(batch)
                return True
        except AppendRefused as refused:
            batch.refuse(refused.error_code, str(refused))
        else:
            self._resume(batch)
        return False

    def _answered(self, asked: list[UnverifiedBatch], errors: Mapping[tuple[str, int], ErrorCode]) -> None:
        """Resume or reject the batches of the request that still wait."""
        for batch in asked:
            verification = batch.slot.verification
            if verification is None:
                continue
            error = errors[batch.partition.topic, batch.partition.index]
            if error is ErrorCode.NONE:
                self._ports.unverified.confirm(verification)
            elif self._ports.unverified.remove(verification, batch):
                batch.refuse(
                    producer_error(error, self._version),
                    f"the transaction coordinator of {self._transactional_id} answered {error.name} for "
                    f"{batch.partition.topic}-{batch.partition.index}",
                )
