"""AssignReplicasToDirs: report to the controller in which directories this broker's replicas are.

The controller gives each new replica a directory. The broker reports when a replica is in another one (its folder was
moved, its directory was offline when it came), when it is in no directory at all (LOST), and when it is back.

Invariants: one request is in flight. A replica is reported until the controller has answered. A request holds what is
true when it is built. The controller is taken to know what it acknowledged before the metadata say so, so that a
replica that changes back is reported again. Source: AssignReplicasToDirsRequest, KIP-858, Kafka's AssignmentsManager.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID
from weakref import WeakKeyDictionary

import structlog
import trio

from kraft.node.peers import RequestFailed
from kraft.wire.error_codes import ErrorCode
from kraft.wire.rpc.controller_messages import AssignReplicasToDirsRequest

if TYPE_CHECKING:
    from kraft.broker.partition.partition import Partition
    from kraft.broker.serving.loop import Loop
    from kraft.wire.rpc import RpcMessage

log = structlog.get_logger("kraft.broker.logs")

RETRY_MS = 50
RETRY_MS_MAX = 5_000
REPLICAS_PER_REQUEST_MAX = 1_000
"""The controller reads, decides and answers a request in one step of its loop."""


class DirectoryAssignments:
    """Reports on their way. `report` is a plain call; `run` is the one task."""

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
        self._queued: dict[Partition, UUID] = {}
        self._sent: WeakKeyDictionary[Partition, UUID] = WeakKeyDictionary()
        """The last that was sent, be it answered or not."""
        self._wake = trio.Event()
        self._settled = trio.Event()
        self._settled.set()

    def report(self, partition: Partition, directory_id: UUID) -> None:
        """This replica is in this directory; nothing if that is the last that the controller knows, or will."""
        if self._last_word(partition) == directory_id:
            return
        self._queued[partition] = directory_id
        if self._settled.is_set():
            self._settled = trio.Event()
        self._wake.set()

    def is_known(self, partition: Partition, directory_id: UUID) -> bool:
        """Whether the metadata name this directory, and the controller was told no other since."""
        return self._named(partition) == self._last_word(partition) == directory_id

    def _named(self, partition: Partition) -> UUID | None:
        return None if partition.state is None else partition.state.directory_of(self._node_id)

    def _last_word(self, partition: Partition) -> UUID | None:
        """What the controller is about to be told, else what it was told last, else what the metadata say."""
        return self._queued.get(partition) or self._sent.get(partition) or self._named(partition)

    async def wait_settled(self) -> None:
        """Suspend until everything that was reported is answered."""
        await self._settled.wait()

    async def run(self) -> None:
        """Send what is queued, until cancelled."""
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
            broker_id=self._node_id,
            broker_epoch=self._broker_epoch(),
            assignments=tuple(
                (partition.topic_id, partition.index, directory)
                for partition, directory in batch.items()
                if not partition.is_removed
            ),
        )
        try:
            answer = await self._ask_controller(request)
        except RequestFailed as failure:
            log.info("AssignReplicasToDirs is tried again", outcome=failure.outcome.value)
            return False
        if answer.error_code != ErrorCode.NONE:
            log.info("AssignReplicasToDirs is tried again", error=ErrorCode.of(answer.error_code).name)
            return False
        for partition, directory in batch.items():
            if self._queued.get(partition) == directory:
                del self._queued[partition]
        return True
