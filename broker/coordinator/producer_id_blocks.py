"""Hand out producer ids from blocks that the controller allocates.

Invariant: each id is given to one caller only. A block is used by one process only, so ids may be skipped but are never
reused. The next block is requested before the current block is used up, so that producers do not wait for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import structlog
import trio

from kraft.node.peers import PeerRequestFailed
from kraft.wire.error_codes import ErrorCode
from kraft.wire.rpc.controller_messages import AllocateProducerIdsRequest

log = structlog.get_logger("kraft.broker.producer_ids")

PREFETCH_SHARE = 10
"""Divisor of the block size: the next block is requested when a tenth of the current block, or less, is left."""


class ProducerIds:
    """The producer ids that this broker has reserved and hands out."""

    def __init__(
        self,
        node_id: int,
        broker_epoch: Callable[[], int],
        ask_controller: Callable[[AllocateProducerIdsRequest], Awaitable[Any]],
        start_task: Callable[..., None],
    ) -> None:
        """`ask_controller` raises PeerRequestFailed if no response arrived."""
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._ask_controller = ask_controller
        self._start_task = start_task
        self._next = 0
        self._end = 0
        self._size = 0
        self._reserve: tuple[int, int] | None = None
        self._fetching = False
        self._arrived = trio.Event()

    def take_nowait(self) -> int | None:
        """Return the next id, or None if the current block is used up and the next block has not arrived."""
        if self._next == self._end and self._reserve is not None:
            self._next, self._end = self._reserve
            self._size = self._end - self._next
            self._reserve = None
        if self._reserve is None and (self._end - self._next) * PREFETCH_SHARE <= self._size:
            self._fetch()
        if self._next == self._end:
            return None
        self._next += 1
        return self._next - 1

    async def take(self) -> int | None:
        """Return the next id, waiting for a block if necessary. Return None if the controller did not allocate one."""
        while (producer_id := self.take_nowait()) is None:
            arrived = self._arrived
            await arrived.wait()
            if self._reserve is None and self._next == self._end:
                return None
        return producer_id

    def _fetch(self) -> None:
        if not self._fetching:
            self._fetching = True
            self._start_task(self._fetch_block)

    async def _fetch_block(self) -> None:
        try:
            answer = await self._ask_controller(
                AllocateProducerIdsRequest(broker_id=self._node_id, broker_epoch=self._broker_epoch())
            )
        except PeerRequestFailed as failure:
            log.warning("no block of producer ids", outcome=failure.outcome.value)
        else:
            if answer.error_code == ErrorCode.NONE:
                self._reserve = (answer.first_producer_id, answer.first_producer_id + answer.count)
            else:
                log.warning("no block of producer ids", error=ErrorCode.of(answer.error_code).name)
        self._fetching = False
        arrived, self._arrived = self._arrived, trio.Event()
        arrived.set()
