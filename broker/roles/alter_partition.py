"""AlterPartition: the in-sync changes that leaders on this broker ask of the controller, batched.

Invariants: one request is in flight. Its content is read from the partitions when the request is built, so a retry
never carries what metadata has decided meanwhile. An answer applies only to the proposal that it answers.
Source: AlterPartitionRequest, KIP-497, Kafka's AlterPartitionManager.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import islice
from typing import TYPE_CHECKING, Any
from uuid import UUID

import structlog
import trio

from kraft.broker.replica.isr import AnswerVerdict, IsrAnswer, IsrChange, IsrProposal
from kraft.image.partitions import RecoveryState
from kraft.node.peers import RequestFailed
from kraft.wire.error_codes import ErrorCode
from kraft.wire.rpc.controller_messages import (
    AlteredPartition,
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionToAlter,
)

if TYPE_CHECKING:
    from kraft.broker.partition.partition import Partition
    from kraft.broker.serving.loop import Loop
    from kraft.wire.rpc import RpcMessage

log = structlog.get_logger("kraft.broker.isr")

RETRY_MS = 50
PARTITIONS_PER_REQUEST_MAX = 250
"""The controller reads, decides and answers a request in one step of its loop, and so does this broker its answer."""


class AlterPartitionQueue:
    """Proposals on their way to the controller. `propose` is a plain call; `run` is the one task."""

    def __init__(
        self,
        loop: Loop,
        node_id: int,
        broker_epoch: Callable[[], int],
        ask_controller: Callable[[RpcMessage], Awaitable[Any]],
    ) -> None:
        """`ask_controller` raises RequestFailed if there was no answer."""
        self._loop = loop
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._ask_controller = ask_controller
        self._queued: dict[Partition, IsrProposal] = {}
        self._wake = trio.Event()
        self.shrinks = 0
        """In-sync sets that became smaller by this leader's own proposals, larger, and proposals that failed."""
        self.expands = 0
        self.failed = 0

    def propose(self, partition: Partition, proposal: IsrProposal) -> None:
        """Ask for this change once the request in flight is answered. A newer proposal takes the older's place."""
        self._queued[partition] = proposal
        self._wake.set()

    async def run(self) -> None:
        """Send what is queued, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            batch = self._take_batch()
            if not batch:
                continue
            try:
                answer = await self._ask_controller(self._request(batch))
            except RequestFailed:
                answer = None
            is_settled, refused = self._take_answer(batch, answer)
            if not is_settled:
                await self._loop.clock.sleep_ms(RETRY_MS)
            for partition in refused:
                partition.eligible_changed()
            if self._queued:
                self._wake.set()

    def _take_batch(self) -> dict[tuple[UUID, int], tuple[Partition, IsrProposal]]:
        """What is queued and still pending at its leader."""
        batch: dict[tuple[UUID, int], tuple[Partition, IsrProposal]] = {}
        while self._queued and len(batch) < PARTITIONS_PER_REQUEST_MAX:
            # all at once: a dict is slow to find its first entry when many before it were taken out
            for partition in list(islice(self._queued, PARTITIONS_PER_REQUEST_MAX - len(batch))):
                proposal = self._queued.pop(partition)
                if partition.leader is not None and partition.leader.isr.pending is proposal:
                    batch[partition.key] = (partition, proposal)
        return batch

    def _request(self, batch: dict[tuple[UUID, int], tuple[Partition, IsrProposal]]) -> AlterPartitionRequest:
        own_id, own_epoch = self._node_id, self._broker_epoch()
        return AlterPartitionRequest(
            broker_id=own_id,
            broker_epoch=own_epoch,
            partitions=tuple(
                PartitionToAlter(
                    topic_id=partition.topic_id,
                    partition_id=partition.index,
                    leader_epoch=proposal.leader_epoch,
                    partition_epoch=proposal.partition_epoch,
                    new_isr=tuple(
                        (member, own_epoch if member == own_id else epoch) for member, epoch in proposal.members
                    ),
                    leader_recovery_state=RecoveryState.RECOVERED,
                )
                for partition, proposal in batch.values()
            ),
        )

    def _take_answer(
        self, batch: dict[tuple[UUID, int], tuple[Partition, IsrProposal]], answer: AlterPartitionResponse | None
    ) -> tuple[bool, list[Partition]]:
        """Hand each partition its answer; what got none, or an error that says nothing, is queued again. Gives whether
        the next request needs no pause before it; and the partitions whose change was refused: a follower that could
        not join yet, and has everything, says nothing more that would have it proposed again."""
        if answer is None or answer.error_code != ErrorCode.NONE:
            log.info("AlterPartition is tried again", error=None if answer is None else answer.error_code)
            self.failed += len(batch)
            for partition, proposal in batch.values():
                self._queued.setdefault(partition, proposal)
            return False, []
        settled = True
        refused: list[Partition] = []
        answers = {(row.topic_id, row.partition_id): row for row in answer.partitions}
        for key, (partition, proposal) in batch.items():
            row = answers.get(key)
            if row is not None and row.error_code == ErrorCode.NONE:  # the metadata may have said so before
                self.shrinks += proposal.change is IsrChange.SHRINK
                self.expands += proposal.change is IsrChange.EXPAND
            verdict = AnswerVerdict.RETRY if row is None else partition.isr_answered(proposal, _answer(row))
            if verdict is AnswerVerdict.RETRY:
                self._queued.setdefault(partition, proposal)
                settled = False
                self.failed += 1
            elif verdict is AnswerVerdict.REVERTED:
                settled = False
                self.failed += 1
                refused.append(partition)
        self._loop.request_pass()
        return settled, refused


def _answer(row: AlteredPartition) -> IsrAnswer:
    return IsrAnswer(ErrorCode.of(row.error_code), row.leader_epoch, row.partition_epoch, row.isr)
