"""AlterPartitionReassignments and ListPartitionReassignments: forward them to the active controller, which decides
(KIP-455).
"""

from __future__ import annotations

from typing import Any

from kraft.broker.api.forwarding import Forwarder
from kraft.broker.serving.request_versions import read, respond
from kraft.broker.serving.session import Session
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages import milliseconds
from kraft.wire.server import Request


def handle_alter_reassignments(forwarder: Forwarder, request: Request, session: Session) -> None:
    """Start or cancel the reassignment of each partition, or reject it, independently of the others."""
    message = read(request)

    def failure(error: ErrorCode, text: str) -> Any:
        return respond(ApiKey.ALTER_PARTITION_REASSIGNMENTS, error_code=error, error_message=text, responses=())

    forwarder.forward(request, session, message, failure, timeout_ms=milliseconds(message.timeout))


def handle_list_reassignments(forwarder: Forwarder, request: Request, session: Session) -> None:
    """List the partitions that are being reassigned."""
    message = read(request)

    def failure(error: ErrorCode, text: str) -> Any:
        return respond(ApiKey.LIST_PARTITION_REASSIGNMENTS, error_code=error, error_message=text, topics=())

    forwarder.forward(request, session, message, failure, timeout_ms=milliseconds(message.timeout))
