"""AssignReplicasToDirs: report to the controller in which directories this broker's replicas are.

The controller assigns a directory to each new replica. The broker reports a replica that is in a different directory,
because its folder was moved or the assigned directory was offline. It also reports a replica that is in no directory
(LOST), and a lost replica that is in a directory again.

Invariants: one request is in flight. A replica is reported until the controller has acknowledged the report. The
content of a request is true when it is built. An acknowledged directory is the one that the controller knows, even
while the metadata image still has the earlier one. So a replica that returns to the directory in the image is reported
again.
Source: AssignReplicasToDirsRequest, KIP-858, Kafka's AssignmentsManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID
from weakref import WeakKeyDictionary

import structlog
import trio

from kraft.node.peers import PeerRequestFailed
from kraft.wire.error_codes import ErrorCode
from kraft.wire.rpc.controller_messages import AssignReplicasToDirsRequest

if TYPE_CHECKING:
    from kraft.broker.partition.partition import Partition
    from kraft.broker.serving.controller_port import ControllerPort
    from kraft.broker.serving.loop import Loop

log = structlog.get_logger("kraft.broker.logs")

RETRY_MS = 50
RETRY_MS_MAX = 5_000
REPLICAS_PER_REQUEST_MAX = 1_000
"""Maximum number of replicas in one request, because the controller reads, decides and answers a request in one step of
its loop."""


class DirectoryAssignments:
    """Sends the reports that are queued. `run` is the only task; `report` does not suspend."""

    def __init__(self, loop: Loop, controller: ControllerPort) -> None:
        self._loop = loop
        self._controller = controller
        self._queued: dict[Partition, UUID] = {}
        self._sent: WeakKeyDictionary[Partition, UUID] = WeakKeyDictionary()
        """The directory that was last reported for each replica, acknowledged or not."""
        self._wake = trio.Event()
        self._settled = trio.Event()
        self._settled.set()

    def report(self, partition: Partition, directory_id: UUID) -> None:
        """Report that this replica is in this directory. No effect if the controller knows the directory already, or a
        queued report has it."""
        if self._last_reported(partition) == directory_id:
            return
        self._queued[partition] = directory_id
        if self._settled.is_set():
            self._settled = trio.Event()
        self._wake.set()

    def is_known(self, partition: Partition, directory_id: UUID) -> bool:
        """Return whether this is the replica's directory both in the metadata image and in the last report that this
        broker has queued or sent."""
        return self._named(partition) == self._last_reported(partition) == directory_id

    def _named(self, partition: Partition) -> UUID | None:
        return None if partition.state is None else partition.state.directory_of(self._controller.node_id)

    def _last_reported(self, partition: Partition) -> UUID | None:
        """Return the replica's directory in the queued report. If there is none, return the directory in the last sent
        report, or else in the metadata."""
        return self._queued.get(partition) or self._sent.get(partition) or self._named(partition)

    async def wait_settled(self) -> None:
        """Suspend until the controller has acknowledged all reports."""
        await self._settled.wait()

    async def run(self) -> None:
        """Send queued reports, until cancelled."""
        pause_ms = RETRY_MS
        while True:
            if not self._queued:
                self._settled.set()
                await self._wake.wait()
            self._wake = trio.Event()
            batch = dict([*self._queued.items()][:REPLICAS_PER_REQUEST_MAX])
            if await self._send(batch):
                pause_ms = RETRY_MS
                continue
            await self._loop.clock.sleep_ms(pause_ms)
            pause_ms = min(2 * pause_ms, RETRY_MS_MAX)

    async def _send(self, batch: dict[Partition, UUID]) -> bool:
        self._sent.update(batch)
        request = AssignReplicasToDirsRequest(
            broker_id=self._controller.node_id,
            broker_epoch=self._controller.broker_epoch(),
            assignments=tuple(
                (partition.topic_id, partition.index, directory)
                for partition, directory in batch.items()
                if not partition.is_removed
            ),
        )
        try:
            answer = await self._controller.request(request)
        except PeerRequestFailed as failure:
            log.info("AssignReplicasToDirs failed, retrying", outcome=failure.outcome.value)
            return False
        if answer.error_code != ErrorCode.NONE:
            log.info("AssignReplicasToDirs failed, retrying", error=ErrorCode.of(answer.error_code).name)
            return False
        for partition, directory in batch.items():
            if self._queued.get(partition) == directory:
                del self._queued[partition]
        return True
