"""AlterPartition: send the in-sync changes proposed by leaders on this broker to the controller, in batches.

Invariants: one request is in flight. A request is built from the current proposals of the partitions, so a retry never
contains a proposal that metadata has decided meanwhile. A response applies only to the proposal that it answers.
Source: AlterPartitionRequest, KIP-497, Kafka's AlterPartitionManager.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING
from uuid import UUID

import structlog
import trio

from kraft.broker.replica.isr import AnswerVerdict, IsrAnswer, IsrChange, IsrProposal
from kraft.image.partitions import RecoveryState
from kraft.node.peers import PeerRequestFailed
from kraft.wire.error_codes import ErrorCode
from kraft.wire.rpc.controller_messages import (
    AlteredPartition,
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionToAlter,
)

if TYPE_CHECKING:
    from kraft.broker.partition.partition import Partition
    from kraft.broker.serving.controller_port import ControllerPort
    from kraft.broker.serving.loop import Loop

log = structlog.get_logger("kraft.broker.isr")

RETRY_MS = 50
PARTITIONS_PER_REQUEST_MAX = 250
"""Maximum number of partitions in one request. The controller reads, decides and answers a request in one step of its
loop, and this broker handles the response in one step."""


class AlterPartitionQueue:
    """The proposals that are queued or in flight. `run` is the only coroutine, and runs as one task."""

    def __init__(self, loop: Loop, controller: ControllerPort) -> None:
        self._loop = loop
        self._controller = controller
        self._queued: dict[Partition, IsrProposal] = {}
        self._wake = trio.Event()
        self.shrinks = 0
        """Number of times that an in-sync set shrank by a proposal of a leader on this broker. `expands` and `failed`
        count the proposals that added a replica and those that failed."""
        self.expands = 0
        self.failed = 0

    def propose(self, partition: Partition, proposal: IsrProposal) -> None:
        """Send this change once the request in flight is answered. A newer proposal of a partition replaces an older
        one."""
        self._queued[partition] = proposal
        self._wake.set()

    async def run(self) -> None:
        """Send queued proposals, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            batch = self._take_batch()
            if not batch:
                continue
            try:
                answer = await self._controller.request(self._request(batch))
            except PeerRequestFailed:
                answer = None
            is_settled, refused = self._take_answer(batch, answer)
            if not is_settled:
                await self._loop.clock.sleep_ms(RETRY_MS)
            for partition in refused:
                partition.eligible_changed()
            if self._queued:
                self._wake.set()

    def _take_batch(self) -> dict[tuple[UUID, int], tuple[Partition, IsrProposal]]:
        """Return the queued proposals that are still pending at their leader."""
        batch: dict[tuple[UUID, int], tuple[Partition, IsrProposal]] = {}
        while self._queued and len(batch) < PARTITIONS_PER_REQUEST_MAX:
            # several at once: in a dict, finding the first entry is slow after many entries before it were removed
            for partition in list(islice(self._queued, PARTITIONS_PER_REQUEST_MAX - len(batch))):
                proposal = self._queued.pop(partition)
                if partition.leader is not None and partition.leader.isr.pending is proposal:
                    batch[partition.key] = (partition, proposal)
        return batch

    def _request(self, batch: dict[tuple[UUID, int], tuple[Partition, IsrProposal]]) -> AlterPartitionRequest:
        own_id, own_epoch = self._controller.node_id, self._controller.broker_epoch()
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
        """Pass each partition its result. Queue a proposal again if it got no result, or an error that leaves it
        undecided.

        Return whether the next request may be sent without a pause, and the partitions whose change was rejected
        because a follower could not join yet. The leader must propose such a change again: a follower that has caught
        up changes nothing by fetching, so its fetches trigger no proposal."""
        if answer is None or answer.error_code != ErrorCode.NONE:
            log.info("AlterPartition failed, retrying", error=None if answer is None else answer.error_code)
            self.failed += len(batch)
            for partition, proposal in batch.values():
                self._queued.setdefault(partition, proposal)
            return False, []
        settled = True
        refused: list[Partition] = []
        answers = {(row.topic_id, row.partition_id): row for row in answer.partitions}
        for key, (partition, proposal) in batch.items():
            row = answers.get(key)
            # the metadata may have contained the change before
            if row is not None and row.error_code == ErrorCode.NONE:
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
