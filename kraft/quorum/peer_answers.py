"""Responses of the core to other nodes' requests: completed with records or a snapshot's bytes, and sent.

A request waits here under a token until the core answers it. Data in memory is sent in the same step. Other data is
read off the loop first; if leadership or the records are lost meanwhile, the response is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import structlog
import trio

from kraft.quorum.metadata_log import ColdRead, MetadataLog
from kraft.raft.ready import Answer, Reply, ReplyWithRecords, ReplyWithSnapshot
from kraft.seam import CloseReason, Seam
from kraft.storage.snapshots import PositionOutOfRange, SnapshotNotFound
from kraft.wire.error_codes import ErrorCode
from kraft.wire.primitives import CannotEncode
from kraft.wire.rpc import encode_rpc
from kraft.wire.rpc.quorum_messages import MetadataFetchResponse
from kraft.wire.server import Request

log = structlog.get_logger("kraft.quorum")


class PendingResponses:
    """Requests of other nodes that wait for the core's response.

    `may_read(epoch)` returns whether this node leads this epoch and has stored that durably. `start_task(function,
    *arguments)` runs an async function beside the caller. `files` is the lock held while files are read off the loop.
    """

    def __init__(
        self,
        seam: Seam,
        metadata: MetadataLog,
        files: trio.Lock,
        may_read: Callable[[int], bool],
        start_task: Callable[..., None],
    ) -> None:
        self._disk = seam.disk
        self._metadata = metadata
        self._files = files
        self._may_read = may_read
        self._start_task = start_task
        self._tokens = 0
        self._requests: dict[int, Request] = {}

    def keep(self, request: Request) -> int:
        """Store a request; return its token."""
        self._tokens += 1
        self._requests[self._tokens] = request
        return self._tokens

    def give(self, answer: Answer) -> None:
        """Answer the request of this token, now or once the data it needs is read."""
        request = self._requests.pop(answer.token)
        if isinstance(answer, Reply):
            _respond(request, answer.response)
        elif isinstance(answer, ReplyWithRecords):
            try:
                records = self._metadata.read(answer.offset, answer.max_bytes, answer.end_offset)
            except ColdRead as cold:
                self._start_task(self._answer_with_cold_records, request, answer, cold)
            else:
                _respond(request, replace(answer.response, records=records))
        else:
            self._start_task(self._answer_with_snapshot_chunk, request, answer)

    async def _answer_with_cold_records(self, request: Request, answer: ReplyWithRecords, cold: ColdRead) -> None:
        async with self._files:
            await self._disk.offload(cold.warm)
            cold.keep()
            response = answer.response
            is_there = answer.offset >= self._metadata.log.log_start_offset  # the log may have been trimmed meanwhile
            if is_there and self._may_read(response.epoch):
                read = self._metadata.read_blocking
                records = await self._disk.offload(read, answer.offset, answer.max_bytes, answer.end_offset)
                response = replace(response, records=records)
            else:
                response = MetadataFetchResponse(error_code=ErrorCode.BROKER_NOT_AVAILABLE, epoch=response.epoch)
        _respond(request, response)

    async def _answer_with_snapshot_chunk(self, request: Request, answer: ReplyWithSnapshot) -> None:
        read = self._metadata.read_chunk
        try:
            async with self._files:
                size, data = await self._disk.offload(read, answer.snapshot, answer.position, answer.max_bytes)
            response = replace(answer.response, size=size, data=data)
        except SnapshotNotFound:
            response = replace(answer.response, error_code=ErrorCode.SNAPSHOT_NOT_FOUND)
        except PositionOutOfRange:
            response = replace(answer.response, error_code=ErrorCode.POSITION_OUT_OF_RANGE)
        _respond(request, response)


def _respond(request: Request, response: Any) -> None:
    try:
        body = encode_rpc(response, request.api_version)
    except CannotEncode as problem:
        log.error("request failed", api_key=request.api_key, error=repr(problem))
        request.fail(str(problem), CloseReason.LOCAL)
    else:
        request.respond(body)
        request.connection.meter.count_answer(request.api_key, response)
